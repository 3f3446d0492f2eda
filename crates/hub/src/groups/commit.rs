//! Storing positions, for good or for the case that a transaction commits, and taking them away.

use std::sync::Arc;

use highwater_log::{
    CommittedOffset, GroupError, GroupState, Membership, OffsetAndMetadata, OffsetCommit,
    TopicPartition, TransactionMarker,
};
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, LockedGroup};
use super::group_entry::GroupChange;
use super::positions::{PartitionPosition, Position};
use super::{record, subscription};
use crate::coordinator::journal::Entries;

/// Ready when the change is durable and counts.
pub(super) type ChangeReceiver = oneshot::Receiver<Result<(), GroupError>>;

pub(super) async fn wait(done: ChangeReceiver) -> Result<(), GroupError> {
    done.await.unwrap_or(Err(GroupError::Loading))
}

impl Coordinator {
    pub fn commit(self: &Arc<Self>, commit: OffsetCommit) -> Result<ChangeReceiver, GroupError> {
        self.change_as_member(commit, None)
    }

    /// Positions that count when the producer's transaction commits. Takes its place in the log at
    /// the call, before any [`Coordinator::resolve`] that follows.
    pub fn pend(
        self: &Arc<Self>,
        producer: i64,
        commit: OffsetCommit,
    ) -> Result<ChangeReceiver, GroupError> {
        self.change_as_member(commit, Some(producer))
    }

    fn change_as_member(
        self: &Arc<Self>,
        commit: OffsetCommit,
        producer: Option<i64>,
    ) -> Result<ChangeReceiver, GroupError> {
        self.journal()?;
        let who = commit.member;
        let positions = self.locate(commit.offsets)?;
        let change = |locked: &mut LockedGroup<'_>| {
            (locked.entry.group).check_commit(&who, producer.is_some(), locked.now)?;
            Ok(match producer {
                None => locked.store(positions),
                Some(producer) => locked.pend(producer, positions),
            })
        };
        if who.generation < 0 {
            return self.with_group_or_new(&who.group, change)?;
        }
        // Nobody has heard of the group, so of no generation either.
        let stale = || Err(stale_generation(&who));
        self.with_group(&who.group, change)?.unwrap_or_else(stale)
    }

    /// Which hubs are meant, so that a hub made later under the same name starts anew.
    fn locate(
        &self,
        offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
    ) -> Result<Vec<PartitionPosition>, GroupError> {
        let (time_ms, max) = (self.now_ms(), self.options.metadata_bytes_max);
        let locate = |(topic_partition, stored): (TopicPartition, OffsetAndMetadata)| {
            let bytes = stored.metadata.len();
            if bytes > max {
                return Err(GroupError::MetadataTooLarge { bytes, max });
            }
            let hub = self.log.hub(topic_partition.hub.as_str());
            match hub.filter(|hub| topic_partition.partition < hub.partitions) {
                None => Err(GroupError::UnknownPartition(topic_partition)),
                Some(hub) => {
                    let hub = hub.id;
                    Ok((
                        topic_partition,
                        Position {
                            stored,
                            hub,
                            time_ms,
                        },
                    ))
                }
            }
        };
        offsets.into_iter().map(locate).collect()
    }

    /// The end of a producer's transaction: what it left pending counts now, or never.
    pub fn resolve(
        self: &Arc<Self>,
        group: &str,
        producer: i64,
        marker: TransactionMarker,
    ) -> Result<Option<ChangeReceiver>, GroupError> {
        let resolve = |locked: &mut LockedGroup<'_>| locked.resolve(producer, marker);
        Ok(self.with_group(group, resolve)?.flatten())
    }

    pub fn committed(
        self: &Arc<Self>,
        group: &str,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let unknown = topic_partitions.clone().unwrap_or_default();
        let look = |locked: &mut LockedGroup<'_>| locked.look_up(topic_partitions, stable);
        let nothing = || {
            Ok(unknown
                .into_iter()
                .map(|topic_partition| (topic_partition, None))
                .collect())
        };
        self.with_group(group, look)?.unwrap_or_else(nothing)
    }

    pub fn forget(
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

    pub fn delete(self: &Arc<Self>, group: &str) -> Result<ChangeReceiver, GroupError> {
        let delete = |locked: &mut LockedGroup<'_>| {
            // A transaction under way would bring the group back.
            let used = !locked.entry.group.is_idle() || !locked.entry.positions.pending.is_empty();
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
    fn store(&mut self, positions: Vec<PartitionPosition>) -> ChangeReceiver {
        let mut entries = Entries::default();
        let group = &self.entry.name;
        for (topic_partition, position) in &positions {
            entries.put(
                |out| record::position_key(out, group, topic_partition),
                |out| record::put_position(out, position),
            );
        }
        self.change(&entries, GroupChange::Store(positions))
    }

    fn pend(&mut self, producer: i64, positions: Vec<PartitionPosition>) -> ChangeReceiver {
        let mut entries = Entries::default();
        let group = &self.entry.name;
        for (topic_partition, position) in &positions {
            entries.put(
                |out| record::pending_key(out, group, producer, topic_partition),
                |out| record::put_position(out, position),
            );
        }
        self.entry.positions.pend(producer, &positions);
        self.change(&entries, GroupChange::Pend(producer, positions))
    }

    /// `None` if there is nothing to do.
    fn resolve(&mut self, producer: i64, marker: TransactionMarker) -> Option<ChangeReceiver> {
        let pending = self.entry.pending_of(producer);
        if pending.is_empty() {
            return None;
        }
        let mut entries = Entries::default();
        let group = &self.entry.name;
        for (topic_partition, position) in &pending {
            if marker == TransactionMarker::Commit {
                entries.put(
                    |out| record::position_key(out, group, topic_partition),
                    |out| record::put_position(out, position),
                );
            }
        }
        for (topic_partition, _) in &pending {
            entries.remove(|out| record::pending_key(out, group, producer, topic_partition));
        }
        Some(self.change(&entries, GroupChange::Resolve(producer, pending, marker)))
    }

    pub fn forget(&mut self, topic_partitions: Vec<TopicPartition>) -> ChangeReceiver {
        let mut entries = Entries::default();
        let group = &self.entry.name;
        for topic_partition in &topic_partitions {
            entries.remove(|out| record::position_key(out, group, topic_partition));
        }
        self.change(&entries, GroupChange::Forget(topic_partitions))
    }

    pub fn delete(&mut self) -> ChangeReceiver {
        let mut entries = Entries::default();
        let group = &self.entry.name;
        for topic_partition in self.entry.topic_partitions() {
            entries.remove(|out| record::position_key(out, group, topic_partition));
        }
        entries.remove(|out| record::group_key(out, group));
        self.entry.closing = true;
        self.change(&entries, GroupChange::Delete)
    }

    fn change(&mut self, entries: &Entries, change_kind: GroupChange) -> ChangeReceiver {
        let (answer, done) = oneshot::channel();
        if entries.is_empty() {
            let _ = answer.send(Ok(()));
            return done;
        }
        self.append(entries, change_kind, Some(answer));
        done
    }

    fn look_up(
        &self,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let positions = &self.entry.positions;
        let all = || positions.stored.keys().cloned().collect();
        let every = topic_partitions.is_none();
        let topic_partitions = topic_partitions.unwrap_or_else(all);
        if stable
            && topic_partitions
                .iter()
                .any(|topic_partition| positions.is_pending(topic_partition))
        {
            return Err(GroupError::Unstable);
        }
        let look_up = |topic_partition: TopicPartition| {
            let hub = self
                .coordinator
                .log
                .hub(topic_partition.hub.as_str())
                .map(|hub| hub.id);
            let position = positions.stored.get(&topic_partition);
            let current = position.filter(|position| Some(position.hub) == hub);
            (
                topic_partition,
                current.map(|position| position.stored.clone()),
            )
        };
        let found = topic_partitions.into_iter().map(look_up);
        Ok(found
            .filter(|(_, stored)| !every || stored.is_some())
            .collect())
    }

    /// Whether a member may be reading one of these places now.
    fn uses(&self, topic_partitions: &[TopicPartition]) -> bool {
        let info = self.entry.group.info();
        info.state != GroupState::Empty
            && info.members.iter().any(|member| {
                let may_use = |topic_partition: &TopicPartition| {
                    subscription::may_include(&member.metadata, topic_partition.hub.as_str())
                };
                topic_partitions.iter().any(may_use)
            })
    }
}

fn stale_generation(who: &Membership) -> GroupError {
    GroupError::IllegalGeneration {
        requested: who.generation,
        current: 0,
    }
}
