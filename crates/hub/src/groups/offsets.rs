//! The committed offsets of a group, and the offsets that open transactions would commit.

use std::collections::BTreeMap;

use highwater_log::{HubId, OffsetAndMetadata, TopicPartition};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredOffset {
    pub(super) committed: OffsetAndMetadata,
    /// The hub it was committed for. A hub created later under the same name starts without offsets.
    pub(super) hub: HubId,
    /// When it was committed, in milliseconds since 1970.
    pub(super) time_ms: i64,
}

pub(super) type PartitionOffset = (TopicPartition, StoredOffset);

type OffsetMap = BTreeMap<TopicPartition, StoredOffset>;

/// Stored offsets are durable. Pending ones need not be durable yet, because no answer shows them.
#[derive(Debug, Default)]
pub(super) struct GroupOffsets {
    pub(super) stored: OffsetMap,
    /// By producer id.
    pub(super) pending: BTreeMap<i64, OffsetMap>,
}

impl GroupOffsets {
    pub(super) fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.pending.is_empty()
    }

    pub(super) fn is_pending(&self, partition: &TopicPartition) -> bool {
        (self.pending.values()).any(|pending| pending.contains_key(partition))
    }

    pub(super) fn add_pending(&mut self, producer: i64, offsets: &[PartitionOffset]) {
        let pending = self.pending.entry(producer).or_default();
        pending.extend(offsets.iter().cloned());
    }

    /// Removes pending offsets of a producer, except those that were replaced since.
    pub(super) fn remove_unchanged(&mut self, producer: i64, offsets: &[PartitionOffset]) {
        self.remove_pending(producer, |pending| {
            for (partition, offset) in offsets {
                if pending.get(partition) == Some(offset) {
                    pending.remove(partition);
                }
            }
        });
    }

    pub(super) fn remove_pending(&mut self, producer: i64, remove: impl FnOnce(&mut OffsetMap)) {
        if let Some(pending) = self.pending.get_mut(&producer) {
            remove(pending);
            if pending.is_empty() {
                self.pending.remove(&producer);
            }
        }
    }

    /// Partitions whose offset was committed before `before_ms` and is not pending in an open transaction.
    pub(super) fn older_than(&self, before_ms: i64) -> Vec<TopicPartition> {
        let old = |(partition, offset): &(&TopicPartition, &StoredOffset)| {
            offset.time_ms <= before_ms && !self.is_pending(partition)
        };
        let old = self.stored.iter().filter(old);
        old.map(|(partition, _)| partition.clone()).collect()
    }
}
