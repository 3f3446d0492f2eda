//! The client side: a cluster as a log. What holds of a log in memory holds of one at the other end of a
//! connection, and goes on holding when connections break, answers get lost and leaders move.

mod appends;
mod conformance;
mod faults;
mod flow;
mod groups;
mod proxy;
mod real;
mod security;
mod transactions;
mod world;
