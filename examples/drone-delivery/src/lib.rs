//! Drone Delivery: customers ask for a drone to collect a parcel; the back end assigns one and tracks the
//! delivery. Microsoft's reference application for microservices, built on Highwater.
//!
//! - [`ingestion`] is the public API: a request is on a hub's disk before it is answered.
//! - The workflows in `workflows/` call the [`services`], which keep what they know in a [`journal`] each.
//! - [`chaos`] makes services fail, `load` makes traffic, `check` reads the journals and says whether
//!   anything was lost, forgotten or done twice.

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
