//! A group with all that belongs to it: its members, its positions, who waits for an answer, and the
//! changes that are on their way to the disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use highwater_log::{GroupError, JoinResponse, SyncResponse, TopicPartition, TransactionMarker};
use tokio::sync::oneshot;

use super::machine::{AfterStore, Elapsed, Group, Ticket};
use super::positions::{PartitionPosition, Position, Positions};

pub(super) type Responder<T> = oneshot::Sender<Result<T, GroupError>>;

pub(super) struct GroupEntry {
    pub name: String,
    pub group: Group,
    pub positions: Positions,
    /// When the group came to be as it is, in milliseconds since 1970; 0 if it never formed.
    pub since_ms: i64,
    pub joins: BTreeMap<Ticket, Responder<JoinResponse>>,
    pub syncs: BTreeMap<Ticket, Responder<SyncResponse>>,
    /// When the queue of deadlines will name this group, if it will.
    pub woken_at: Option<Duration>,
    /// Being deleted: nothing can be asked of it until that has worked or failed.
    pub closing: bool,
    /// Deleted. Whoever still holds the room must look for another one.
    pub gone: bool,
    changes: VecDeque<Change>,
    changes_made: u64,
}

/// Something on its way to the disk.
struct Change {
    number: u64,
    change_kind: GroupChange,
    answer: Option<Responder<()>>,
    /// What became of it, once that is known.
    outcome: Option<Result<(), String>>,
}

pub(super) enum GroupChange {
    Group(AfterStore),
    Store(Vec<PartitionPosition>),
    Pend(i64, Vec<PartitionPosition>),
    /// The end of a producer's transaction, for what was pending then.
    Resolve(i64, Vec<PartitionPosition>, TransactionMarker),
    Forget(Vec<TopicPartition>),
    Delete,
}

impl GroupEntry {
    pub fn new(name: &str, group: Group) -> GroupEntry {
        GroupEntry {
            name: name.to_owned(),
            group,
            positions: Positions::default(),
            since_ms: 0,
            joins: BTreeMap::new(),
            syncs: BTreeMap::new(),
            woken_at: None,
            closing: false,
            gone: false,
            changes: VecDeque::new(),
            changes_made: 0,
        }
    }

    /// Nobody would miss it.
    pub fn is_vacant(&self) -> bool {
        self.is_quiet() && !self.group.was_formed() && self.positions.is_empty()
    }

    /// Without members and without changes under way.
    pub fn is_quiet(&self) -> bool {
        self.group.is_idle() && self.changes.is_empty() && !self.closing
    }

    /// Notes a change whose records have just taken their place in the log.
    pub fn begin(&mut self, change_kind: GroupChange, answer: Option<Responder<()>>) -> u64 {
        self.changes_made += 1;
        self.changes.push_back(Change {
            number: self.changes_made,
            change_kind,
            answer,
            outcome: None,
        });
        self.changes_made
    }

    /// Learns what became of a change. Changes count in the order of the log, so it may have to wait
    /// for those before it.
    pub fn finish(&mut self, number: u64, outcome: Result<(), String>, now: Elapsed) {
        if let Some(change) = self
            .changes
            .iter_mut()
            .find(|change| change.number == number)
        {
            change.outcome = Some(outcome);
        }
        while let Some((change, outcome)) = self.take_finished() {
            self.apply(change.change_kind, outcome.clone(), now);
            if let Some(answer) = change.answer {
                // Whoever asked may have hung up.
                let _ = answer.send(outcome.map_err(GroupError::Storage));
            }
        }
    }

    fn take_finished(&mut self) -> Option<(Change, Result<(), String>)> {
        let outcome = self.changes.front_mut()?.outcome.take()?;
        Some((self.changes.pop_front()?, outcome))
    }

    fn apply(&mut self, change_kind: GroupChange, outcome: Result<(), String>, now: Elapsed) {
        let stored = outcome.is_ok();
        match change_kind {
            GroupChange::Group(after) => self.group.stored(after, outcome, now),
            GroupChange::Store(positions) if stored => self.positions.stored.extend(positions),
            GroupChange::Pend(producer, positions) if !stored => {
                self.positions.unpend(producer, &positions);
            }
            GroupChange::Resolve(producer, pending, marker) if stored => {
                self.positions.unpend(producer, &pending);
                if marker == TransactionMarker::Commit {
                    self.positions.stored.extend(pending);
                }
            }
            GroupChange::Forget(topic_partitions) if stored => {
                for topic_partition in topic_partitions {
                    self.positions.stored.remove(&topic_partition);
                }
            }
            GroupChange::Delete => {
                self.closing = false;
                self.gone = stored;
            }
            GroupChange::Store(_)
            | GroupChange::Pend(..)
            | GroupChange::Resolve(..)
            | GroupChange::Forget(_) => {}
        }
    }

    /// Every place that has a position, or will have when what is under way is durable.
    pub fn topic_partitions(&self) -> BTreeSet<&TopicPartition> {
        let changes = self
            .changes
            .iter()
            .filter_map(|change| match &change.change_kind {
                GroupChange::Store(positions) | GroupChange::Resolve(_, positions, _) => {
                    Some(positions)
                }
                _ => None,
            });
        let coming = changes.flatten();
        let coming = coming.map(|(topic_partition, _)| topic_partition);
        self.positions.stored.keys().chain(coming).collect()
    }

    /// What a transaction of this producer would store.
    pub fn pending_of(&self, producer: i64) -> Vec<PartitionPosition> {
        let pending = self.positions.pending.get(&producer);
        let own = |(topic_partition, position): (&TopicPartition, &Position)| {
            (topic_partition.clone(), position.clone())
        };
        pending.into_iter().flatten().map(own).collect()
    }
}
