//! Accepts and serves connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::select_all;
use highwater_access::ClientCertificate;
use highwater_env::listen;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::app::App;
use super::console;
use super::dispatch::{self, Connection};
use super::write_timeout::WriteTimeout;
use crate::config::TlsSettings;
use crate::tls;

/// hyper's buffer of a connection.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// How long a stop waits for open requests.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// How long a connection of the reserve may take for the head of a request: unauthenticated clients must not use the
/// reserve.
const RESERVE_HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The body of the answer 503 to a connection too many.
pub(super) const TOO_MANY: &str = r#"{"code":"full","message":"too many connections","hint":"raise http.connections_max, or wait"}"#;

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

/// Bound listeners, which serve when run.
pub struct Server {
    listener: Listener,
    more: Vec<Listener>,
    app: Arc<App>,
}

/// A bound address.
struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    async fn bind(address: SocketAddr, tls: Option<&TlsSettings>) -> Result<Listener, ServerError> {
        let tls = tls.map(tls::acceptor).transpose()?;
        let socket = listen(address).await;
        let socket = socket.map_err(|error| ServerError::Listen { address, error })?;
        Ok(Listener { socket, tls })
    }
}

impl Server {
    pub async fn bind(app: Arc<App>) -> Result<Server, ServerError> {
        let options = &app.options;
        let listener = Listener::bind(options.listen, options.tls.as_ref()).await?;
        let mut more = Vec::new();
        for further in &options.more {
            match Listener::bind(further.listen, further.tls.as_ref()).await {
                Ok(listener) => more.push(listener),
                Err(ServerError::Listen { address, error })
                    if further.is_optional && error.kind() == io::ErrorKind::AddrInUse =>
                {
                    tracing::warn!(%address, "HTTP is not served there, because something else listens");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Server {
            listener,
            more,
            app,
        })
    }

    /// The bound address, with the port that the system chose for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.socket.local_addr()
    }

    /// The bound addresses of the further listeners.
    pub fn more_addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.more.iter().map(|more| more.socket.local_addr());
        addresses.filter_map(Result::ok).collect()
    }

    /// Serves until [`App::stop`], then waits up to `STOP_WAIT` for open requests.
    pub async fn run(self) {
        let slots = Slots::new(&self.app);
        let mut stopped = std::pin::pin!(self.app.stopped());
        let mut sampling = std::pin::pin!(console::sample(self.app.clone()));
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => break,
                () = &mut sampling => {}
                (accepted, tls) = self.accept() => match accepted {
                    Ok((stream, peer)) => self.serve(stream, peer, tls.clone(), &slots),
                    Err(error) => self.pause_after(error).await,
                },
            }
        }
        let closed = tokio::time::timeout(STOP_WAIT, slots.all_free());
        if closed.await.is_err() {
            tracing::warn!("some requests did not end within {STOP_WAIT:?} and were aborted");
        }
    }

    /// The next connection of any listener, and the TLS of that listener.
    async fn accept(&self) -> (io::Result<(TcpStream, SocketAddr)>, &Option<TlsAcceptor>) {
        let first = self.listener.socket.accept();
        if self.more.is_empty() {
            return (first.await, &self.listener.tls);
        }
        let more = self.more.iter().map(|more| Box::pin(more.socket.accept()));
        tokio::select! {
            accepted = first => (accepted, &self.listener.tls),
            (accepted, at, _) = select_all(more) => (accepted, &self.more[at].tls),
        }
    }

    /// Too many open files, or the client has disconnected: neither is a reason to stop.
    async fn pause_after(&self, error: io::Error) {
        tracing::warn!(%error, "a connection cannot be accepted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>, slots: &Slots) {
        // Answers are small and complete: Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let app = self.app.clone();
        match (slots.take(), tls) {
            (Some(slot), None) => {
                let connection = Connection::new(peer, None, slot.of_reserve, false);
                drop(tokio::spawn(serve_connection(
                    app, stream, connection, slot,
                )));
            }
            (Some(slot), Some(tls)) => drop(tokio::spawn(async move {
                let timeout = slot.head_timeout(&app);
                match tokio::time::timeout(timeout, tls.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        let certificate = client_certificate(&stream);
                        let connection = Connection::new(peer, certificate, slot.of_reserve, true);
                        serve_connection(app, stream, connection, slot).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            })),
            (None, tls) => {
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

/// The connections that may be open.
struct Slots {
    open: Arc<Semaphore>,
    /// For clients with a key.
    reserve: Arc<Semaphore>,
    open_max: u32,
    reserve_max: u32,
}

struct Slot {
    _permit: OwnedSemaphorePermit,
    of_reserve: bool,
}

impl Slots {
    fn new(app: &App) -> Slots {
        let most = u32::try_from(app.options.connections_max.min(Semaphore::MAX_PERMITS));
        let most = most.unwrap_or(u32::MAX);
        let reserved = u32::try_from(app.options.connections_reserved).unwrap_or(u32::MAX);
        let reserve_max = match app.keys.is_empty() {
            true => 0,
            false => reserved.min(most / 2),
        };
        let open_max = most - reserve_max;
        Slots {
            open: Arc::new(Semaphore::new(open_max as usize)),
            reserve: Arc::new(Semaphore::new(reserve_max as usize)),
            open_max,
            reserve_max,
        }
    }

    fn take(&self) -> Option<Slot> {
        let take = |slots: &Arc<Semaphore>, of_reserve| {
            let permit = slots.clone().try_acquire_owned().ok()?;
            Some(Slot {
                _permit: permit,
                of_reserve,
            })
        };
        take(&self.open, false).or_else(|| take(&self.reserve, true))
    }

    async fn all_free(&self) {
        let _open = self.open.acquire_many(self.open_max).await;
        let _reserve = self.reserve.acquire_many(self.reserve_max).await;
    }
}

impl Slot {
    fn head_timeout(&self, app: &App) -> Duration {
        match self.of_reserve {
            true => app.options.header_timeout.min(RESERVE_HEAD_TIMEOUT),
            false => app.options.header_timeout,
        }
    }
}

/// Answers with 503 and closes the connection.
fn refuse(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{TOO_MANY}",
        TOO_MANY.len()
    );
    tokio::spawn(async move {
        let write = stream.write_all(answer.as_bytes());
        let _ = tokio::time::timeout(Duration::from_secs(1), write).await;
        let _ = stream.shutdown().await;
    });
}

fn client_certificate(stream: &TlsStream<TcpStream>) -> Option<ClientCertificate> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    ClientCertificate::parse(certificate)
}

async fn serve_connection(
    app: Arc<App>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    slot: Slot,
) {
    app.metrics.connections.fetch_add(1, Ordering::Relaxed);
    let connection = Arc::new(connection);
    let service = {
        let app = app.clone();
        service_fn(move |request| {
            let answer = dispatch::answer(app.clone(), connection.clone(), request);
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        })
    };
    let stream = WriteTimeout::new(stream, app.options.write_timeout);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(slot.head_timeout(&app))
        .max_headers(app.options.headers_max)
        .max_buf_size(BUFFER_BYTES_MAX)
        // Answers are queued as they are, so that they hold their part of the budget until they are written.
        .writev(true)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
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
