//! The HTTP side as clients meet it: over a socket, byte by byte, with a log in memory behind it.

mod access;
mod admin;
mod described;
mod faulty;
mod groups;
mod limits;
mod node;
mod queues;
mod read;
mod send;
mod sharded;
mod stream;
mod workflows;
