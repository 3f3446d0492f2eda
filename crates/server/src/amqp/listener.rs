//! Serves the connections of the listeners, and those that come through the HTTP listener.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::ClientCertificate;
use highwater_net::{Accepted, Acceptors, ConnectionBudget, CountedConnection, Protocol, Stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::broker::Broker;
use super::connection::ConnectionTask;

/// A bound address.
pub(super) struct Listener {
    pub(super) socket: highwater_net::Listener,
    /// Clients need no key.
    pub(super) anonymous: bool,
}

/// The connections of all listeners, and of WebSockets.
pub(super) struct Connections {
    broker: Arc<Broker>,
    budget: Arc<ConnectionBudget>,
    stop: watch::Sender<bool>,
}

impl Connections {
    pub(super) fn new(broker: Arc<Broker>, max: usize) -> Connections {
        let budget = ConnectionBudget::new(max, 0, broker.metrics.connections.clone());
        Connections {
            broker,
            budget: Arc::new(budget),
            stop: watch::Sender::new(false),
        }
    }

    /// Takes a connection that was accepted elsewhere; `None` if there are too many.
    pub(super) fn take(&self) -> Option<ReservedConnection> {
        Some(ReservedConnection {
            _counted: self.budget.take()?,
            protocol: self.protocol(false),
        })
    }

    fn protocol(&self, anonymous: bool) -> AmqpProtocol {
        AmqpProtocol {
            broker: self.broker.clone(),
            anonymous,
            stop: self.stop.subscribe(),
        }
    }
}

/// A connection that counts, and whose stream comes later.
pub(super) struct ReservedConnection {
    _counted: CountedConnection,
    protocol: AmqpProtocol,
}

impl ReservedConnection {
    /// Serves a client that needs a key, until either side ends.
    pub(super) async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        from: SocketAddr,
        certificate: Option<&ClientCertificate>,
    ) {
        self.protocol.run(stream, from, certificate).await;
    }
}

/// Serves all listeners until `shutdown`, then finishes open work within the stop timeout.
pub(super) async fn run(
    connections: Arc<Connections>,
    listeners: Vec<Listener>,
    shutdown: impl Future<Output = ()>,
) {
    let mut acceptors = Acceptors::new(connections.budget.clone());
    for Listener { socket, anonymous } in listeners {
        acceptors.spawn(socket, Arc::new(connections.protocol(anonymous)));
    }
    shutdown.await;
    connections.stop.send_replace(true);
    let limit = connections.broker.limits.stop_timeout;
    if !acceptors.finish(limit).await {
        tracing::warn!(
            "AMQP connections were aborted because they took longer than {limit:?} to stop"
        );
    }
}

/// The protocol at one listener.
struct AmqpProtocol {
    broker: Arc<Broker>,
    anonymous: bool,
    stop: watch::Receiver<bool>,
}

impl AmqpProtocol {
    async fn run(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        from: SocketAddr,
        certificate: Option<&ClientCertificate>,
    ) {
        let (broker, stop) = (self.broker.clone(), self.stop.clone());
        let task = ConnectionTask::new(broker, stream, from, self.anonymous, stop);
        if let Some(error) = task.with_certificate(certificate).run().await {
            tracing::debug!(client = %from.ip(), "AMQP connection closed: {error}");
        }
    }
}

impl Protocol for AmqpProtocol {
    async fn serve<S: Stream>(self: Arc<Self>, stream: S, accepted: Accepted) {
        let certificate = accepted.certificate.as_deref();
        let certificate = certificate.and_then(ClientCertificate::parse);
        self.run(stream, accepted.peer, certificate.as_ref()).await;
    }

    fn handshake_timeout(&self, _: &CountedConnection) -> Duration {
        self.broker.limits.login_timeout
    }

    fn handshake_failed(&self, _: SocketAddr, _: &io::Error) {
        self.broker.metrics.malformed.add(1);
    }
}
