//! What the coordinators of groups and of transactions have in common: state in memory that is a view
//! of a compacted hub, and deadlines.
//!
//! Both are built on the traits of `highwater_log` alone, so they work over any log.

pub(crate) mod deadlines;
pub(crate) mod journal;
pub(crate) mod record;
#[cfg(test)]
pub(crate) mod testing;

use std::future::Future;

pub use journal::JournalError;

/// Work that must be done even if whoever asked for it is gone. It is short: it ends when the log has
/// answered. Outside a runtime the node is going down, and what is not done is done after the next
/// start, as after a crash.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}
