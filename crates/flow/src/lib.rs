//! Reliable handling of what is on a log.

pub mod circuit;
pub mod retry;
pub mod track;
