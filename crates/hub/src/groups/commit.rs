//! Committing offsets, directly or in a transaction, and deleting them.

use std::sync::Arc;

use highwater_log::{
    CommittedOffset, GroupError, Membership, OffsetAndMetadata, OffsetCommit, TopicPartition,
    TransactionMarker,
};
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, LockedGroup};
use super::group_entry::GroupChange;
use super::offsets::{PartitionOffset, StoredOffset};
use super::record;
use crate::coordinator::journal::Entries;

/// Receives the outcome when the change is durable and applied.
pub(super) type ChangeReceiver = oneshot::Receiver<Result<(), GroupError>>;

pub(super) async fn wait(done: ChangeReceiver) -> Result<(), GroupError> {
    done.await.unwrap_or(Err(GroupError::Loading))
}

impl Coordinator {
    /// Stores offsets; with a producer, they take effect when its transaction commits. The order is fixed by the call:
    /// a later [`Coordinator::resolve`] includes them.
    pub(super) fn commit(
        self: &Arc<Self>,
        commit: OffsetCommit,
        producer: Option<i64>,
    ) -> Result<ChangeReceiver, GroupError> {
        self.check_loaded()?;
        let who = commit.member;
        let offsets = self.locate(commit.offsets)?;
        let change = |locked: &mut LockedGroup<'_>| {
            (locked.entry.group).check_commit(&who, producer.is_some(), locked.now)?;
            Ok(match producer {
                None => locked.store(offsets),
                Some(producer) => locked.add_pending(producer, offsets),
            })
        };
        if who.generation < 0 {
            return self.with_group_or_new(&who.group, change)?;
        }
        // An unknown group has no generation.
        let stale = || Err(stale_generation(&who));
        self.with_group(&who.group, change)?.unwrap_or_else(stale)
    }

    /// Adds the ids of the hubs, so that a hub created later under the same name starts without offsets.
    fn locate(
        &self,
        offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
    ) -> Result<Vec<PartitionOffset>, GroupError> {
        let (time_ms, max) = (self.now_ms(), self.options.metadata_bytes_max);
        let locate = |(partition, committed): (TopicPartition, OffsetAndMetadata)| {
            let bytes = committed.metadata.len();
            if bytes > max {
                return Err(GroupError::MetadataTooLarge { bytes, max });
            }
            let hub = self.log.hub(partition.hub.as_str());
            let Some(hub) = hub.filter(|hub| partition.partition < hub.partitions) else {
                return Err(GroupError::UnknownPartition(partition));
            };
            let offset = StoredOffset {
                committed,
                hub: hub.id,
                time_ms,
            };
            Ok((partition, offset))
        };
        offsets.into_iter().map(locate).collect()
    }

    /// Ends a producer's transaction: commits or drops its pending offsets.
    pub(super) fn resolve(
        self: &Arc<Self>,
        group: &str,
        producer: i64,
        marker: TransactionMarker,
    ) -> Result<Option<ChangeReceiver>, GroupError> {
        let resolve = |locked: &mut LockedGroup<'_>| locked.resolve(producer, marker);
        Ok(self.with_group(group, resolve)?.flatten())
    }

    pub(super) fn committed(
        self: &Arc<Self>,
        group: &str,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let unknown = topic_partitions.clone().unwrap_or_default();
        let look = |locked: &mut LockedGroup<'_>| locked.look_up(topic_partitions, stable);
        let none = || Ok(unknown.into_iter().map(|one| (one, None)).collect());
        self.with_group(group, look)?.unwrap_or_else(none)
    }

    pub(super) fn forget(
        self: &Arc<Self>,
        group: &str,
        topic_partitions: Vec<TopicPartition>,
    ) -> Result<ChangeReceiver, GroupError> {
        let forget = |locked: &mut LockedGroup<'_>| match locked.uses(&topic_partitions) {
            true => Err(GroupError::Subscribed),
            false => Ok(locked.forget(topic_partitions)),
        };
        self.with_group(group, forget)?
            .unwrap_or(Err(GroupError::NotFound))
    }

    pub(super) fn delete(self: &Arc<Self>, group: &str) -> Result<ChangeReceiver, GroupError> {
        let delete = |locked: &mut LockedGroup<'_>| {
            // The end of an open transaction would create the group again.
            let used = !locked.entry.group.is_idle() || !locked.entry.offsets.pending.is_empty();
            match used {
                true => Err(GroupError::NotEmpty),
                false => Ok(locked.delete()),
            }
        };
        self.with_group(group, delete)?
            .unwrap_or(Err(GroupError::NotFound))
    }
}

impl LockedGroup<'_> {
    fn store(&mut self, offsets: Vec<PartitionOffset>) -> ChangeReceiver {
        let mut entries = Entries::default();
        let group = &self.entry.name;
        put_offsets(&mut entries, group, &offsets);
        self.change(&entries, GroupChange::Store(offsets))
    }

    fn add_pending(&mut self, producer: i64, offsets: Vec<PartitionOffset>) -> ChangeReceiver {
        let mut entries = Entries::default();
        let group = &self.entry.name;
        for (partition, offset) in &offsets {
            entries.put(
                |out| record::pending_key(out, group, producer, partition),
                |out| record::put_offset(out, offset),
            );
        }
        self.entry.offsets.add_pending(producer, &offsets);
        self.change(&entries, GroupChange::AddPending(producer, offsets))
    }

    /// `None` if no offset is pending.
    fn resolve(&mut self, producer: i64, marker: TransactionMarker) -> Option<ChangeReceiver> {
        let pending = self.entry.pending_of(producer);
        if pending.is_empty() {
            return None;
        }
        let mut entries = Entries::default();
        let group = &self.entry.name;
        if marker == TransactionMarker::Commit {
            put_offsets(&mut entries, group, &pending);
        }
        for (topic_partition, _) in &pending {
            entries.remove(|out| record::pending_key(out, group, producer, topic_partition));
        }
        Some(self.change(&entries, GroupChange::Resolve(producer, pending, marker)))
    }

    pub(super) fn forget(&mut self, topic_partitions: Vec<TopicPartition>) -> ChangeReceiver {
        let mut entries = Entries::default();
        let group = &self.entry.name;
        for topic_partition in &topic_partitions {
            entries.remove(|out| record::offset_key(out, group, topic_partition));
        }
        self.change(&entries, GroupChange::Forget(topic_partitions))
    }

    pub(super) fn delete(&mut self) -> ChangeReceiver {
        let mut entries = Entries::default();
        let group = &self.entry.name;
        for topic_partition in self.entry.topic_partitions() {
            entries.remove(|out| record::offset_key(out, group, topic_partition));
        }
        // It may have been of either protocol.
        entries.remove(|out| record::group_key(out, group));
        entries.remove(|out| record::consumer_group_key(out, group));
        for id in &self.entry.stale_members {
            entries.remove(|out| record::consumer_member_key(out, group, id));
        }
        self.entry.deleting = true;
        self.change(&entries, GroupChange::Delete)
    }

    fn change(&mut self, entries: &Entries, change: GroupChange) -> ChangeReceiver {
        let (responder, done) = oneshot::channel();
        if entries.is_empty() {
            let _ = responder.send(Ok(()));
            return done;
        }
        self.append(entries, change, Some(responder));
        done
    }

    fn look_up(
        &self,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let offsets = &self.entry.offsets;
        let all = || offsets.stored.keys().cloned().collect();
        let every = topic_partitions.is_none();
        let topic_partitions = topic_partitions.unwrap_or_else(all);
        if stable && topic_partitions.iter().any(|one| offsets.is_pending(one)) {
            return Err(GroupError::Unstable);
        }
        let look_up = |partition: TopicPartition| {
            let hub = self.coordinator.log.hub(partition.hub.as_str());
            let hub = hub.map(|hub| hub.id);
            let offset = offsets.stored.get(&partition);
            let current = offset.filter(|offset| Some(offset.hub) == hub);
            (partition, current.map(|offset| offset.committed.clone()))
        };
        let found = topic_partitions.into_iter().map(look_up);
        Ok(found
            .filter(|(_, committed)| !every || committed.is_some())
            .collect())
    }

    /// Whether a member may be subscribed to one of these partitions.
    fn uses(&self, topic_partitions: &[TopicPartition]) -> bool {
        let may_use = |hub: &TopicPartition| self.entry.group.may_use(hub.hub.as_str());
        topic_partitions.iter().any(may_use)
    }
}

fn put_offsets(entries: &mut Entries, group: &str, offsets: &[PartitionOffset]) {
    for (partition, offset) in offsets {
        entries.put(
            |out| record::offset_key(out, group, partition),
            |out| record::put_offset(out, offset),
        );
    }
}

fn stale_generation(who: &Membership) -> GroupError {
    GroupError::IllegalGeneration {
        requested: who.generation,
        current: 0,
    }
}
