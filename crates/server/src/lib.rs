//! A node, assembled from its configuration: the hub, the Kafka protocol and HTTP in one process.
//!
//! [`config`] reads and checks the settings, [`http`] is the HTTP API over any [`Log`](highwater_log::Log), [`sharded`]
//! has names for several hubs, [`processors`] delivers events to handlers, [`workflows`] runs the workflows of the
//! settings, and [`node`] assembles the parts. This crate knows nothing of the command line.

pub mod amqp;
mod audit;
pub mod cluster;
pub mod config;
mod dynamic_settings;
pub mod http;
mod idle_entities;
pub mod jobs;
mod kafka;
pub mod node;
pub mod owners;
pub mod processors;
mod queues;
mod reload;
pub mod sharded;
pub mod stored_keys;
mod text;
mod tls;
pub mod tokens;
mod topics;
pub mod workflows;
