//! Sockets: listeners with bounded connections, and TLS of clients.
//!
//! A server binds a [`Listener`] and implements [`Protocol`], which serves one stream; [`Acceptors`] accept the
//! connections, and a [`ConnectionBudget`] bounds how many are open. [`tls`] is the other side: the authorities that a
//! client trusts, and the handshake. This crate knows no protocol above TLS.

mod budget;
mod counter;
mod listener;
#[cfg(test)]
mod tests;
pub mod tls;

pub use budget::{ConnectionBudget, ConnectionCounters, CountedConnection};
pub use counter::Counter;
pub use listener::{Accepted, Acceptors, Listener, Protocol, Stream};
