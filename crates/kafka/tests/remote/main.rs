//! The client: a cluster as a log. It behaves like a log in memory, also when connections fail, responses are lost and
//! leaders move.

mod appends;
mod cluster;
mod conformance;
mod faults;
mod flow;
mod groups;
mod proxy;
mod real;
mod security;
mod transactions;
