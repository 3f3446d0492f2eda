//! The hub that a queue is written on: one partition of its own, whose records are events.
//!
//! Batches are numbered as those of an idempotent producer. So when one is turned away (the disk is
//! full), the log refuses those that were sent after it, and no event is ever written that stands on
//! one that is not there.

use std::sync::Arc;

use bytes::Bytes;
use highwater_codec::DecodeError;
use highwater_log::batch::{Builder, NewRecord, Record, Seal};
use highwater_log::{
    AdminError, AppendError, Appended, Cleanup, HubName, HubSettings, HubSpec, Isolation, Log,
    Offset, Partition, Pending, Place, Producer, ReadError, ReplayError, replay,
};

use crate::codec;
use crate::machine::{Event, Machine};

/// In front of the name of a queue.
pub const PREFIX: &str = "__queue.";

/// The largest batch. Whatever one request says is one batch, so that it counts whole or not at all.
const BATCH_BYTES_MAX: u32 = 32 << 20;

/// Why a queue could not be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("`{0}` is not there")]
    Missing(Place),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

pub struct Journal {
    partition: Arc<dyn Partition>,
    builder: Builder,
    record: Vec<u8>,
    producer: Producer,
    sequence: i32,
    /// Since the point up to which everything has been said again.
    pub bytes: u64,
}

/// Makes the hub of a queue.
pub async fn create(log: &dyn Log, hub: HubName) -> Result<(), AdminError> {
    let settings = HubSettings {
        cleanup: Cleanup::Delete,
        retention: None,
        retention_bytes: None,
        batch_bytes_max: BATCH_BYTES_MAX,
    };
    let spec = HubSpec {
        name: hub,
        partitions: 1,
        settings,
    };
    log.create(spec).await.map(drop)
}

impl Journal {
    /// `producer` must be one that was never used before.
    pub fn open(log: &dyn Log, hub: &HubName, producer: i64) -> Result<Journal, JournalError> {
        let missing = || {
            JournalError::Missing(Place {
                hub: hub.clone(),
                partition: 0,
            })
        };
        Ok(Journal {
            partition: log.partition(hub.as_str(), 0).ok_or_else(missing)?,
            builder: Builder::new(),
            record: Vec::new(),
            producer: Producer {
                id: producer,
                epoch: 0,
            },
            sequence: 0,
            bytes: 0,
        })
    }

    /// What is to be in the next batch.
    pub fn push(&mut self, event: &Event) {
        self.record.clear();
        codec::write(event, &mut self.record);
        self.builder.push(&NewRecord {
            key: None,
            value: Some(&self.record),
            headers: &[],
        });
    }

    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// Appends what was pushed, which happened at `now_ms`.
    pub fn append(&mut self, now_ms: i64) -> Pending<Result<Appended, AppendError>> {
        let count = self.builder.count();
        self.bytes += self.builder.size() as u64;
        let batch = self.builder.seal(&Seal {
            timestamp: Some(now_ms),
            producer: Some((self.producer, self.sequence)),
            ..Seal::default()
        });
        self.sequence = self.sequence.wrapping_add(count) & i32::MAX;
        match batch {
            Ok(batch) => self.partition.append(batch),
            Err(error) => Box::pin(std::future::ready(Err(error.into()))),
        }
    }

    /// Goes on under another name after an append has failed.
    pub fn restart(&mut self, producer: i64) {
        (self.producer.id, self.sequence) = (producer, 0);
    }

    pub fn trim(&self, before: Offset) -> Pending<Result<Offset, ReadError>> {
        self.partition.trim(before)
    }

    /// The queue that the journal adds up to.
    pub async fn replay(&mut self) -> Result<Machine, JournalError> {
        let mut machine = Machine::new();
        let add = |record: &Record<'_>| {
            let bytes = Bytes::copy_from_slice(record.value.unwrap_or_default());
            let event = codec::read(&bytes)?;
            machine.apply(record.created, &event);
            Ok::<_, DecodeError>(())
        };
        let end = self.partition.bounds().end;
        self.bytes = replay(&*self.partition, BATCH_BYTES_MAX as usize, add).await?;
        // What was damaged lies behind what can be read, and a read there says so. A queue that has lost
        // messages must not look like one that has none.
        let behind = self.partition.read(end, 1, Isolation::Uncommitted).await;
        behind.map_err(ReplayError::Read)?;
        machine.reset_totals();
        Ok(machine)
    }
}
