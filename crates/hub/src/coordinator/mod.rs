//! The common parts of the coordinators of groups and of transactions: a view in memory of a compacted hub, and
//! deadlines.
//!
//! Both coordinators use the traits of `highwater_log` alone, so they work over any log.

pub(crate) mod deadlines;
pub(crate) mod journal;
pub(crate) mod record;
pub(crate) mod slots;
#[cfg(test)]
pub(crate) mod testing;

use std::future::Future;

pub use journal::JournalError;

/// The longest name of a new group or transactional id. All of them are in memory, as long as the hub keeps them.
pub(crate) const NAME_BYTES_MAX: usize = 1 << 10;

/// Spawns work that must finish even if its client has disconnected. It is short: it ends when the log has answered.
/// Without a runtime the node is shutting down; the next start does the work, as after a crash.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}
