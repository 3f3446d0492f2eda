//! Open-loop load: requests are due at fixed times, whatever the outcome of earlier requests.
//!
//! The rate alone decides when a request is due, and its latency counts from then, even if every connection was busy
//! and it was sent late. A server that stalls cannot slow the load.

mod connection;
mod generator;
mod schedule;

pub use connection::LoadConnection;
pub use generator::{AttemptError, DueTime, LoadClient, LoadOptions, generate, wait};
pub use schedule::Schedule;
