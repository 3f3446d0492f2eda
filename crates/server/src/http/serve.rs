//! Accepts and serves connections.

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

/// hyper's buffer of a connection.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// How long a stop waits for requests under way.
const STOP_WAIT: Duration = Duration::from_secs(10);

const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/json\r\ncontent-length: 93\r\n\r\n\
    {\"code\":\"full\",\"message\":\"too many connections\",\"hint\":\"raise http.connections_max, or wait\"}";

/// Why the listener cannot be bound.
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
            "\n  another process listens there: stop it, or set http.listen to another port"
        }
        io::ErrorKind::PermissionDenied => {
            "\n  ports below 1024 need privileges: choose a higher one"
        }
        io::ErrorKind::AddrNotAvailable => "\n  this machine has no such address",
        _ => "",
    }
}

/// A bound listener, which serves when run.
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

    /// The bound address, with the port that the system chose for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until [`App::stop`], then waits up to `STOP_WAIT` for requests under way.
    pub async fn run(self) {
        let most = self.app.options.connections_max.min(Semaphore::MAX_PERMITS);
        let slots = Arc::new(Semaphore::new(most));
        let mut stopped = std::pin::pin!(self.app.stopped());
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.serve(stream, &slots),
                    Err(error) => self.pause_after(error).await,
                },
            }
        }
        let all = u32::try_from(most).unwrap_or(u32::MAX);
        if tokio::time::timeout(STOP_WAIT, slots.acquire_many(all))
            .await
            .is_err()
        {
            tracing::warn!("some requests did not end within {STOP_WAIT:?} and were aborted");
        }
    }

    /// Too many open files, or the client is gone: neither is a reason to stop.
    async fn pause_after(&self, error: io::Error) {
        tracing::warn!(%error, "a connection cannot be accepted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    fn serve(&self, stream: TcpStream, slots: &Arc<Semaphore>) {
        // Answers are small and complete: Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let app = self.app.clone();
        match (slots.clone().try_acquire_owned(), self.tls.clone()) {
            (Ok(slot), None) => drop(tokio::spawn(connection(app, stream, slot))),
            (Ok(slot), Some(tls)) => drop(tokio::spawn(async move {
                let handshake =
                    tokio::time::timeout(app.options.header_timeout, tls.accept(stream));
                match handshake.await {
                    Ok(Ok(stream)) => connection(app, stream, slot).await,
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

/// Answers with 503 and closes the connection.
fn refuse(mut stream: TcpStream) {
    tokio::spawn(async move {
        let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(TOO_MANY)).await;
        let _ = stream.shutdown().await;
    });
}

async fn connection(
    app: Arc<App>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    _slot: OwnedSemaphorePermit,
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
