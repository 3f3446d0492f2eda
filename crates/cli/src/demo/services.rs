//! The services that the demo's processor and workflow call: one HTTP server whose answers fail now and then.
//!
//! While the file `police-down` is in the demo's folder, the police do not answer, and the circuit of the processor
//! opens.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// The wanted port; instances of the workflow call it again after a restart of the demo.
const PORT: u16 = 8090;

/// A file of this name in the demo's folder keeps the police from answering.
pub(super) const DOWN_FILE: &str = "police-down";

pub(super) struct Services {
    listener: TcpListener,
    state: Arc<ServiceState>,
}

struct ServiceState {
    down_file: PathBuf,
    /// Tows ordered and cancelled so far.
    tows: AtomicU64,
    cancelled_tows: AtomicU64,
}

impl Services {
    pub(super) async fn bind(folder: &Path) -> std::io::Result<Services> {
        let listener = match TcpListener::bind(("127.0.0.1", PORT)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(("127.0.0.1", 0)).await?,
        };
        let state = ServiceState {
            down_file: folder.join(DOWN_FILE),
            tows: AtomicU64::new(0),
            cancelled_tows: AtomicU64::new(0),
        };
        Ok(Services {
            listener,
            state: Arc::new(state),
        })
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves requests until the task is aborted.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let state = self.state.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let response = respond(&state, &request);
                    async { Ok::<_, Infallible>(response) }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // The node sees a broken connection as a failed call.
                drop(connection.await);
            });
        }
    }
}

fn respond(state: &ServiceState, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, text) = state.answer(request.method(), request.uri().path(), request.headers());
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

impl ServiceState {
    fn answer(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> (StatusCode, &'static str) {
        let service = path.split('/').nth(1).unwrap_or_default();
        match (method.as_str(), service) {
            ("POST", "police") => self.notify_police(headers),
            ("PUT", "tows") if next(&self.tows) % 7 == 3 => {
                (StatusCode::SERVICE_UNAVAILABLE, "the garage is busy")
            }
            ("PUT", "fines") if hash(path).is_multiple_of(4) => {
                (StatusCode::CONFLICT, "the owner is unknown")
            }
            ("DELETE", "tows") if next(&self.cancelled_tows).is_multiple_of(20) => {
                (StatusCode::CONFLICT, "the car is on the hook already")
            }
            ("PUT", _) => (StatusCode::CREATED, ""),
            _ => (StatusCode::OK, ""),
        }
    }

    fn notify_police(&self, headers: &HeaderMap) -> (StatusCode, &'static str) {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let draw = hash(header("highwater-id").unwrap_or_default());
        if self.down_file.exists() {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                "the police do not answer: police-down exists",
            );
        }
        if draw.is_multiple_of(20) {
            return (StatusCode::UNPROCESSABLE_ENTITY, "the plate cannot be read");
        }
        match draw.is_multiple_of(5) && header("highwater-attempt") == Some("1") {
            true => (StatusCode::SERVICE_UNAVAILABLE, "the line is busy"),
            false => (StatusCode::OK, ""),
        }
    }
}

fn next(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed)
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
