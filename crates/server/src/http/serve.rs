//! Binds the HTTP listeners, and serves their connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::ClientCertificate;
use highwater_net::{
    Accepted, Acceptors, ConnectionBudget, CountedConnection, Listener, Protocol, Stream,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

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

async fn bind(address: SocketAddr, tls: Option<&TlsSettings>) -> Result<Listener, ServerError> {
    let tls = tls.map(tls::server_config).transpose()?;
    let listener = Listener::bind(address, tls).await;
    listener.map_err(|error| ServerError::Listen { address, error })
}

impl Server {
    pub async fn bind(app: Arc<App>) -> Result<Server, ServerError> {
        let options = &app.options;
        let listener = bind(options.listen, options.tls.as_ref()).await?;
        let mut more = Vec::new();
        for further in &options.more {
            match bind(further.listen, further.tls.as_ref()).await {
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
        self.listener.address()
    }

    /// The bound addresses of the further listeners.
    pub fn more_addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.more.iter().map(Listener::address);
        addresses.filter_map(Result::ok).collect()
    }

    /// Serves until [`App::stop`], then waits up to `STOP_WAIT` for open requests.
    pub async fn run(self) {
        let app = self.app;
        // The reserve is for clients with a key.
        let reserved = match app.keys.is_empty() {
            true => 0,
            false => app.options.connections_reserved,
        };
        let (max, counters) = (app.options.connections_max, app.metrics.connections.clone());
        let budget = ConnectionBudget::new(max, reserved, counters);
        let mut acceptors = Acceptors::new(Arc::new(budget));
        for listener in std::iter::once(self.listener).chain(self.more) {
            acceptors.spawn(listener, app.clone());
        }
        tokio::select! {
            () = app.stopped() => {}
            () = console::sample(app.clone()) => {}
        }
        if !acceptors.finish(STOP_WAIT).await {
            tracing::warn!("some requests did not end within {STOP_WAIT:?} and were aborted");
        }
    }
}

impl Protocol for App {
    async fn serve<S: Stream>(self: Arc<Self>, stream: S, accepted: Accepted) {
        let certificate = accepted.certificate.as_deref();
        let certificate = certificate.and_then(ClientCertificate::parse);
        let (needs_key, is_tls) = (accepted.counted.of_reserve, accepted.is_tls);
        let connection = Connection::new(accepted.peer, certificate, needs_key, is_tls);
        let (app, connection) = (self.clone(), Arc::new(connection));
        let service = service_fn(move |request| {
            let answer = dispatch::answer(app.clone(), connection.clone(), request);
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        });
        let stream = WriteTimeout::new(stream, self.options.write_timeout);
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.handshake_timeout(&accepted.counted))
            .max_headers(self.options.headers_max)
            .max_buf_size(BUFFER_BYTES_MAX)
            // Answers are queued as they are, so that they hold their part of the budget until they are written.
            .writev(true)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = self.stopped() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    /// For the head of each request, too.
    fn handshake_timeout(&self, counted: &CountedConnection) -> Duration {
        match counted.of_reserve {
            true => self.options.header_timeout.min(RESERVE_HEAD_TIMEOUT),
            false => self.options.header_timeout,
        }
    }

    fn handshake_failed(&self, _: SocketAddr, error: &io::Error) {
        tracing::debug!(%error, "a TLS handshake failed");
    }

    fn refuse(&self, stream: TcpStream) {
        tokio::spawn(refuse(stream));
    }
}

/// Answers with 503 and closes the connection.
async fn refuse(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{TOO_MANY}",
        TOO_MANY.len()
    );
    let write = stream.write_all(answer.as_bytes());
    let _ = tokio::time::timeout(Duration::from_secs(1), write).await;
    let _ = stream.shutdown().await;
}
