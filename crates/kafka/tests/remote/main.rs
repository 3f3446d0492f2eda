//! The client: a cluster as a log. It behaves like a log in memory, also when connections fail, responses are lost and
//! leaders move.

mod appends;
mod claims;
mod cluster;
mod conformance;
mod event_hubs;
mod faults;
mod flow;
mod groups;
mod names;
mod proxy;
mod real;
mod security;
mod transactions;
