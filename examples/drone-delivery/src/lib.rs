//! Drone Delivery: customers request a drone to collect a parcel; the back end assigns one and tracks the delivery.
//! Microsoft's reference application for microservices, built on Highwater.
//!
//! - [`ingestion`] is the public API: a request is durable on a hub before it is answered.
//! - The workflows in `workflows/` call the [`services`], each with a [`journal`] of its own.
//! - [`chaos`] injects faults, `load` generates traffic, `check` reads the journals and reports whether anything was
//!   lost, left behind or done twice.

pub mod chaos;
pub mod check;
pub mod client;
pub mod demo;
pub mod fleet;
pub mod http;
pub mod ingestion;
pub mod journal;
pub mod ledger;
pub mod load;
pub mod model;
pub mod node;
pub mod outcomes;
pub mod serve;
pub mod services;
pub mod spike;
pub mod stack;
pub mod trial;
