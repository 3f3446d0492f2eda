//! A group with its committed offsets, its pending responses, and the changes that are not durable yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use highwater_log::{GroupError, JoinResponse, SyncResponse, TopicPartition, TransactionMarker};
use tokio::sync::oneshot;

use super::machine::{AfterStore, Elapsed, Group, RequestId};
use super::offsets::{GroupOffsets, PartitionOffset, StoredOffset};

pub(super) type Responder<T> = oneshot::Sender<Result<T, GroupError>>;

pub(super) struct GroupEntry {
    pub name: String,
    pub group: Group,
    pub offsets: GroupOffsets,
    /// When the group last changed, in milliseconds since 1970; 0 if it never had a generation.
    pub since_ms: i64,
    pub joins: BTreeMap<RequestId, Responder<JoinResponse>>,
    pub syncs: BTreeMap<RequestId, Responder<SyncResponse>>,
    /// The deadline set for this group.
    pub wakeup_at: Option<Duration>,
    /// The deletion is being written: requests are refused until it succeeded or failed.
    pub deleting: bool,
    /// Deleted: a holder of this entry must look up the name again.
    pub removed: bool,
    changes: VecDeque<Change>,
    last_number: u64,
}

/// A change that is being written.
struct Change {
    number: u64,
    change: GroupChange,
    responder: Option<Responder<()>>,
    /// Set when the write has ended.
    outcome: Option<Result<(), String>>,
}

pub(super) enum GroupChange {
    Group(AfterStore),
    Store(Vec<PartitionOffset>),
    AddPending(i64, Vec<PartitionOffset>),
    /// The end of a producer's transaction, with the offsets that were pending.
    Resolve(i64, Vec<PartitionOffset>, TransactionMarker),
    Forget(Vec<TopicPartition>),
    Delete,
}

impl GroupEntry {
    pub(super) fn new(name: &str, group: Group) -> GroupEntry {
        GroupEntry {
            name: name.to_owned(),
            group,
            offsets: GroupOffsets::default(),
            since_ms: 0,
            joins: BTreeMap::new(),
            syncs: BTreeMap::new(),
            wakeup_at: None,
            deleting: false,
            removed: false,
            changes: VecDeque::new(),
            last_number: 0,
        }
    }

    /// Nothing of it is stored or in use.
    pub(super) fn is_vacant(&self) -> bool {
        self.is_quiet() && !self.group.was_formed() && self.offsets.is_empty()
    }

    /// Without members and without changes being written.
    pub(super) fn is_quiet(&self) -> bool {
        self.group.is_idle() && self.changes.is_empty() && !self.deleting
    }

    /// Adds a change whose records have just been appended; returns its number.
    pub(super) fn begin(&mut self, change: GroupChange, responder: Option<Responder<()>>) -> u64 {
        self.last_number += 1;
        self.changes.push_back(Change {
            number: self.last_number,
            change,
            responder,
            outcome: None,
        });
        self.last_number
    }

    /// Ends a change. Changes are applied in the order of the log, so it may wait for earlier ones.
    pub(super) fn finish(&mut self, number: u64, outcome: Result<(), String>, now: Elapsed) {
        if let Some(change) = self
            .changes
            .iter_mut()
            .find(|change| change.number == number)
        {
            change.outcome = Some(outcome);
        }
        while let Some((change, outcome)) = self.take_finished() {
            self.apply(change.change, outcome.clone(), now);
            if let Some(responder) = change.responder {
                // The receiver may have hung up.
                let _ = responder.send(outcome.map_err(GroupError::Storage));
            }
        }
    }

    fn take_finished(&mut self) -> Option<(Change, Result<(), String>)> {
        let outcome = self.changes.front_mut()?.outcome.take()?;
        Some((self.changes.pop_front()?, outcome))
    }

    fn apply(&mut self, change: GroupChange, outcome: Result<(), String>, now: Elapsed) {
        let stored = outcome.is_ok();
        match change {
            GroupChange::Group(after) => self.group.stored(after, outcome, now),
            GroupChange::Store(offsets) if stored => self.offsets.stored.extend(offsets),
            GroupChange::AddPending(producer, offsets) if !stored => {
                self.offsets.remove_unchanged(producer, &offsets);
            }
            GroupChange::Resolve(producer, pending, marker) if stored => {
                self.offsets.remove_unchanged(producer, &pending);
                if marker == TransactionMarker::Commit {
                    self.offsets.stored.extend(pending);
                }
            }
            GroupChange::Forget(topic_partitions) if stored => {
                for topic_partition in topic_partitions {
                    self.offsets.stored.remove(&topic_partition);
                }
            }
            GroupChange::Delete => {
                self.deleting = false;
                self.removed = stored;
            }
            GroupChange::Store(_)
            | GroupChange::AddPending(..)
            | GroupChange::Resolve(..)
            | GroupChange::Forget(_) => {}
        }
    }

    /// Partitions with a committed offset, including changes that are not durable yet.
    pub(super) fn topic_partitions(&self) -> BTreeSet<&TopicPartition> {
        let changes = self
            .changes
            .iter()
            .filter_map(|change| match &change.change {
                GroupChange::Store(offsets) | GroupChange::Resolve(_, offsets, _) => Some(offsets),
                _ => None,
            });
        let written = changes.flatten().map(|(partition, _)| partition);
        self.offsets.stored.keys().chain(written).collect()
    }

    /// The offsets that a transaction of this producer would commit.
    pub(super) fn pending_of(&self, producer: i64) -> Vec<PartitionOffset> {
        let pending = self.offsets.pending.get(&producer);
        let own = |(partition, offset): (&TopicPartition, &StoredOffset)| {
            (partition.clone(), offset.clone())
        };
        pending.into_iter().flatten().map(own).collect()
    }
}
