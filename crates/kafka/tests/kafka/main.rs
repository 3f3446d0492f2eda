//! The Kafka protocol in front of a log. The test binary `remote` has the client.

mod admin;
mod common;
mod dynamic_settings;
mod every_version;
mod hostile;
mod keys;
mod late_batches;
mod limits;
mod markers;
mod order;
mod rights;
mod security;
mod telemetry;
mod timestamps;
mod topic_settings;
