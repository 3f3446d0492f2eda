//! Counters of the AMQP listeners, without locks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start; `connections` is the number open now.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) connections: Counter,
    pub(crate) connections_accepted: Counter,
    /// Connections above the limit.
    pub(crate) connections_refused: Counter,
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

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
