//! The HTTP side as seen by clients: over a socket, byte by byte, with a log in memory behind it.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod access;
mod admin;
mod atom;
mod console;
mod console_hubs;
mod console_workflows;
mod faulty;
mod groups;
mod limits;
pub(crate) mod node;
mod operations;
mod queues;
mod read;
mod send;
mod sharded;
mod stream;
mod topics;
mod workflows;
