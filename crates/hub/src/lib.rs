//! The embedded log.

pub mod groups;
