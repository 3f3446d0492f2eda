//! The embedded log.

mod coordinator;
pub mod groups;
pub mod transactions;
