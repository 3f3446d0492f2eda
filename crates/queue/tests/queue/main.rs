//! The queue service over a log.

mod happens;
mod service;
