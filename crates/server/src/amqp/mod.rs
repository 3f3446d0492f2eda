//! AMQP 1.0 for the clients of Event Hubs and Service Bus: hubs, partitions, consumer groups and queues under the
//! addresses that Microsoft's SDKs use.
//!
//! `highwater_amqp` speaks the protocol. Here are the listeners (`listener.rs`), the task of a connection
//! (`connection.rs`, `dispatcher/`), authentication (`credentials.rs`), authorization (`operations.rs`), and links:
//! sending (`producer.rs`), reading (`consumer.rs`), tokens and properties (`request.rs`, `management.rs`).
//! `websocket.rs` has the clients that come through the HTTP listener. `event/` maps messages to records,
//! `service_bus/` has the queues. *Invariants:* a delivery is accepted when its events are durable; rights are checked
//! for every delivery and read; the memory of a client is bounded.

mod address;
mod broker;
mod connection;
mod consumer;
mod credentials;
mod dispatcher;
mod error;
mod event;
mod links;
mod listener;
mod management;
mod metrics;
mod operations;
mod owner_levels;
mod position;
mod producer;
mod request;
mod service_bus;
mod settlements;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::config::{AmqpListener, Config};
use crate::text::taken_hint;
use crate::tls::{self, TlsError};
use broker::{Broker, Limits};
use listener::{Connections, Listener};

pub(crate) use broker::Services;
pub(crate) use metrics::Metrics;
pub use operations::{AmqpOperation, AmqpResource, AmqpRight, OperationRights, operation_rights};
pub(crate) use service_bus::AmqpPropertyMap;
pub use service_bus::QueueOperation;
pub(crate) use websocket::WebSockets;

/// Connections of all listeners, unless descriptors are short.
pub(crate) const CONNECTIONS_MAX: usize = 10_000;

/// Why AMQP clients cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "cannot listen on {address}: {source} (for AMQP clients){}",
        taken_hint(source, "amqp.listen")
    )]
    Bind {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Bound addresses without a server yet: clients that connect wait.
pub(crate) struct BoundListeners {
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    connections_max: usize,
}

/// A running server.
pub(crate) struct AmqpServer {
    pub(crate) metrics: Arc<Metrics>,
    /// For clients that come through the HTTP listener.
    pub(crate) sockets: Arc<WebSockets>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) task: JoinHandle<()>,
}

/// Binds the listeners of the settings; `None` if there are none.
pub(crate) async fn bind(
    config: &Config,
    connections_max: usize,
    has_keys: bool,
) -> Result<Option<BoundListeners>, ListenError> {
    let mut bound = BoundListeners {
        listeners: Vec::new(),
        addresses: Vec::new(),
        connections_max,
    };
    for settings in &config.amqp {
        if settings.anonymous && has_keys {
            let address = settings.listen;
            tracing::warn!(
                %address,
                "anonymous = true: AMQP clients need no key here and have all rights"
            );
        }
        if let Some(socket) = bind_socket(settings).await? {
            bound.addresses.extend(socket.address().ok());
            bound.listeners.push(Listener {
                socket,
                anonymous: settings.anonymous,
            });
        }
    }
    Ok((!bound.listeners.is_empty()).then_some(bound))
}

/// `None` if nobody asked for the address and it is taken, such as by another broker of AMQP.
async fn bind_socket(
    settings: &AmqpListener,
) -> Result<Option<highwater_net::Listener>, ListenError> {
    let address = settings.listen;
    let tls = settings.tls.as_ref().map(tls::server_config).transpose()?;
    match highwater_net::Listener::bind(address, tls).await {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if settings.is_default && error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(
                %address,
                "AMQP clients are not served, because something else listens there; amqp.listen sets another address"
            );
            Ok(None)
        }
        Err(source) => Err(ListenError::Bind { address, source }),
    }
}

/// Serves the clients of the listeners.
pub(crate) fn serve(
    bound: BoundListeners,
    services: Services,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> AmqpServer {
    let broker = Arc::new(Broker::new(services, Limits::default()));
    let metrics = broker.metrics.clone();
    let connections = Arc::new(Connections::new(broker, bound.connections_max));
    let sockets = Arc::new(WebSockets::new(connections.clone()));
    let serving = listener::run(connections, bound.listeners, shutdown);
    AmqpServer {
        metrics,
        sockets,
        addresses: bound.addresses,
        task: tokio::spawn(serving),
    }
}
