//! Windows against a brute-force oracle: for any query, events, chunks and order of partitions, the rows are those of
//! the rules applied to all events at once.
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
