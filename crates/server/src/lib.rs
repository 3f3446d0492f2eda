//! A node, assembled from its config: the hub, the Kafka protocol and HTTP in one process.
//!
//! [`config`] reads and checks the settings, [`http`] is the HTTP side over any
//! [`Log`](highwater_log::Log), [`keys`] says who may do what, [`sharded`] which names lead to several
//! hubs, [`processors`] feeds handlers from hubs, [`workflows`] runs the workflows of the settings, and
//! [`node`] puts the parts together. This crate knows nothing of the command line.

pub mod config;
pub mod http;
pub mod jobs;
mod kafka;
pub mod keys;
pub mod node;
pub mod processors;
mod queues;
pub mod sharded;
mod text;
mod tls;
pub mod workflows;
