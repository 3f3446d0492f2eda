//! The HTTP API of a node.
//!
//! `operations/` is the table of all operations; `dispatch.rs` finds the operation of a request, checks the right of
//! the caller and calls the handler, over plain hyper. There is no framework between the socket and the append, because
//! most senders post one event a request, and a node takes fifty thousand of them a second. HTTP/1.1 only: the protocol
//! of curl and of every device, with one small parser to trust.
//!
//! Nothing is buffered without a bound: bodies count against `in_flight_bytes_max` from their first byte to their
//! answer, and answers until they are written to the socket; connections and headers are limited, and slow heads,
//! bodies and readers time out. A connection has one answer in flight, however many requests it pipelines.

mod app;
mod atom;
mod auth;
mod body;
mod budget;
mod cluster;
mod console;
pub(crate) mod decode;
mod dispatch;
mod error;
mod forward;
mod groups;
mod hubs;
mod jobs;
pub(crate) mod json;
mod json_answer;
mod keys;
mod metrics;
mod node;
mod openapi;
mod operations;
mod origin;
mod playground;
mod processors;
mod queues;
mod read;
mod reply;
pub(crate) mod round_robin;
mod search;
mod send;
mod serve;
mod sse;
mod topics;
mod verdict;
mod websocket;
mod workflows;
mod write_timeout;

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::TlsSettings;

pub use app::{App, Backend, Progress};
pub use error::{Code, Error};
pub(crate) use forward::Peers;
pub(crate) use hubs::PARTITIONS_DEFAULT;
pub(crate) use operations::begins_paths;
pub use serve::{Server, ServerError};

/// Listener and limits of the HTTP API. docs/config.md has the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    pub tls: Option<TlsSettings>,
    /// Further addresses of the same API.
    pub more: Vec<MoreListener>,
    /// Origins of foreign pages that may call a node with keys.
    pub allowed_origins: Vec<String>,
    /// Whether the console is served.
    pub console: bool,
    pub event_bytes_max: usize,
    pub body_bytes_max: usize,
    /// Over all connections.
    pub in_flight_bytes_max: usize,
    /// The memory to unpack compressed batches in, over all readers. The largest batch needs 200 MiB with its decoder.
    pub unpack_bytes_max: usize,
    /// Of one read from a partition.
    pub read_bytes_max: usize,
    pub connections_max: usize,
    /// Of `connections_max`, kept for clients with a key.
    pub connections_reserved: usize,
    pub headers_max: usize,
    /// Also the idle timeout of a connection.
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    /// For a client that does not read its answer.
    pub write_timeout: Duration,
    /// The longest long poll.
    pub wait_max: Duration,
}

/// A further address of the HTTP API.
#[derive(Clone, Debug)]
pub struct MoreListener {
    pub listen: SocketAddr,
    pub tls: Option<TlsSettings>,
    /// The node starts without it if the address is taken.
    pub is_optional: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            tls: None,
            more: Vec::new(),
            allowed_origins: Vec::new(),
            console: true,
            event_bytes_max: 1 << 20,
            body_bytes_max: 1 << 20,
            in_flight_bytes_max: 64 << 20,
            unpack_bytes_max: 256 << 20,
            read_bytes_max: 1 << 20,
            connections_max: 4096,
            connections_reserved: 16,
            headers_max: 100,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            wait_max: Duration::from_secs(60),
        }
    }
}
