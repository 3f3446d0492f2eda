//! Accepts connections and runs a task for each.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_env::{Clock, MemoryBudget, listen, shutdown_signal};
use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

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

/// The pause after a failed accept: when the system is out of sockets, an immediate retry fails too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    socket: TcpListener,
    options: Listener,
    tls: Option<TlsAcceptor>,
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
            let socket = listen(address).await.map_err(failed)?;
            addresses.push(socket.local_addr().map_err(failed)?);
            listeners.push(BoundListener {
                socket,
                options: listener.clone(),
                tls: listener.tls.clone().map(TlsAcceptor::from),
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
        let free = Arc::new(Semaphore::new(self.common.broker.options.connections_max));
        let mut accepting = JoinSet::new();
        for listener in self.listeners {
            let (common, free) = (Arc::clone(&self.common), Arc::clone(&free));
            accepting.spawn(accept(common, listener, free));
        }
        shutdown.await;
        // Fails only if no connection is left.
        let _ = self.stop.send(true);
        let finish = async { while accepting.join_next().await.is_some() {} };
        let limit = self.common.broker.options.stop_timeout;
        if tokio::time::timeout(limit, finish).await.is_err() {
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

/// Accepts until shutdown, then waits for the connections. Dropping the future drops them.
async fn accept(common: Arc<ServerContext>, listener: BoundListener, free: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    let mut stopped = std::pin::pin!(shutdown_signal(common.stop.clone()));
    loop {
        tokio::select! {
            () = &mut stopped => break,
            accepted = listener.socket.accept() => match accepted {
                Ok((stream, address)) => {
                    if let Some(slot) = slot(&common, &free) {
                        let connection = serve_connection(Arc::clone(&common), &listener, stream, address, slot);
                        connections.spawn(connection);
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

/// Counts a connection for as long as it is held.
struct Slot {
    common: Arc<ServerContext>,
    _permit: OwnedSemaphorePermit,
}

fn slot(common: &Arc<ServerContext>, free: &Arc<Semaphore>) -> Option<Slot> {
    let (metrics, max) = (&common.broker.metrics, connections_max(common));
    let permit = Some(free).filter(|_| metrics.connections.get() < max as u64);
    let Some(Ok(permit)) = permit.map(|free| Arc::clone(free).try_acquire_owned()) else {
        metrics.connections_refused.add(1);
        return None;
    };
    metrics.connections.add(1);
    metrics.connections_total.add(1);
    Some(Slot {
        common: Arc::clone(common),
        _permit: permit,
    })
}

/// Clients may lower the number while the node runs.
fn connections_max(common: &ServerContext) -> usize {
    let max = common.broker.options.connections_max;
    let settings = common.broker.settings.borrow();
    let changed = settings.of_broker(setting::CONNECTIONS_MAX);
    let changed = changed.and_then(|value| value.parse().ok());
    changed.map_or(max, |changed: usize| changed.min(max))
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.common.broker.metrics.connections.subtract(1);
    }
}

fn serve_connection(
    common: Arc<ServerContext>,
    listener: &BoundListener,
    stream: TcpStream,
    address: SocketAddr,
    slot: Slot,
) -> impl Future<Output = ()> + Send + use<> {
    let authorizer = &common.broker.services.authorizer;
    let requires_login = !listener.options.anonymous && authorizer.has_users();
    let listener_info = listener_info(&listener.options, &stream, requires_login);
    let tls = listener.tls.clone();
    async move {
        let _slot = slot;
        // Responses are small and awaited. A socket that refuses this works without it.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            return Connection::new(common, stream, address, listener_info)
                .run()
                .await;
        };
        let limit = common.broker.options.login_timeout;
        match tokio::time::timeout(limit, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let certificate = stream.get_ref().1.peer_certificates();
                let certificate = certificate.and_then(<[_]>::first);
                let authorizer = &common.broker.services.authorizer;
                let session = certificate.and_then(|der| authorizer.certificate_session(der));
                Connection::new(common, stream, address, listener_info)
                    .with_session(session)
                    .run()
                    .await
            }
            Ok(Err(error)) => {
                common.broker.metrics.malformed.add(1);
                common.warnings.connection_closed(address.ip(), &error);
            }
            Err(_) => {}
        }
    }
}

/// Without an advertised address, the address that the client connected to is reported.
fn listener_info(
    options: &Listener,
    stream: &TcpStream,
    requires_login: bool,
) -> Arc<ListenerInfo> {
    let reached = stream.local_addr().unwrap_or(options.address);
    let (host, port) = match &options.advertised {
        Some((host, port)) => (host.clone(), *port),
        None => (reached.ip().to_string(), reached.port()),
    };
    Arc::new(ListenerInfo {
        host: StrBytes::from_string(host),
        port,
        sasl: options.sasl || requires_login,
        tls: options.tls.is_some(),
    })
}
