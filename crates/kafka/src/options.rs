//! What can be set, with the defaults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    pub listeners: Vec<Listener>,
    /// The number under which clients know this node.
    pub node_id: i32,
    pub cluster_id: String,
    /// A longer request ends its connection. Kafka's limit is 100 MiB too.
    pub frame_bytes_max: usize,
    /// Connections beyond this are closed as soon as they are made.
    pub connections_max: usize,
    /// A connection is not read from while this many of its requests wait for their answers.
    pub inflight_requests_max: usize,
    /// The same for the bytes of its requests; one request alone may be larger. A few connections
    /// must fit into what may wait in one partition, or they are refused instead of slowed down.
    pub inflight_bytes_max: usize,
    /// And for the bytes of all connections together.
    pub server_inflight_bytes_max: usize,
    /// What answers to Fetch may take until they are written, of all connections together. When
    /// little is left, answers become smaller.
    pub server_fetch_bytes_max: usize,
    /// The most that one answer to Fetch brings, whatever the client asks for, unless a single batch
    /// is larger.
    pub fetch_bytes_max: usize,
    /// A connection on which nothing happens for this long is closed, or up to half as much later.
    pub idle_timeout: Duration,
    /// How long a client may take for the TLS handshake and to authenticate.
    pub login_timeout: Duration,
    /// How long a refused login waits for its answer, which makes guessing slow.
    pub login_delay: Duration,
    /// How long a client is asked to wait when a partition takes no more for now.
    pub throttle: Duration,
    /// How long requests may take to finish once the server is told to stop.
    pub stop_timeout: Duration,
    /// Asking for a hub that does not exist makes it, if the client allows that and may manage.
    pub auto_create: bool,
    /// For hubs made on demand or without saying how many.
    pub partitions_default: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listeners: vec![Listener::plaintext(SocketAddr::from((
                [127, 0, 0, 1],
                9092,
            )))],
            node_id: 1,
            cluster_id: "highwater".into(),
            frame_bytes_max: 100 << 20,
            connections_max: 10_000,
            inflight_requests_max: 64,
            inflight_bytes_max: 8 << 20,
            server_inflight_bytes_max: 256 << 20,
            server_fetch_bytes_max: 256 << 20,
            fetch_bytes_max: 16 << 20,
            idle_timeout: Duration::from_secs(600),
            login_timeout: Duration::from_secs(30),
            login_delay: Duration::from_millis(500),
            throttle: Duration::from_millis(50),
            stop_timeout: Duration::from_secs(10),
            auto_create: true,
            partitions_default: 4,
        }
    }
}

/// An address to listen on.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Port 0 takes any free one.
    pub address: SocketAddr,
    /// Where clients are told to connect; they go there even from a connection they have. Without
    /// it, the address itself.
    pub advertised: Option<(String, u16)>,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Clients must authenticate before anything else. Without it they are
    /// [`Identity::anonymous`](crate::Identity::anonymous).
    pub sasl: bool,
}

impl Listener {
    pub fn plaintext(address: SocketAddr) -> Listener {
        Listener {
            address,
            advertised: None,
            tls: None,
            sasl: false,
        }
    }
}
