//! The Kafka protocol in front of a log. The test binary `remote` has the client.

mod common;
mod every_version;
mod hostile;
mod late_batches;
mod limits;
mod order;
mod security;
