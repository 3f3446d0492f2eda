//! Reliable handling of what is on a log.

pub mod retry;
