//! Processors on a whole node, with handlers outside of it. The table "what happens when" of
//! docs/processing.md names these tests.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod api;
mod command;
mod console;
mod happens;
pub(crate) mod receiver;
mod secure;
mod world;
