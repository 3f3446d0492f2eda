//! Storing positions, for good or for the case that a transaction commits, and taking them away.

use std::sync::Arc;

use highwater_log::{
    CommittedOffset, GroupError, GroupState, Membership, OffsetAndMetadata, OffsetCommit,
    TopicPartition, TransactionMarker,
};
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, Visit};
use super::positions::{Placed, Position};
use super::room::What;
use super::{record, subscription};
use crate::coordinator::journal::Entries;

/// Ready when the change is durable and counts.
pub(super) type Done = oneshot::Receiver<Result<(), GroupError>>;

pub(super) async fn wait(done: Done) -> Result<(), GroupError> {
    done.await.unwrap_or(Err(GroupError::Loading))
}

impl Coordinator {
    pub fn commit(self: &Arc<Self>, commit: OffsetCommit) -> Result<Done, GroupError> {
        self.change_as_member(commit, None)
    }

    /// Positions that count when the producer's transaction commits. Takes its place in the log at
    /// the call, before any [`Coordinator::resolve`] that follows.
    pub fn pend(self: &Arc<Self>, producer: i64, commit: OffsetCommit) -> Result<Done, GroupError> {
        self.change_as_member(commit, Some(producer))
    }

    fn change_as_member(
        self: &Arc<Self>,
        commit: OffsetCommit,
        producer: Option<i64>,
    ) -> Result<Done, GroupError> {
        self.journal()?;
        let who = commit.member;
        let positions = self.locate(commit.offsets)?;
        let change = |visit: &mut Visit<'_>| {
            (visit.room.group).check_commit(&who, producer.is_some(), visit.now)?;
            Ok(match producer {
                None => visit.store(positions),
                Some(producer) => visit.pend(producer, positions),
            })
        };
        if who.generation < 0 {
            return self.visit_or_make(&who.group, change)?;
        }
        // Nobody has heard of the group, so of no generation either.
        let stale = || Err(stale_generation(&who));
        self.visit(&who.group, change)?.unwrap_or_else(stale)
    }

    /// Which hubs are meant, so that a hub made later under the same name starts anew.
    fn locate(
        &self,
        offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
    ) -> Result<Vec<Placed>, GroupError> {
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
    ) -> Result<Option<Done>, GroupError> {
        let resolve = |visit: &mut Visit<'_>| visit.resolve(producer, marker);
        Ok(self.visit(group, resolve)?.flatten())
    }

    pub fn committed(
        self: &Arc<Self>,
        group: &str,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let unknown = topic_partitions.clone().unwrap_or_default();
        let look = |visit: &mut Visit<'_>| visit.look_up(topic_partitions, stable);
        let nothing = || {
            Ok(unknown
                .into_iter()
                .map(|topic_partition| (topic_partition, None))
                .collect())
        };
        self.visit(group, look)?.unwrap_or_else(nothing)
    }

    pub fn forget(
        self: &Arc<Self>,
        group: &str,
        topic_partitions: Vec<TopicPartition>,
    ) -> Result<Done, GroupError> {
        let forget = |visit: &mut Visit<'_>| match visit.uses(&topic_partitions) {
            true => Err(GroupError::Subscribed),
            false => Ok(visit.forget(topic_partitions)),
        };
        self.visit(group, forget)?
            .unwrap_or(Err(GroupError::NotFound))
    }

    pub fn delete(self: &Arc<Self>, group: &str) -> Result<Done, GroupError> {
        let delete = |visit: &mut Visit<'_>| {
            // A transaction under way would bring the group back.
            let used = !visit.room.group.is_idle() || !visit.room.positions.pending.is_empty();
            match used {
                true => Err(GroupError::NotEmpty),
                false => Ok(visit.delete()),
            }
        };
        self.visit(group, delete)?
            .unwrap_or(Err(GroupError::NotFound))
    }
}

impl Visit<'_> {
    fn store(&mut self, positions: Vec<Placed>) -> Done {
        let mut entries = Entries::default();
        let group = &self.room.name;
        for (topic_partition, position) in &positions {
            entries.put(
                |out| record::position_key(out, group, topic_partition),
                |out| record::put_position(out, position),
            );
        }
        self.change(&entries, What::Store(positions))
    }

    fn pend(&mut self, producer: i64, positions: Vec<Placed>) -> Done {
        let mut entries = Entries::default();
        let group = &self.room.name;
        for (topic_partition, position) in &positions {
            entries.put(
                |out| record::pending_key(out, group, producer, topic_partition),
                |out| record::put_position(out, position),
            );
        }
        self.room.positions.pend(producer, &positions);
        self.change(&entries, What::Pend(producer, positions))
    }

    /// `None` if there is nothing to do.
    fn resolve(&mut self, producer: i64, marker: TransactionMarker) -> Option<Done> {
        let pending = self.room.pending_of(producer);
        if pending.is_empty() {
            return None;
        }
        let mut entries = Entries::default();
        let group = &self.room.name;
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
        Some(self.change(&entries, What::Resolve(producer, pending, marker)))
    }

    pub fn forget(&mut self, topic_partitions: Vec<TopicPartition>) -> Done {
        let mut entries = Entries::default();
        let group = &self.room.name;
        for topic_partition in &topic_partitions {
            entries.remove(|out| record::position_key(out, group, topic_partition));
        }
        self.change(&entries, What::Forget(topic_partitions))
    }

    pub fn delete(&mut self) -> Done {
        let mut entries = Entries::default();
        let group = &self.room.name;
        for topic_partition in self.room.topic_partitions() {
            entries.remove(|out| record::position_key(out, group, topic_partition));
        }
        entries.remove(|out| record::group_key(out, group));
        self.room.closing = true;
        self.change(&entries, What::Delete)
    }

    fn change(&mut self, entries: &Entries, what: What) -> Done {
        let (answer, done) = oneshot::channel();
        if entries.is_empty() {
            let _ = answer.send(Ok(()));
            return done;
        }
        self.append(entries, what, Some(answer));
        done
    }

    fn look_up(
        &self,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let positions = &self.room.positions;
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
        let info = self.room.group.info();
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
