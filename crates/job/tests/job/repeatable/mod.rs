//! Whole jobs over random files: the same files give the same bytes for any threads and blocks, and every event has
//! exactly one fate, the one that the time policy's rules give it.
//!
//! `world` draws jobs and files, `oracle` knows the rules of T3 to T6, `laws` holds them together.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod laws;
mod oracle;
mod world;
