//! The Kafka wire protocol in front of any log, and a client that is a log.
//!
//! Kafka clients produce, consume, use groups and run transactions against any implementation of the traits of
//! `highwater-log`. This crate knows no storage and no SQL: it turns frames into calls of
//! [`Log`](highwater_log::Log), [`GroupCoordinator`](highwater_log::GroupCoordinator) and
//! [`TransactionCoordinator`](highwater_log::TransactionCoordinator), and their results into frames.
//!
//! The path of a request: [`Server`] accepts a connection and spawns its task; the task splits the stream into frames,
//! queues the requests and writes the responses in order; the broker dispatches to the handler; the handler calls the
//! log. Batches are slices of the frame they arrived in, and fetched records are written to the socket from the
//! memory of the log: the only work per record is the check that a produced one can be read.
//!
//! [`client`] is the other side: a [`Log`](highwater_log::Log) over a remote cluster.
//!
//! Input is not trusted: lengths are checked before memory is reserved, responses are counted in a memory budget until
//! they are written, and a malformed request closes only its own connection.

mod access;
mod api;
mod broker;
pub mod client;
mod client_quotas;
mod codes;
mod connection;
mod dynamic;
mod frame;
mod handlers;
mod internal_names;
mod metrics;
mod options;
mod producer_ids;
mod queue;
mod request;
mod response;
mod rights;
mod sasl;
mod server;
mod shape;
mod telemetry;
mod throttle;
mod warnings;

pub use access::{
    AllowAll, Authorizer, Identity, Session, UserChange, UserChangeError, UserChangeRequest,
    same_secret,
};
pub use broker::Services;
pub use dynamic::{
    DynamicSettingStore, DynamicSettings, FixedSettings, GroupSettings, QuotaName, SettingError,
    SettingOwner, SettingUpdate, SettingValues,
};
pub use metrics::MetricsSnapshot;
pub use options::{ClusterId, Listener, Options, TopicDefaults};
pub use rights::{Denial, NeededRight, RequestRights, ResourceKind, request_rights};
pub use server::{BindError, BoundListeners, Handle, Server, serve};
pub use telemetry::ClientMetric;
