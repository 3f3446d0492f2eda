//! Reliable event handling over a log: no event is skipped or silently lost, and no bad event or slow neighbour
//! blocks the others.
//!
//! A pipeline begins with a [`PartitionSource`], continues with stages ([`Stage`]) and ends in [`run`], which stores
//! checkpoints. Stages pull from the stage before them, so a slow end slows the source down and no buffer grows
//! (back-pressure). A checkpoint never passes an event that is not finished: handled, filtered out, or stored as a
//! dead letter with its reasons. After a crash the next run begins at the checkpoint, so events are handled at least
//! once, and a handler detects repetitions by [`Event::id`].
//!
//! ```
//! use std::sync::Arc;
//! use highwater_env::RealClock;
//! use highwater_flow::{Failure, MemoryPositions, DeadLetterPartition, Options, Order, Sink, PartitionSource, Stage, run};
//! use highwater_log::batch::NewRecord;
//! use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog, Offset};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let log = MemoryLog::new(|| 1_700_000_000_000);
//! for name in ["tolls", "tolls-dead"] {
//!     let (name, settings) = (HubName::new(name)?, HubSettings::default());
//!     log.create(HubSpec { name, partitions: 1, settings }).await?;
//! }
//! let tolls = log.partition("tolls", 0).ok_or("it was just created")?;
//! let dead = log.partition("tolls-dead", 0).ok_or("it was just created")?;
//! for toll in ["350", "many", "0", "420"] {
//!     let (key, value, headers) = (Some(&b"booth-17"[..]), Some(toll.as_bytes()), &[][..]);
//!     tolls.append_records(&[NewRecord { key, value, headers }]).await?;
//! }
//!
//! let in_order = Options { order: Order::Key, ..Options::default() };
//! let pipeline = PartitionSource::new(tolls, Offset(0))
//!     .until(Offset(4))
//!     .try_map(|event| String::from_utf8_lossy(event.value().unwrap_or_default()).parse::<u32>())
//!     .filter(|cents| *cents > 0)
//!     .handle(in_order, async |delivery: highwater_flow::Delivery<u32>| {
//!         // Call a bank, say; a `Failure::transient` is retried.
//!         println!("{}: {} cents", delivery.event.id(), delivery.value);
//!         Ok::<_, Failure>(())
//!     });
//!
//! let positions = Arc::new(MemoryPositions::default());
//! let sink = Sink::new(positions, Arc::new(DeadLetterPartition(dead.clone())), Arc::new(RealClock::new()));
//! let summary = run(pipeline, sink, std::future::pending()).await?;
//!
//! assert_eq!((summary.handled, summary.filtered, summary.dead), (2, 1, 1));
//! assert_eq!(summary.next, Offset(4));
//! assert_eq!(dead.bounds().end, Offset(1), "`many` is there, with the reason");
//! # Ok(())
//! # }
//! ```
//!
//! [`Processor`] puts this together for a hub, a consumer group and a [`Handler`]: every partition that
//! is this instance's has a pipeline, which is started again when it fails. A [`Breaker`] in
//! [`Options::circuit`] stops deliveries to a handler that keeps failing, and [`Circuits`] keeps it on a
//! log that all instances read. `examples/processor.rs` has all of it.
//!
//! [`highwater_retry`] and [`circuit`] are the decisions behind it, as pure functions and state
//! machines that can be used alone. This crate knows no handler, SQL, HTTP
//! or hub.

mod batch_stage;
mod breaker;
pub mod circuit;
mod circuits;
mod dead_letter;
mod event;
mod group;
mod handle_stage;
mod offset_tracker;
mod ownership;
mod positions;
mod processor;
mod retry_context;
mod run;
mod scan;
mod source;
mod stage;

pub use breaker::{Breaker, OnExhausted, Permit};
pub use circuits::{CircuitStatus, CircuitTrip, Circuits};
pub use dead_letter::{
    DeadLetter, DeadLetterFilter, DeadLetterPage, DeadLetterPartition, DeadLetterSink,
    FailedAttempt, ReplayOutcome, StoredDeadLetter,
};
pub use event::{Delivery, Event, EventId, EventIdError};
pub use group::{AssignedPartition, Assignment, GroupMember, GroupTimeouts, ordinal};
pub use handle_stage::{Options, Order};
pub use offset_tracker::CheckpointInterval;
pub use ownership::{
    Directory, NodeInfo, NodeSlots, OwnershipMember, SLOTS, SlotHolder, SlotOwner, SlotSet, slot_of,
};
pub use positions::{GroupPositions, MemoryPositions, PositionStore};
pub use processor::{EventCheck, Handler, Processor, ProcessorStats, StartPosition};
pub use retry_context::Failure;
pub use run::{RunError, RunSummary, Sink, run};
pub use scan::scan;
pub use source::{PartitionSource, SourceError};
pub use stage::{Item, PipelineContext, Stage, StageOutput, StagePoll};
