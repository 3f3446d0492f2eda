//! Reads a partition up to its current end.

use std::ops::Range;

use highwater_log::batch::{BatchError, Batches, CorruptBatch, Decompressor, Record};
use highwater_log::{
    AdminError, AppendError, Isolation, Offset, Partition, ReadError, TopicPartition,
};

use super::RecordError;

/// Why the journal could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("the journal is damaged: {0}")]
    Broken(#[from] CorruptBatch),
    #[error("the journal is damaged: {0}")]
    Batch(#[from] BatchError),
    #[error("record {offset} of {partition} cannot be read: {error}")]
    Record {
        partition: TopicPartition,
        offset: Offset,
        error: RecordError,
    },
    #[error("hub {0} does not exist")]
    NoHub(String),
}

const READ_BYTES: usize = 4 << 20;
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Calls `take` with every record from `from` on and returns the next offset.
pub(crate) async fn read_from(
    partition: &dyn Partition,
    from: Offset,
    take: impl FnMut(&Record<'_>) -> Result<(), JournalError>,
) -> Result<Offset, JournalError> {
    read_range(partition, from..Offset(i64::MAX), take).await
}

/// Calls `take` with every record of the range and returns the next offset.
pub(crate) async fn read_range(
    partition: &dyn Partition,
    range: Range<Offset>,
    mut take: impl FnMut(&Record<'_>) -> Result<(), JournalError>,
) -> Result<Offset, JournalError> {
    let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
    let mut next = range.start.max(partition.bounds().start);
    loop {
        if next >= range.end {
            return Ok(next);
        }
        let read = partition.read(next, READ_BYTES, Isolation::Uncommitted);
        let fetched = match read.await {
            // Retention has moved it meanwhile.
            Err(ReadError::OutOfRange { start, .. }) if next < start => {
                next = start;
                continue;
            }
            fetched => fetched?,
        };
        if fetched.pieces.is_empty() {
            return Ok(next);
        }
        for piece in &fetched.pieces {
            for batch in Batches::new(piece) {
                let batch = batch?;
                if batch.header.is_control() {
                    // A claim of the journal on a cluster leaves a marker.
                    next = next.max(batch.header.next_offset());
                    continue;
                }
                for record in batch.records(&mut decompressor)? {
                    let record = record?;
                    if record.offset >= next && record.offset < range.end {
                        take(&record)?;
                    }
                }
                next = next.max(batch.header.next_offset());
                if next >= range.end {
                    return Ok(next);
                }
            }
        }
    }
}

pub(crate) async fn read_all(
    partition: &dyn Partition,
    take: impl FnMut(&Record<'_>) -> Result<(), JournalError>,
) -> Result<Offset, JournalError> {
    read_from(partition, Offset(0), take).await
}
