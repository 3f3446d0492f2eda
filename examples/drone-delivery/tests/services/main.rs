//! The back ends over HTTP: their contracts, idempotency, and that undone work stays undone.

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
