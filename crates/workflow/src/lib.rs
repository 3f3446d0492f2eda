//! Transactions across services that are never lost and never left half done.
//!
//! A [`Definition`] names steps in order, each an HTTP call or a function, and how each is undone. A
//! *scheduler* does the steps of an instance one after another and journals every outcome before the
//! next begins; when one fails for good, a *supervisor*, apart from it, undoes what was done, from the
//! last step to the first. What cannot be undone is parked for a person. All of it is a replay of
//! records on a log (`journal`), folded by a pure state machine ([`machine`]).
//!
//! - `expr` and [`definition`]: what a workflow is.
//! - [`machine`]: one instance, events in, what is to be done out; no clock, no I/O.
//! - `core`: many instances; inputs in, records and effects out, effects only after the records are
//!   durable. Still no I/O.
//! - `service`: the tasks around it, and [`call`], which makes the calls.
//! - `journal`, `history`, `versions`: what is on the log.

pub mod call;
mod core;
pub mod definition;
pub mod expr;
mod history;
mod journal;
pub mod machine;
mod service;
mod versions;

pub use self::core::{Decision, Refused, Started};
pub use definition::Definition;
pub use journal::JournalError;
pub use service::{Handle, Intake, ListFilter, Options, Parts, Service, StartError, Summary};
