//! Replays a partition for a state that is the fold of its records.
//!
//! The state is correct only if every record is applied, so the replay fails at an unreadable batch or record and names
//! its offset.

use std::fmt;

use crate::batch::{Batches, Decompressor, Record};
use crate::{Isolation, Offset, Partition, ReadError, TopicPartition};

/// Size of one read.
const READ_BYTES: usize = 1 << 20;

/// Why a replay failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("`{topic_partition}` holds a batch at or after {offset} that cannot be read: {reason}")]
    Batch {
        topic_partition: TopicPartition,
        offset: Offset,
        reason: String,
    },
    #[error("`{topic_partition}` holds a record at {offset} that cannot be understood: {reason}")]
    Record {
        topic_partition: TopicPartition,
        offset: Offset,
        reason: String,
    },
}

/// Calls `each` with every record present at the call, committed or not, in order; returns their size in bytes. Markers
/// of transactions are not records. A batch that unpacks to more than `batch_bytes_max` is an error.
pub async fn replay<E: fmt::Display>(
    partition: &dyn Partition,
    batch_bytes_max: usize,
    mut each: impl FnMut(&Record<'_>) -> Result<(), E>,
) -> Result<u64, ReplayError> {
    let bounds = partition.fetch_bounds().await?;
    let (mut next, end) = (bounds.start, bounds.end);
    let mut decompressor = Decompressor::new(batch_bytes_max);
    let mut bytes = 0;
    while next < end {
        let read = partition.read(next, READ_BYTES, Isolation::Uncommitted);
        let fetched = read.await?;
        let before = next;
        for piece in &fetched.pieces {
            bytes += piece.len() as u64;
            next = replay_piece(
                partition.topic_partition(),
                piece,
                next,
                &mut decompressor,
                &mut each,
            )?;
        }
        if next == before {
            // Compaction removed all records up to the end.
            break;
        }
    }
    Ok(bytes)
}

fn replay_piece<E: fmt::Display>(
    topic_partition: &TopicPartition,
    piece: &[u8],
    mut next: Offset,
    decompressor: &mut Decompressor,
    each: &mut impl FnMut(&Record<'_>) -> Result<(), E>,
) -> Result<Offset, ReplayError> {
    let broken = |offset, reason: &dyn fmt::Display| ReplayError::Batch {
        topic_partition: topic_partition.clone(),
        offset,
        reason: reason.to_string(),
    };
    for batch in Batches::new(piece) {
        let batch = batch.map_err(|error| broken(next, &error))?;
        let from = next;
        next = batch.header.next_offset();
        if batch.header.is_control() {
            continue;
        }
        let records = batch.records(decompressor);
        for record in records.map_err(|error| broken(from, &error))? {
            let record = record.map_err(|error| broken(from, &error))?;
            if record.offset < from {
                continue;
            }
            each(&record).map_err(|error| ReplayError::Record {
                topic_partition: topic_partition.clone(),
                offset: record.offset,
                reason: error.to_string(),
            })?;
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::NewRecord;
    use crate::testing::at_once;
    use crate::{HubName, HubSettings, HubSpec, Log, MemoryLog, Producer, TransactionMarker};

    #[test]
    fn every_record_counts_and_one_that_is_not_understood_is_named() {
        let log = MemoryLog::new(|| 0);
        let name = HubName::new("journal").unwrap();
        let (partitions, settings) = (1, HubSettings::default());
        let spec = HubSpec {
            name,
            partitions,
            settings,
        };
        at_once(log.create(spec)).unwrap();
        let partition = log.partition("journal", 0).unwrap();
        for texts in [&["a", "b"][..], &["c"]] {
            let record = |text: &&'static str| NewRecord {
                key: None,
                value: Some(text.as_bytes()),
                headers: &[],
            };
            let records: Vec<_> = texts.iter().map(record).collect();
            at_once(partition.append_records(&records)).unwrap();
        }
        let producer = Producer { id: 1, epoch: 0 };
        let marker = TransactionMarker::Commit;
        at_once(partition.append_marker(producer, marker)).unwrap();

        let mut seen = String::new();
        let taken = replay(&*partition, 1 << 20, |record| {
            seen += std::str::from_utf8(record.value.unwrap_or_default()).unwrap();
            Ok::<_, String>(())
        });
        assert_eq!(at_once(taken), Ok(partition.bounds().bytes));
        assert_eq!(seen, "abc");

        let refused = replay(&*partition, 1 << 20, |record| match record.offset {
            Offset(1) => Err("no such kind"),
            _ => Ok(()),
        });
        let error = at_once(refused).unwrap_err().to_string();
        let expected = "`journal/0` holds a record at 1 that cannot be understood: no such kind";
        assert_eq!(error, expected);
    }
}
