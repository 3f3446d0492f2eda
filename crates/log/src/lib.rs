//! The vocabulary of the log: records, batches, places and positions, and the traits behind which
//! the embedded hub and a Kafka cluster are interchangeable.
//!
//! Whatever must last in Highwater is a record on a partitioned log. A [`Log`] is a catalogue of
//! hubs; a [`Partition`] is one append-only sequence; [`Groups`] remembers who reads what and how
//! far; [`Transactions`] lets a producer write to several partitions at once or not at all. This
//! crate says what these things mean and knows nothing of who implements them.
//!
//! Batches are Kafka record batches of version 2, as they travel and as they are stored, so nobody
//! on the way from a producer's socket to a consumer's has to take one apart.
//!
//! ```
//! use highwater_log::batch::{Batch, Batches, Builder, NewRecord, Seal, Unpacker};
//! use highwater_log::{EnqueueTime, Offset};
//!
//! // A producer puts records together.
//! let mut builder = Builder::new();
//! for plate in ["KH 4711", "MZ 815"] {
//!     builder.push(&NewRecord {
//!         key: Some(b"booth-17"),
//!         value: Some(plate.as_bytes()),
//!         headers: &[],
//!     });
//! }
//! let sent = builder.seal(&Seal::default())?.to_bytes();
//!
//! // The log checks what it was sent, and gives it a place and a time.
//! let (mut batch, _rest) = Batch::parse(sent)?;
//! batch.stamp(Offset(40), EnqueueTime(1_700_000_000_000));
//! let stored = batch.to_bytes();
//!
//! // A reader finds it among others.
//! let mut unpacker = Unpacker::new(1 << 20);
//! let mut seen = Vec::new();
//! for batch in Batches::new(&stored) {
//!     for record in batch?.records(&mut unpacker)? {
//!         let record = record?;
//!         let value = String::from_utf8_lossy(record.value.unwrap_or_default());
//!         seen.push(format!("{}: {value}", record.offset));
//!     }
//! }
//! assert_eq!(seen, ["40: KH 4711", "41: MZ 815"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`MemoryLog`] is a log to test with.

pub mod batch;
mod catalogue;
mod group;
mod layer;
mod memory;
mod partition;
mod partitioner;
mod place;
pub mod producers;
mod replay;
mod transaction;

use std::future::Future;
use std::pin::Pin;

pub use catalogue::{AdminError, Cleanup, HubInfo, HubSettings, HubSpec, Log};
pub use group::{
    Commit, GroupError, GroupInfo, GroupState, Groups, Join, Joined, JoinedMember, Leaving,
    MemberInfo, Membership, OffsetStored, StoredOffset, SyncGroup, Synced,
};
pub use layer::{LogLayer, PartitionLayer};
pub use memory::{MemoryLog, Now};
pub use partition::{
    Aborted, AppendError, Appended, Bounds, Fetched, Isolation, Marker, Partition, ReadError,
};
pub use partitioner::{member_for_key, partition_for_key};
pub use place::{EnqueueTime, HubId, HubName, HubNameError, Offset, Place, Producer};
pub use replay::{ReplayError, replay};
pub use transaction::{InitProducer, TransactionError, TransactionRef, Transactions};

/// Work under way. Boxed, because the traits of this crate are used as trait objects; that is one
/// allocation for a batch, never one for an event.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;
