//! The Kafka wire protocol in front of any log, and a log at the other end of it.
//!
//! Existing Kafka clients produce, consume, use groups and run transactions against whatever
//! implements the traits of `highwater-log`. This crate knows nothing of storage and nothing of
//! SQL: it turns frames into calls of [`Log`](highwater_log::Log),
//! [`GroupCoordinator`](highwater_log::GroupCoordinator) and
//! [`TransactionCoordinator`](highwater_log::TransactionCoordinator), and their results into frames.
//!
//! The way of a request: [`Server`] accepts a connection and gives it a task; the task cuts frames
//! out of the stream, keeps the requests in a queue and writes the answers in order; the broker
//! finds the handler; the handler calls the log. Batches are slices of the frame they came in, and
//! fetched records are written to the socket from where the log has them: nothing on this way is
//! done per record.
//!
//! [`client`] is the other side: a [`Log`](highwater_log::Log) that is a cluster elsewhere.
//!
//! Whatever comes in is taken for hostile until it is shown to be otherwise: lengths are checked
//! before memory is taken, and a request that is not one ends its own connection and no other.

mod access;
mod answer;
mod api;
mod broker;
mod call;
pub mod client;
mod codes;
mod connection;
mod frame;
mod handlers;
mod memory_budget;
mod metrics;
mod options;
mod queue;
mod server;
mod shape;
mod warnings;

pub use access::{AllowAll, Authorizer, Identity, Resource, Right, same_secret};
pub use broker::Services;
pub use metrics::MetricsSnapshot;
pub use options::{Listener, Options};
pub use server::{BindError, BoundListeners, Handle, Server, serve};
