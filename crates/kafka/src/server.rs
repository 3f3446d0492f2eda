//! Binds the listeners of the protocol, and serves their connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_env::{Clock, MemoryBudget};
use highwater_net::{Accepted, Acceptors, ConnectionBudget, CountedConnection, Protocol, Stream};
use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::broker::{Broker, ChallengeSource, Services};
use crate::client_quotas::ClientQuotas;
use crate::connection::{Connection, ServerContext};
use crate::dynamic::setting;
use crate::internal_names::KafkaNames;
use crate::metrics::{Metrics, MetricsSnapshot};
use crate::options::{Listener, Options};
use crate::producer_ids::ProducerIds;
use crate::request::ListenerInfo;
use crate::telemetry::{ClientMetric, ClientTelemetry};
use crate::warnings::WarningLimiter;

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}: {source}")]
    Address {
        address: SocketAddr,
        source: io::Error,
    },
}

/// Bound addresses without a server yet: clients that connect wait. A node binds before it opens its log, so that an
/// address in use is reported immediately.
pub struct BoundListeners {
    options: Options,
    listeners: Vec<BoundListener>,
    addresses: Arc<[SocketAddr]>,
}

/// A bound server that does not accept yet.
pub struct Server {
    common: Arc<ServerContext>,
    listeners: Vec<BoundListener>,
    stop: watch::Sender<bool>,
    handle: Handle,
}

/// A listener with its socket.
struct BoundListener {
    socket: highwater_net::Listener,
    options: Listener,
}

/// Metrics and addresses of a running server.
#[derive(Clone)]
pub struct Handle {
    metrics: Arc<Metrics>,
    telemetry: Arc<ClientTelemetry>,
    clock: Arc<dyn Clock>,
    addresses: Arc<[SocketAddr]>,
}

impl Handle {
    pub fn metrics(&self) -> MetricsSnapshot {
        self.metrics.snapshot()
    }

    /// Metrics that clients pushed lately.
    pub fn client_metrics(&self) -> Vec<ClientMetric> {
        self.telemetry.snapshot(self.clock.elapsed())
    }

    /// The bound addresses, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl BoundListeners {
    pub async fn bind(options: Options) -> Result<BoundListeners, BindError> {
        let mut listeners = Vec::with_capacity(options.listeners.len());
        let mut addresses = Vec::with_capacity(options.listeners.len());
        for listener in &options.listeners {
            let address = listener.address;
            let failed = |source| BindError::Address { address, source };
            let socket = highwater_net::Listener::bind(address, listener.tls.clone());
            let socket = socket.await.map_err(failed)?;
            addresses.push(socket.address().map_err(failed)?);
            listeners.push(BoundListener {
                socket,
                options: listener.clone(),
            });
        }
        Ok(BoundListeners {
            options,
            listeners,
            addresses: addresses.into(),
        })
    }

    pub fn into_server(self, services: Services) -> Server {
        let (stop, stopped) = watch::channel(false);
        let common = common(self.options, services, stopped);
        Server {
            handle: Handle {
                metrics: Arc::clone(&common.broker.metrics),
                telemetry: Arc::clone(&common.broker.telemetry),
                clock: Arc::clone(&common.broker.services.clock),
                addresses: self.addresses,
            },
            common,
            listeners: self.listeners,
            stop,
        }
    }
}

impl Server {
    pub async fn bind(options: Options, services: Services) -> Result<Server, BindError> {
        Ok(BoundListeners::bind(options).await?.into_server(services))
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until `shutdown`, then finishes requests in flight within [`Options::stop_timeout`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let broker = &self.common.broker;
        let (max, counters) = (broker.options.connections_max, &broker.metrics.connections);
        let budget = ConnectionBudget::new(max, 0, Arc::clone(counters));
        let mut acceptors = Acceptors::new(Arc::new(budget));
        for BoundListener { socket, options } in self.listeners {
            let common = Arc::clone(&self.common);
            acceptors.spawn(socket, Arc::new(KafkaProtocol { common, options }));
        }
        shutdown.await;
        // Fails only if no connection is left.
        let _ = self.stop.send(true);
        let limit = broker.options.stop_timeout;
        if !acceptors.finish(limit).await {
            tracing::warn!(
                "connections were aborted because they took longer than {limit:?} to stop"
            );
        }
    }
}

fn common(
    options: Options,
    mut services: Services,
    stop: watch::Receiver<bool>,
) -> Arc<ServerContext> {
    services.log = Arc::new(KafkaNames(services.log));
    Arc::new(ServerContext {
        warnings: WarningLimiter::new(Arc::clone(&services.clock)),
        memory: MemoryBudget::new(options.server_inflight_bytes_max),
        stop,
        broker: Arc::new(Broker {
            fetch_memory: MemoryBudget::new(options.server_fetch_bytes_max),
            response_memory: MemoryBudget::new(options.server_response_bytes_max),
            unpack_memory: MemoryBudget::new(options.server_unpack_bytes_max),
            producer_ids: ProducerIds::new(options.producer_ids_max),
            challenges: ChallengeSource::new(Random::from_os()),
            settings: services.settings.watch(),
            client_quotas: ClientQuotas::default(),
            services,
            options,
            metrics: Arc::default(),
            telemetry: Arc::default(),
        }),
    })
}

/// Serves one existing connection, such as a pipe, until either side closes it.
pub async fn serve<S>(options: Options, services: Services, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (_stop, stopped) = watch::channel(false);
    let listener = ListenerInfo {
        host: StrBytes::from_static_str("localhost"),
        port: 9092,
        sasl: options.listeners.iter().any(|listener| listener.sasl),
        tls: false,
    };
    let common = common(options, services, stopped);
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Connection::new(common, stream, address, Arc::new(listener))
        .run()
        .await;
}

/// The protocol at one listener.
struct KafkaProtocol {
    common: Arc<ServerContext>,
    options: Listener,
}

impl Protocol for KafkaProtocol {
    async fn serve<S: Stream>(self: Arc<Self>, stream: S, accepted: Accepted) {
        let authorizer = &self.common.broker.services.authorizer;
        let certificate = accepted.certificate.as_deref();
        let session = certificate.and_then(|der| authorizer.certificate_session(der));
        let listener = self.listener_info(accepted.local);
        Connection::new(Arc::clone(&self.common), stream, accepted.peer, listener)
            .with_session(session)
            .run()
            .await;
    }

    fn handshake_timeout(&self, _: &CountedConnection) -> Duration {
        self.common.broker.options.login_timeout
    }

    fn handshake_failed(&self, peer: SocketAddr, error: &io::Error) {
        if error.kind() != io::ErrorKind::TimedOut {
            self.common.broker.metrics.malformed.add(1);
            self.common.warnings.connection_closed(peer.ip(), error);
        }
    }

    /// Clients may lower the number while the node runs.
    fn connections_max(&self) -> u64 {
        let settings = self.common.broker.settings.borrow();
        let changed = settings.of_broker(setting::CONNECTIONS_MAX);
        changed
            .and_then(|value| value.parse().ok())
            .unwrap_or(u64::MAX)
    }
}

impl KafkaProtocol {
    /// Without an advertised address, clients are told the address that they connected to.
    fn listener_info(&self, reached: Option<SocketAddr>) -> Arc<ListenerInfo> {
        let options = &self.options;
        let reached = reached.unwrap_or(options.address);
        let (host, port) = match &options.advertised {
            Some((host, port)) => (host.clone(), *port),
            None => (reached.ip().to_string(), reached.port()),
        };
        let requires_login =
            !options.anonymous && self.common.broker.services.authorizer.has_users();
        Arc::new(ListenerInfo {
            host: StrBytes::from_string(host),
            port,
            sasl: options.sasl || requires_login,
            tls: options.tls.is_some(),
        })
    }
}
