//! The vocabulary of the log: records, batches, offsets, and the traits that the embedded hub and a Kafka cluster
//! implement interchangeably.
//!
//! All durable state of Highwater is a record on a partitioned log. A [`Log`] is a catalogue of hubs; a [`Partition`]
//! is one append-only sequence; a [`GroupCoordinator`] assigns partitions to consumers and stores their offsets; a
//! [`TransactionCoordinator`] makes appends to several partitions atomic. This crate knows none of the implementations.
//!
//! Batches are Kafka record batches of version 2, on the wire and on the disk, so no batch is taken apart between a
//! producer's socket and a consumer's.
//!
//! ```
//! use highwater_log::batch::{Batch, Batches, BatchBuilder, NewRecord, BatchOptions, Decompressor};
//! use highwater_log::{EnqueueTime, Offset};
//!
//! // A producer builds a batch.
//! let mut builder = BatchBuilder::new();
//! for plate in ["KH 4711", "MZ 815"] {
//!     builder.push(&NewRecord {
//!         key: Some(b"booth-17"),
//!         value: Some(plate.as_bytes()),
//!         headers: &[],
//!     });
//! }
//! let sent = builder.build(&BatchOptions::default())?.to_bytes();
//!
//! // The log checks the batch and assigns its offset and enqueue time.
//! let (mut batch, _rest) = Batch::parse(sent)?;
//! batch.stamp(Offset(40), EnqueueTime(1_700_000_000_000));
//! let stored = batch.to_bytes();
//!
//! // A reader walks over stored batches.
//! let mut decompressor = Decompressor::new(1 << 20);
//! let mut seen = Vec::new();
//! for batch in Batches::new(&stored) {
//!     for record in batch?.records(&mut decompressor)? {
//!         let record = record?;
//!         let value = String::from_utf8_lossy(record.value.unwrap_or_default());
//!         seen.push(format!("{}: {value}", record.offset));
//!     }
//! }
//! assert_eq!(seen, ["40: KH 4711", "41: MZ 815"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`MemoryLog`] is a log for tests, and [`testing`] has doubles of it.

pub mod batch;
mod catalogue;
mod consumer;
mod group;
mod group_session;
mod ids;
mod layer;
mod memory;
mod partition;
mod partitioner;
pub mod producer_states;
mod replay;
pub mod testing;
mod transaction;

use std::future::Future;
use std::pin::Pin;

pub use catalogue::{
    AdminError, ClaimResult, CleanupPolicy, CompactionSettings, HubInfo, HubSettings, HubSpec, Log,
    SegmentSettings, SettingOrigin, TimestampSettings,
};
pub use consumer::{
    ConsumerGroupInfo, ConsumerHeartbeat, ConsumerHeartbeatResponse, ConsumerMemberInfo,
    HubPartitions, HubView,
};
pub use group::{
    CommittedOffset, GroupCoordinator, GroupError, GroupInfo, GroupState, GroupSummary,
    JoinRequest, JoinResponse, JoinResponseMember, MemberIdentity, MemberInfo, Membership,
    OffsetAndMetadata, OffsetCommit, SyncRequest, SyncResponse,
};
pub use group_session::GroupSession;
pub use ids::{EnqueueTime, HubId, HubName, HubNameError, Offset, Producer, TopicPartition};
pub use layer::{LogLayer, PartitionLayer};
pub use memory::{ClockFn, MemoryLog};
pub use partition::{
    AbortedTransaction, AppendError, AppendInfo, Bounds, FetchData, Isolation, Partition,
    ProducerInfo, ReadError, TimestampLookup, TransactionMarker,
};
pub use partitioner::{partition_for_key, shard_for_key};
pub use replay::{ReplayError, replay};
pub use transaction::{
    InitProducerRequest, TransactionCoordinator, TransactionError, TransactionInfo,
    TransactionPhase, TransactionRef,
};

/// A boxed future, because the traits of this crate are used as trait objects: one allocation for each batch, none for
/// an event.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
