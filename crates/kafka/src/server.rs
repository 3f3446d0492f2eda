//! Listens, and gives every connection a task of its own.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::broker::{Broker, Services};
use crate::call::Door;
use crate::complaints::Complaints;
use crate::connection::{Common, Connection};
use crate::memory::Memory;
use crate::metrics::{Metrics, MetricsSnapshot};
use crate::options::{Listener, Options};

/// When the system gives no more sockets, trying again at once would not help.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}: {source}")]
    Address {
        address: SocketAddr,
        source: io::Error,
    },
}

/// Addresses that are taken, with nothing behind them yet: whoever connects waits. So a node learns
/// at once that an address is in use, and not after it has read its log.
pub struct Doors {
    options: Options,
    listeners: Vec<Bound>,
    addresses: Arc<[SocketAddr]>,
}

/// A server that has its addresses and does not accept yet.
pub struct Server {
    common: Arc<Common>,
    listeners: Vec<Bound>,
    stop: watch::Sender<bool>,
    handle: Handle,
}

/// A listener that has its address.
struct Bound {
    socket: TcpListener,
    options: Listener,
    tls: Option<TlsAcceptor>,
}

/// What can be asked of a server while it runs.
#[derive(Clone, Debug)]
pub struct Handle {
    metrics: Arc<Metrics>,
    addresses: Arc<[SocketAddr]>,
}

impl Handle {
    pub fn metrics(&self) -> MetricsSnapshot {
        self.metrics.snapshot()
    }

    /// Where it listens, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Doors {
    pub async fn bind(options: Options) -> Result<Doors, BindError> {
        let mut listeners = Vec::with_capacity(options.listeners.len());
        let mut addresses = Vec::with_capacity(options.listeners.len());
        for listener in &options.listeners {
            let address = listener.address;
            let failed = |source| BindError::Address { address, source };
            let socket = TcpListener::bind(address).await.map_err(failed)?;
            addresses.push(socket.local_addr().map_err(failed)?);
            listeners.push(Bound {
                socket,
                options: listener.clone(),
                tls: listener.tls.clone().map(TlsAcceptor::from),
            });
        }
        Ok(Doors {
            options,
            listeners,
            addresses: addresses.into(),
        })
    }

    /// The server that is behind them.
    pub fn lead_to(self, services: Services) -> Server {
        let (stop, stopped) = watch::channel(false);
        let common = common(self.options, services, stopped);
        Server {
            handle: Handle {
                metrics: Arc::clone(&common.broker.metrics),
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
        Ok(Doors::bind(options).await?.lead_to(services))
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until `shutdown`, then finishes what is under way for as long as the options allow.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let free = Arc::new(Semaphore::new(self.common.broker.options.connections_max));
        let mut accepting = JoinSet::new();
        for bound in self.listeners {
            let (common, free) = (Arc::clone(&self.common), Arc::clone(&free));
            accepting.spawn(accept(common, bound, free));
        }
        shutdown.await;
        // Nobody may be left to hear it.
        let _ = self.stop.send(true);
        let finish = async { while accepting.join_next().await.is_some() {} };
        let limit = self.common.broker.options.stop_timeout;
        if tokio::time::timeout(limit, finish).await.is_err() {
            tracing::warn!("connections were cut off, because they took longer than {limit:?}");
        }
    }
}

fn common(options: Options, services: Services, stop: watch::Receiver<bool>) -> Arc<Common> {
    Arc::new(Common {
        complaints: Complaints::new(Arc::clone(&services.clock)),
        memory: Memory::new(options.server_inflight_bytes_max),
        stop,
        broker: Arc::new(Broker {
            fetch_memory: Memory::new(options.server_fetch_bytes_max),
            services,
            options,
            metrics: Arc::default(),
        }),
    })
}

/// Serves one connection that is there already, such as a pipe, until either side ends it.
pub async fn serve<S>(options: Options, services: Services, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (_stop, stopped) = watch::channel(false);
    let door = Door {
        host: StrBytes::from_static_str("localhost"),
        port: 9092,
        sasl: options.listeners.iter().any(|listener| listener.sasl),
    };
    let common = common(options, services, stopped);
    let nobody = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Connection::new(common, stream, nobody, Arc::new(door))
        .run()
        .await;
}

/// Accepts until told to stop, then waits for the connections. Dropped, it drops them.
async fn accept(common: Arc<Common>, bound: Bound, free: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    let mut stop = common.stop.clone();
    loop {
        tokio::select! {
            () = told(&mut stop) => break,
            accepted = bound.socket.accept() => match accepted {
                Ok((stream, address)) => {
                    if let Some(slot) = slot(&common, &free) {
                        let connection = converse(Arc::clone(&common), &bound, stream, address, slot);
                        connections.spawn(connection);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(bound);
    while connections.join_next().await.is_some() {}
}

async fn told(stop: &mut watch::Receiver<bool>) {
    // An error means that the server itself is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Counts a connection for as long as it is held.
struct Slot {
    common: Arc<Common>,
    _permit: OwnedSemaphorePermit,
}

fn slot(common: &Arc<Common>, free: &Arc<Semaphore>) -> Option<Slot> {
    let metrics = &common.broker.metrics;
    let Ok(permit) = Arc::clone(free).try_acquire_owned() else {
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

impl Drop for Slot {
    fn drop(&mut self) {
        self.common.broker.metrics.connections.subtract(1);
    }
}

fn converse(
    common: Arc<Common>,
    bound: &Bound,
    stream: TcpStream,
    address: SocketAddr,
    slot: Slot,
) -> impl Future<Output = ()> + Send + use<> {
    let door = door(&bound.options, &stream);
    let tls = bound.tls.clone();
    async move {
        let _slot = slot;
        // Answers are small and awaited; a socket that refuses this works all the same.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else {
            return Connection::new(common, stream, address.ip(), door)
                .run()
                .await;
        };
        let limit = common.broker.options.login_timeout;
        match tokio::time::timeout(limit, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                Connection::new(common, stream, address.ip(), door)
                    .run()
                    .await
            }
            Ok(Err(error)) => {
                common.broker.metrics.malformed.add(1);
                common.complaints.about(address.ip(), &error);
            }
            Err(_) => {}
        }
    }
}

/// Without an advertised address, clients are told the one that they have reached us at.
fn door(options: &Listener, stream: &TcpStream) -> Arc<Door> {
    let reached = stream.local_addr().unwrap_or(options.address);
    let (host, port) = match &options.advertised {
        Some((host, port)) => (host.clone(), *port),
        None => (reached.ip().to_string(), reached.port()),
    };
    Arc::new(Door {
        host: StrBytes::from_string(host),
        port,
        sasl: options.sasl,
    })
}
