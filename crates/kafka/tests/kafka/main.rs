//! The Kafka protocol in front of a log. `remote` is the other binary: the client.

mod common;
mod every_version;
mod hostile;
mod late_batches;
mod order;
mod security;
