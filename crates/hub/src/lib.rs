//! The embedded log.
