//! How far a group has come in each place, and what open transactions would make of that.

use std::collections::BTreeMap;

use highwater_log::{HubId, OffsetAndMetadata, TopicPartition};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub stored: OffsetAndMetadata,
    /// The hub it was stored for. One of the same name made later starts anew.
    pub hub: HubId,
    /// When it was stored, in milliseconds since 1970.
    pub time_ms: i64,
}

pub(super) type PartitionPosition = (TopicPartition, Position);

/// Stored positions are durable; pending ones may still be on their way to the disk, which does no
/// harm, because nobody is shown them.
#[derive(Debug, Default)]
pub(super) struct Positions {
    pub stored: BTreeMap<TopicPartition, Position>,
    /// By producer id.
    pub pending: BTreeMap<i64, BTreeMap<TopicPartition, Position>>,
}

impl Positions {
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.pending.is_empty()
    }

    pub fn is_pending(&self, topic_partition: &TopicPartition) -> bool {
        (self.pending.values())
            .any(|topic_partitions| topic_partitions.contains_key(topic_partition))
    }

    pub fn pend(&mut self, producer: i64, positions: &[PartitionPosition]) {
        let pending = self.pending.entry(producer).or_default();
        pending.extend(positions.iter().cloned());
    }

    /// Takes pending positions away, unless others have taken their place.
    pub fn unpend(&mut self, producer: i64, positions: &[PartitionPosition]) {
        let Some(pending) = self.pending.get_mut(&producer) else {
            return;
        };
        for (topic_partition, position) in positions {
            if pending.get(topic_partition) == Some(position) {
                pending.remove(topic_partition);
            }
        }
        if pending.is_empty() {
            self.pending.remove(&producer);
        }
    }

    /// The record of one pending position was taken away.
    pub fn settle(&mut self, producer: i64, topic_partition: &TopicPartition) {
        if let Some(pending) = self.pending.get_mut(&producer) {
            pending.remove(topic_partition);
            if pending.is_empty() {
                self.pending.remove(&producer);
            }
        }
    }

    /// Places whose position was stored before `before_ms` and that no open transaction touches.
    pub fn older_than(&self, before_ms: i64) -> Vec<TopicPartition> {
        let old = |(topic_partition, position): &(&TopicPartition, &Position)| {
            position.time_ms <= before_ms && !self.is_pending(topic_partition)
        };
        let topic_partitions = self.stored.iter().filter(old);
        topic_partitions
            .map(|(topic_partition, _)| topic_partition.clone())
            .collect()
    }
}
