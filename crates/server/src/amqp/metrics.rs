//! Counters of the AMQP listeners, without locks.

use std::sync::Arc;

use highwater_net::{ConnectionCounters, Counter};

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) connections: Arc<ConnectionCounters>,
    /// Connections closed because of a malformed frame.
    pub(crate) malformed: Counter,
    pub(crate) logins_refused: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) events_in: Counter,
    pub(crate) events_out: Counter,
    /// Messages that were not accepted.
    pub(crate) rejected: Counter,
    /// Pauses of clients above their quota.
    pub(crate) throttled: Counter,
}
