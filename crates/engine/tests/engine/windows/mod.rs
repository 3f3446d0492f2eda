//! Windows against a brute-force oracle: whatever the query, the events, the chunks and the order in which partitions
//! were faster, the rows are those that the rules give when they are applied to all events at once.
//!
//! `query` draws queries and events, `oracle` knows the rules, `drive` runs the real pipelines by hand, and the other
//! files are the laws.

#[cfg(feature = "javascript")]
mod aggregates;
mod drive;
mod laws;
mod oracle;
mod query;
#[cfg(feature = "javascript")]
mod scripts;
mod substreams;
