//! Accepts connections, and runs a task for each.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::budget::{ConnectionBudget, CountedConnection};

/// Time for which an address may stay in use.
const BIND_WAIT: Duration = Duration::from_millis(500);
/// Interval between two attempts to bind.
const BIND_INTERVAL: Duration = Duration::from_millis(20);
/// The pause after a failed accept: when the system is out of sockets, an immediate retry fails too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket, or TLS over one.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// What a server does with the connections of a listener.
pub trait Protocol: Send + Sync + 'static {
    /// Serves a client until either side ends, or until soon after the server stops.
    fn serve<S: Stream>(
        self: Arc<Self>,
        stream: S,
        accepted: Accepted,
    ) -> impl Future<Output = ()> + Send;

    /// How long a client may take for the TLS handshake.
    fn handshake_timeout(&self, counted: &CountedConnection) -> Duration;

    /// A client that took too long is an error of the kind `TimedOut`.
    fn handshake_failed(&self, peer: SocketAddr, error: &io::Error);

    /// A limit beside that of the budget, which may change.
    fn connections_max(&self) -> u64 {
        u64::MAX
    }

    /// Closes a connection too many, of a listener without TLS.
    fn refuse(&self, stream: TcpStream) {
        drop(stream);
    }
}

/// A connection to be served. It counts until this is dropped.
#[derive(Debug)]
pub struct Accepted {
    pub peer: SocketAddr,
    /// The address that the client connected to.
    pub local: Option<SocketAddr>,
    pub is_tls: bool,
    /// The certificate of the client, which TLS has verified.
    pub certificate: Option<CertificateDer<'static>>,
    pub counted: CountedConnection,
}

/// A bound address: clients that connect wait until [`Acceptors`] accept them.
pub struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Waits a little for an address in use, because a process that was just killed closes its sockets a little later
    /// than `kill` returns.
    pub async fn bind(address: SocketAddr, tls: Option<Arc<ServerConfig>>) -> io::Result<Listener> {
        let deadline = Instant::now() + BIND_WAIT;
        let socket = loop {
            match TcpListener::bind(address).await {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline =>
                {
                    sleep(BIND_INTERVAL).await;
                }
                bound => break bound?,
            }
        };
        Ok(Listener {
            socket,
            tls: tls.map(TlsAcceptor::from),
        })
    }

    /// With the port that the system chose for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// The tasks that accept connections of a server. Dropping them closes its connections.
pub struct Acceptors {
    budget: Arc<ConnectionBudget>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Acceptors {
    pub fn new(budget: Arc<ConnectionBudget>) -> Acceptors {
        Acceptors {
            budget,
            stop: watch::Sender::new(false),
            tasks: JoinSet::new(),
        }
    }

    /// Accepts the connections of a listener.
    pub fn spawn(&mut self, listener: Listener, protocol: Arc<impl Protocol>) {
        let acceptor = Acceptor {
            listener,
            protocol,
            budget: Arc::clone(&self.budget),
            connections: JoinSet::new(),
        };
        self.tasks.spawn(acceptor.run(self.stop.subscribe()));
    }

    /// Closes the listeners, and waits until no connection of the budget is left. Returns false if some took longer than
    /// `limit`; they are aborted. Telling the protocols to stop is the caller's part.
    pub async fn finish(mut self, limit: Duration) -> bool {
        self.stop.send_replace(true);
        let closed = async {
            while self.tasks.join_next().await.is_some() {}
            self.budget.all_closed().await;
        };
        timeout(limit, closed).await.is_ok()
    }
}

struct Acceptor<P> {
    listener: Listener,
    protocol: Arc<P>,
    budget: Arc<ConnectionBudget>,
    connections: JoinSet<()>,
}

impl<P: Protocol> Acceptor<P> {
    /// Accepts until `stop`, then waits for the connections. Dropping the future drops them.
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                _ = stop.changed() => break,
                accepted = self.listener.socket.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = self.connections.join_next() => {}
            }
        }
        drop(self.listener);
        while self.connections.join_next().await.is_some() {}
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let Some(counted) = self.budget.take_below(self.protocol.connections_max()) else {
            if self.listener.tls.is_none() {
                self.protocol.refuse(stream);
            }
            return;
        };
        // Answers are small and awaited: Nagle's algorithm would only delay them. A socket that refuses this works
        // without it.
        let _ = stream.set_nodelay(true);
        let accepted = Accepted {
            peer,
            local: stream.local_addr().ok(),
            is_tls: self.listener.tls.is_some(),
            certificate: None,
            counted,
        };
        let protocol = Arc::clone(&self.protocol);
        match self.listener.tls.clone() {
            None => self.connections.spawn(protocol.serve(stream, accepted)),
            Some(tls) => {
                let serving = serve_tls(protocol, tls, stream, accepted);
                self.connections.spawn(serving)
            }
        };
    }
}

async fn serve_tls(
    protocol: Arc<impl Protocol>,
    tls: TlsAcceptor,
    stream: TcpStream,
    mut accepted: Accepted,
) {
    let limit = protocol.handshake_timeout(&accepted.counted);
    let handshake = timeout(limit, tls.accept(stream)).await;
    let handshake = handshake.unwrap_or_else(|_| {
        let reason = format!("the client took longer than {limit:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    });
    match handshake {
        Ok(stream) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let certificate = certificates.and_then(<[_]>::first);
            accepted.certificate = certificate.map(|certificate| certificate.clone().into_owned());
            protocol.serve(stream, accepted).await;
        }
        Err(error) => protocol.handshake_failed(accepted.peer, &error),
    }
}
