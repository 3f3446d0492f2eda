//! Accepts connections and runs a task for each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::ClientCertificate;
use highwater_amqp::ProtocolError;
use highwater_env::shutdown_signal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::broker::Broker;
use super::connection::ConnectionTask;

/// The pause after a failed accept: when the system is out of sockets, an immediate retry fails too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound address.
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    /// Clients need no key.
    pub(super) anonymous: bool,
}

/// Counts a connection for as long as it is held.
struct Slot {
    broker: Arc<Broker>,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    fn take(broker: &Arc<Broker>, free: &Arc<Semaphore>) -> Option<Slot> {
        let Ok(permit) = free.clone().try_acquire_owned() else {
            broker.metrics.connections_refused.add(1);
            return None;
        };
        broker.metrics.connections.add(1);
        broker.metrics.connections_accepted.add(1);
        Some(Slot {
            broker: broker.clone(),
            _permit: permit,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.broker.metrics.connections.subtract(1);
    }
}

/// The connections of all listeners, and of WebSockets.
pub(super) struct Connections {
    broker: Arc<Broker>,
    free: Arc<Semaphore>,
    max: u32,
    stop: watch::Sender<bool>,
}

impl Connections {
    pub(super) fn new(broker: Arc<Broker>, max: usize) -> Connections {
        let max = u32::try_from(max.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Connections {
            broker,
            free: Arc::new(Semaphore::new(max as usize)),
            max,
            stop: watch::Sender::new(false),
        }
    }

    /// Takes a connection that was accepted elsewhere; `None` if there are too many.
    pub(super) fn take(&self) -> Option<ReservedConnection> {
        let slot = Slot::take(&self.broker, &self.free)?;
        let stop = self.stop.subscribe();
        Some(ReservedConnection { slot, stop })
    }
}

/// A connection that counts, and whose stream comes later.
pub(super) struct ReservedConnection {
    slot: Slot,
    stop: watch::Receiver<bool>,
}

impl ReservedConnection {
    /// Serves a client that needs a key, until either side ends.
    pub(super) async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        from: SocketAddr,
        certificate: Option<&ClientCertificate>,
    ) {
        let broker = self.slot.broker.clone();
        let task = ConnectionTask::new(broker, stream, from, false, self.stop);
        let failed = task.with_certificate(certificate).run().await;
        log_failure(failed, from);
    }
}

fn log_failure(failed: Option<ProtocolError>, from: SocketAddr) {
    if let Some(error) = failed {
        tracing::debug!(client = %from.ip(), "AMQP connection closed: {error}");
    }
}

/// Serves all listeners until `shutdown`, then finishes open work within the stop timeout.
pub(super) async fn run(
    connections: Arc<Connections>,
    listeners: Vec<Listener>,
    shutdown: impl Future<Output = ()>,
) {
    let Connections {
        broker, free, stop, ..
    } = &*connections;
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(
            broker.clone(),
            listener,
            free.clone(),
            stop.subscribe(),
        ));
    }
    shutdown.await;
    stop.send_replace(true);
    let finish = async {
        while accepting.join_next().await.is_some() {}
        let _all = free.acquire_many(connections.max).await;
    };
    let limit = broker.limits.stop_timeout;
    if tokio::time::timeout(limit, finish).await.is_err() {
        tracing::warn!(
            "AMQP connections were aborted because they took longer than {limit:?} to stop"
        );
    }
}

/// Accepts until shutdown, then waits for the connections. Dropping the future drops them.
async fn accept(
    broker: Arc<Broker>,
    listener: Listener,
    free: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let mut stopped = std::pin::pin!(shutdown_signal(stop.clone()));
    loop {
        tokio::select! {
            () = &mut stopped => break,
            accepted = listener.socket.accept() => match accepted {
                Ok((stream, from)) => {
                    if let Some(slot) = Slot::take(&broker, &free) {
                        let (tls, anonymous) = (listener.tls.clone(), listener.anonymous);
                        connections.spawn(serve(slot, stream, from, tls, anonymous, stop.clone()));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(
    slot: Slot,
    stream: TcpStream,
    from: SocketAddr,
    tls: Option<TlsAcceptor>,
    anonymous: bool,
    stop: watch::Receiver<bool>,
) {
    let broker = slot.broker.clone();
    // Answers are small and awaited. A socket that refuses this works without it.
    let _ = stream.set_nodelay(true);
    let failed = match tls {
        None => {
            ConnectionTask::new(broker, stream, from, anonymous, stop)
                .run()
                .await
        }
        Some(tls) => {
            let limit = broker.limits.login_timeout;
            let Ok(Ok(stream)) = tokio::time::timeout(limit, tls.accept(stream)).await else {
                broker.metrics.malformed.add(1);
                return;
            };
            let certificates = stream.get_ref().1.peer_certificates();
            let certificate = certificates.and_then(<[_]>::first);
            let certificate = certificate.and_then(|der| ClientCertificate::parse(der));
            let task = ConnectionTask::new(broker, stream, from, anonymous, stop);
            task.with_certificate(certificate.as_ref()).run().await
        }
    };
    log_failure(failed, from);
}
