//! Options of the server, with their defaults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::TimestampType;

#[derive(Clone, Debug)]
pub struct Options {
    pub listeners: Vec<Listener>,
    /// The broker id of this node.
    pub node_id: i32,
    pub cluster_id: ClusterId,
    /// A longer request ends its connection. Kafka's limit is 100 MiB too.
    pub frame_bytes_max: usize,
    /// A request with more array elements closes its connection.
    pub request_elements_max: usize,
    /// Further connections are closed immediately.
    pub connections_max: usize,
    /// A connection with this many requests in flight is not read.
    pub inflight_requests_max: usize,
    /// The same for the bytes of its requests; a single request may be larger. A few connections must fit into the
    /// append queue of a partition, or their appends are refused instead of slowed down.
    pub inflight_bytes_max: usize,
    /// The same for the bytes of all connections together.
    pub server_inflight_bytes_max: usize,
    /// Memory for unwritten Fetch responses of all connections together. When it runs short, responses become
    /// smaller.
    pub server_fetch_bytes_max: usize,
    /// Memory for other requests and responses while they are handled and written, of all connections together.
    /// Requests wait until it is free.
    pub server_response_bytes_max: usize,
    /// Memory for compressed batches while they are checked, of all connections together. A Produce that finds too
    /// little of it is throttled; one that needs more than all of it is too large.
    pub server_unpack_bytes_max: usize,
    /// Producer ids that a user, or a network of clients without a login, may use in five minutes: a quarter of those
    /// that a partition remembers. Batches with further ones are throttled.
    pub producer_ids_max: usize,
    /// The largest Fetch response, unless a single batch is larger.
    pub fetch_bytes_max: usize,
    /// A connection that is idle for this long is closed, up to half as much later.
    pub idle_timeout: Duration,
    /// A connection whose client reads no response for this long is closed.
    pub write_timeout: Duration,
    /// The time limit for the TLS handshake and authentication.
    pub login_timeout: Duration,
    /// The delay before a refused login is answered, which makes guessing slow.
    pub login_delay: Duration,
    /// The throttle time sent to clients when the append queue of a partition is full.
    pub throttle: Duration,
    /// The time limit for requests in flight after shutdown.
    pub stop_timeout: Duration,
    /// Metadata requests create a missing hub, if the client allows it and has the right to manage it.
    pub auto_create: bool,
    /// For hubs that are created without a number of partitions.
    pub partitions_default: u32,
    pub topics: TopicDefaults,
    /// The interval of retention and compaction, as reported to clients.
    pub maintenance: Duration,
    /// The session and heartbeats of the consumer protocol, as reported to clients.
    pub consumer_session: Duration,
    pub consumer_heartbeat: Duration,
}

/// Settings of topics that clients create without them.
#[derive(Clone, Debug)]
pub struct TopicDefaults {
    /// Of topics that are created explicitly or automatically.
    pub timestamp_type: TimestampType,
    /// The values of the hub, as reported to clients.
    pub segment_bytes: u64,
    pub segment_age: Duration,
    pub tombstone_age: Duration,
}

impl Default for TopicDefaults {
    fn default() -> TopicDefaults {
        TopicDefaults {
            timestamp_type: TimestampType::Create,
            segment_bytes: 64 << 20,
            segment_age: Duration::from_secs(24 * 3600),
            tombstone_age: Duration::from_secs(24 * 3600),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listeners: vec![Listener::plaintext(SocketAddr::from((
                [127, 0, 0, 1],
                9092,
            )))],
            node_id: 1,
            cluster_id: ClusterId::Named("highwater".into()),
            frame_bytes_max: 100 << 20,
            request_elements_max: 100_000,
            connections_max: 10_000,
            inflight_requests_max: 64,
            inflight_bytes_max: 8 << 20,
            server_inflight_bytes_max: 256 << 20,
            server_fetch_bytes_max: 256 << 20,
            server_response_bytes_max: 64 << 20,
            server_unpack_bytes_max: 192 << 20,
            producer_ids_max: 2500,
            fetch_bytes_max: 16 << 20,
            idle_timeout: Duration::from_secs(600),
            write_timeout: Duration::from_secs(30),
            login_timeout: Duration::from_secs(30),
            login_delay: Duration::from_millis(500),
            throttle: Duration::from_millis(50),
            stop_timeout: Duration::from_secs(10),
            auto_create: true,
            partitions_default: 4,
            consumer_session: Duration::from_secs(45),
            consumer_heartbeat: Duration::from_secs(5),
            topics: TopicDefaults::default(),
            maintenance: Duration::from_secs(10),
        }
    }
}

/// The cluster id, as reported to clients. Clients compare it to notice that they reached another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterId {
    Named(String),
    /// That of the hub of this name, which a data folder has had since its first start.
    OfHub(&'static str),
}

/// A listening address.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Port 0 selects a free port.
    pub address: SocketAddr,
    /// The advertised address. Default: the address itself.
    pub advertised: Option<(String, u16)>,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Clients must authenticate first. Without SASL they are [`Identity::anonymous`](crate::Identity::anonymous).
    pub sasl: bool,
    /// Clients need no login although there are users.
    pub anonymous: bool,
}

impl Listener {
    pub fn plaintext(address: SocketAddr) -> Listener {
        Listener {
            address,
            advertised: None,
            tls: None,
            sasl: false,
            anonymous: false,
        }
    }
}
