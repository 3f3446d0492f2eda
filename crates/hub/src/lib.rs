//! The embedded log: hubs and their partitions on the disk of this machine.
//!
//! A [`Hub`] is a folder with a catalogue and, for every partition, segments that hold batches
//! exactly as they travel. What is appended is answered when it is durable, and readers see what is
//! durable; batches that come in while the disk is busy share its next sync. After a crash a torn
//! end is cut and reported, and damage before it is an error that names file and byte.
//!
//! `storage` is the part that must not lose anything: plain, synchronous, and driven by a crash model
//! over the simulated disk of `highwater-env`. `partition` is the asynchronous face on it. [`groups`]
//! and [`transactions`] are state machines over any log, this one or another. This crate knows
//! nothing of Kafka's wire and nothing of SQL.

mod catalogue;
mod coordinator;
pub mod groups;
mod hub;
mod options;
mod partition;
mod pool;
mod status;
mod storage;
pub mod transactions;

pub use hub::{Hub, OpenError, Progress};
pub use options::{Durability, Options};
pub use status::{PartitionStatus, Status, Totals};
pub use storage::{Cut, Damage, Recovery};
