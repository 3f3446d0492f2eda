//! The back ends over HTTP: the contract of each, what a repeat does, and that what was undone stays so.

mod backends;
mod checked;
mod events;
mod faults;
mod hub;
mod ingestion;
mod load;
mod support;
mod wire;
mod workflows;
