//! Listens, takes connections, and lets them go.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::app::App;
use super::dispatch;
use crate::tls;

/// What hyper may keep of a connection before a request is understood.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// How long a stop waits for requests under way.
const STOP_WAIT: Duration = Duration::from_secs(10);

const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/json\r\ncontent-length: 93\r\n\r\n\
    {\"code\":\"full\",\"message\":\"too many connections\",\"hint\":\"raise http.connections_max, or wait\"}";

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address} for HTTP: {error}{}", hint(error))]
    Listen {
        address: SocketAddr,
        error: io::Error,
    },
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "\n  something else listens there: stop it, or set http.listen to another port"
        }
        io::ErrorKind::PermissionDenied => "\n  ports below 1024 need rights: choose a higher one",
        io::ErrorKind::AddrNotAvailable => "\n  this machine has no such address",
        _ => "",
    }
}

/// A listener that has its address and serves when run.
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    app: Arc<App>,
}

impl Server {
    pub async fn bind(app: Arc<App>) -> Result<Server, ServerError> {
        let address = app.options.listen;
        let tls = app.options.tls.as_ref().map(tls::acceptor).transpose()?;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| ServerError::Listen { address, error })?;
        Ok(Server { listener, tls, app })
    }

    /// The address it got, where the port was left to the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until [`App::stop`], then waits for requests under way, though not for ever.
    pub async fn run(self) {
        let most = self.app.options.connections_max.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(most));
        let mut stopped = std::pin::pin!(self.app.stopped());
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.take(stream, &places),
                    Err(error) => self.rest(error).await,
                },
            }
        }
        let all = u32::try_from(most).unwrap_or(u32::MAX);
        if tokio::time::timeout(STOP_WAIT, places.acquire_many(all))
            .await
            .is_err()
        {
            tracing::warn!("some requests did not end within {STOP_WAIT:?} and were cut off");
        }
    }

    /// The system has no more files, or the client was gone again: neither is a reason to stop.
    async fn rest(&self, error: io::Error) {
        tracing::warn!(%error, "a connection could not be taken");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    fn take(&self, stream: TcpStream, places: &Arc<Semaphore>) {
        // Answers are small and complete: waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let app = self.app.clone();
        match (places.clone().try_acquire_owned(), self.tls.clone()) {
            (Ok(place), None) => drop(tokio::spawn(connection(app, stream, place))),
            (Ok(place), Some(tls)) => drop(tokio::spawn(async move {
                let handshake =
                    tokio::time::timeout(app.options.header_timeout, tls.accept(stream));
                match handshake.await {
                    Ok(Ok(stream)) => connection(app, stream, place).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            })),
            (Err(_), tls) => {
                app.metrics
                    .connections_refused
                    .fetch_add(1, Ordering::Relaxed);
                if tls.is_none() {
                    refuse(stream);
                }
            }
        }
    }
}

/// Says why before it closes, if the socket takes it at once.
fn refuse(mut stream: TcpStream) {
    tokio::spawn(async move {
        let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(TOO_MANY)).await;
        let _ = stream.shutdown().await;
    });
}

async fn connection(
    app: Arc<App>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    _place: OwnedSemaphorePermit,
) {
    app.metrics.connections.fetch_add(1, Ordering::Relaxed);
    let service = {
        let app = app.clone();
        service_fn(move |request| {
            let app = app.clone();
            async move { Ok::<_, std::convert::Infallible>(dispatch::answer(app, request).await) }
        })
    };
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options.header_timeout)
        .max_headers(app.options.headers_max)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = app.stopped() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
    app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
}
