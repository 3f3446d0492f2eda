//! The compacted hub that holds the state of a coordinator.
//!
//! The name of a group or transactional id hashes to a partition, which orders its records. The state in memory is a
//! view of them, rebuilt at each start by reading them all; compaction keeps that short.

use std::ops::Range;
use std::sync::Arc;

use highwater_codec::DecodeError;
use highwater_log::batch::{NewRecord, Record};
use highwater_log::{
    AdminError, BoxFuture, CleanupPolicy, HubName, HubSettings, HubSpec, Log, Partition,
    ReplayError, TopicPartition, replay,
};

/// The largest batch on a coordinator's hub.
const BATCH_BYTES_MAX: u32 = 8 * 1024 * 1024;
/// A larger append is split into several batches.
const APPEND_BYTES_MAX: usize = BATCH_BYTES_MAX as usize / 2;

/// Why a coordinator cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("`{0}` cannot be created: {1}")]
    Create(HubName, AdminError),
    #[error("there is no partition `{0}`")]
    Missing(TopicPartition),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Keys and values to append together.
#[derive(Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    /// Start and end of each key, and end of its value.
    bounds: Vec<(usize, usize, Option<usize>)>,
}

impl Entries {
    pub(crate) fn put(&mut self, key: impl FnOnce(&mut Vec<u8>), value: impl FnOnce(&mut Vec<u8>)) {
        self.remove(key);
        value(&mut self.bytes);
        if let Some(last) = self.bounds.last_mut() {
            last.2 = Some(self.bytes.len());
        }
    }

    /// Adds a tombstone, which removes the key.
    pub(crate) fn remove(&mut self, key: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        key(&mut self.bytes);
        self.bounds.push((start, self.bytes.len(), None));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    fn records(&self) -> Vec<NewRecord<'_>> {
        let slice = |range: Range<usize>| &self.bytes[range];
        let record = |&(start, middle, end): &(usize, usize, Option<usize>)| NewRecord {
            key: Some(slice(start..middle)),
            value: end.map(|end| slice(middle..end)),
            headers: &[],
        };
        self.bounds.iter().map(record).collect()
    }
}

pub(crate) struct Journal {
    partitions: Vec<Arc<dyn Partition>>,
}

impl Journal {
    /// Opens the hub and calls `each` with all its records, partition by partition.
    pub(crate) async fn load(
        log: &dyn Log,
        hub: &str,
        count: u32,
        each: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), DecodeError>,
    ) -> Result<Journal, JournalError> {
        let journal = Journal::open(log, hub, count).await?;
        journal.replay(each).await?;
        Ok(journal)
    }

    /// Creates the hub if it is missing. An existing one keeps its number of partitions, which determines the
    /// partition of every name.
    async fn open(log: &dyn Log, hub: &str, count: u32) -> Result<Journal, JournalError> {
        let name = HubName::new(hub).expect("the names of internal hubs are valid");
        if log.hub(hub).is_none() {
            let spec = HubSpec {
                name: name.clone(),
                partitions: count,
                settings: settings(),
            };
            match log.create(spec).await {
                Ok(_) | Err(AdminError::Exists(_)) => {}
                Err(error) => return Err(JournalError::Create(name, error)),
            }
        }
        let count = log.hub(hub).map_or(0, |info| info.partitions);
        let partition = |partition| {
            let topic_partition = TopicPartition {
                hub: name.clone(),
                partition,
            };
            let found = log.partition(hub, partition);
            found.ok_or(JournalError::Missing(topic_partition))
        };
        let partitions = (0..count.max(1)).map(partition);
        Ok(Journal {
            partitions: partitions.collect::<Result<_, _>>()?,
        })
    }

    /// The order is fixed by the call. Completes when all records are durable.
    pub(crate) fn append(&self, owner: &str, entries: &Entries) -> BoxFuture<Result<(), String>> {
        let partition = self.partition_of(owner);
        let records = entries.records();
        let appends: Vec<_> = (chunks(&records).into_iter())
            .map(|chunk| partition.append_records(chunk))
            .collect();
        Box::pin(async move {
            for append in appends {
                append.await.map_err(|error| error.to_string())?;
            }
            Ok(())
        })
    }

    fn partition_of(&self, owner: &str) -> &Arc<dyn Partition> {
        &self.partitions[(fnv1a(owner) % self.partitions.len() as u64) as usize]
    }

    async fn replay(
        &self,
        mut each: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), DecodeError>,
    ) -> Result<(), JournalError> {
        let mut each = |record: &Record<'_>| match record.key {
            Some(key) => each(key, record.value),
            None => Ok(()),
        };
        for partition in &self.partitions {
            replay(&**partition, BATCH_BYTES_MAX as usize, &mut each).await?;
        }
        Ok(())
    }
}

fn settings() -> HubSettings {
    HubSettings {
        cleanup: CleanupPolicy::Compact,
        retention: None,
        retention_bytes: None,
        batch_bytes_max: BATCH_BYTES_MAX,
        ..HubSettings::default()
    }
}

fn chunks<'a, 'b>(records: &'b [NewRecord<'a>]) -> Vec<&'b [NewRecord<'a>]> {
    let size = |record: &NewRecord<'_>| {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        32 + length(record.key) + length(record.value)
    };
    let (mut chunks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, record) in records.iter().enumerate() {
        if bytes + size(record) > APPEND_BYTES_MAX && index > start {
            chunks.push(&records[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size(record);
    }
    chunks.push(&records[start..]);
    chunks
}

/// FNV-1a. It determines the partition of a name on the disk, so it must never change.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_hash_is_the_published_one() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn an_append_is_split_only_if_it_is_too_large_for_a_batch() {
        let value = vec![0; APPEND_BYTES_MAX / 2];
        let record = NewRecord {
            key: None,
            value: Some(&value),
            headers: &[],
        };
        let lengths = |count| -> Vec<usize> {
            let records = vec![record; count];
            chunks(&records).iter().map(|chunk| chunk.len()).collect()
        };
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(3), [1, 1, 1]);
        let records = vec![
            NewRecord {
                value: None,
                ..record
            };
            1000
        ];
        assert_eq!(chunks(&records).len(), 1);
    }
}
