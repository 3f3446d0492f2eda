//! What the coordinators of groups and of transactions have in common: state in memory that is a view
//! of a compacted hub, and deadlines.
//!
//! Both are built on the traits of `highwater_log` alone, so they work over any log.

pub(crate) mod codec;
pub(crate) mod deadlines;
pub(crate) mod journal;
#[cfg(test)]
pub(crate) mod testing;

pub use journal::JournalError;
