//! A group with its committed offsets, its pending responses, and the changes that are not durable yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use highwater_log::{GroupError, JoinResponse, SyncResponse, TopicPartition, TransactionMarker};
use tokio::sync::oneshot;

use super::consumer::Changes;
use super::group_kind::GroupKind;
use super::machine::{AfterStore, Elapsed, RequestId};
use super::offsets::{GroupOffsets, PartitionOffset, StoredOffset};

pub(super) type Responder<T> = oneshot::Sender<Result<T, GroupError>>;

pub(super) struct GroupEntry {
    pub name: String,
    pub group: GroupKind,
    pub offsets: GroupOffsets,
    /// When the group last changed, in milliseconds since 1970; 0 if it never had a generation.
    pub since_ms: i64,
    pub joins: BTreeMap<RequestId, Responder<JoinResponse>>,
    pub syncs: BTreeMap<RequestId, Responder<SyncResponse>>,
    pub consumer_store: ConsumerStore,
    /// Members of a group of the consumer protocol that became a classic one. Their records are removed with the next
    /// record of the group.
    pub stale_members: BTreeSet<String>,
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
    Consumer(Changes),
    Store(Vec<PartitionOffset>),
    AddPending(i64, Vec<PartitionOffset>),
    /// The end of a producer's transaction, with the offsets that were pending.
    Resolve(i64, Vec<PartitionOffset>, TransactionMarker),
    Forget(Vec<TopicPartition>),
    Delete,
}

/// The heartbeats that wait until the changes that their responses show are stored. One store is in flight at a time:
/// a response may show changes of other members, too, and none of them may be lost while a later one is stored.
#[derive(Default)]
pub(super) struct ConsumerStore {
    /// `None` if no store is in flight.
    in_flight: Option<Vec<Responder<()>>>,
    next: Vec<Responder<()>>,
    /// The last store failed: the next one waits for the next heartbeat or deadline.
    failed: bool,
}

impl GroupEntry {
    pub(super) fn new(name: &str, group: GroupKind) -> GroupEntry {
        GroupEntry {
            name: name.to_owned(),
            group,
            offsets: GroupOffsets::default(),
            since_ms: 0,
            joins: BTreeMap::new(),
            syncs: BTreeMap::new(),
            consumer_store: ConsumerStore::default(),
            stale_members: BTreeSet::new(),
            wakeup_at: None,
            deleting: false,
            removed: false,
            changes: VecDeque::new(),
            last_number: 0,
        }
    }

    /// Nothing of it is stored or in use.
    pub(super) fn is_vacant(&self) -> bool {
        self.is_quiet() && self.group.epoch() == 0 && self.offsets.is_empty()
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
            GroupChange::Group(after) => {
                if let Some(group) = self.group.classic() {
                    if stored {
                        self.stale_members.clear();
                    }
                    group.stored(after, outcome, now);
                }
            }
            GroupChange::Consumer(changes) => self.consumer_stored(changes, outcome),
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

    /// A join or sync is pending, or a record of the classic group is being written.
    pub(super) fn has_pending_requests(&self) -> bool {
        let is_group = |change: &Change| matches!(change.change, GroupChange::Group(_));
        !self.joins.is_empty() || !self.syncs.is_empty() || self.changes.iter().any(is_group)
    }

    /// A group of the consumer protocol has no pending store.
    pub(super) fn is_consumer_stored(&mut self) -> bool {
        let has_changes = (self.group.consumer()).is_none_or(|group| group.has_changes());
        !has_changes && self.consumer_store.in_flight.is_none() && !self.deleting
    }

    /// Receives the outcome when everything that the group would answer now is stored; `None` if it is already.
    pub(super) fn await_stored(&mut self) -> Option<oneshot::Receiver<Result<(), GroupError>>> {
        let store = &mut self.consumer_store;
        let waiting = match self.group.consumer()?.has_changes() {
            true => {
                store.failed = false;
                &mut store.next
            }
            false => store.in_flight.as_mut()?,
        };
        let (responder, stored) = oneshot::channel();
        waiting.push(responder);
        Some(stored)
    }

    /// The changes to store now, if there are any and no store is in flight.
    pub(super) fn begin_consumer_store(&mut self) -> Option<Changes> {
        let store = &mut self.consumer_store;
        let group = self.group.consumer()?;
        if store.in_flight.is_some() || store.failed || !group.has_changes() {
            return None;
        }
        store.in_flight = Some(std::mem::take(&mut store.next));
        Some(group.take_changes())
    }

    /// Allows another store after one that failed.
    pub(super) fn retry_store(&mut self) {
        self.consumer_store.failed = false;
    }

    fn consumer_stored(&mut self, changes: Changes, outcome: Result<(), String>) {
        let store = &mut self.consumer_store;
        let mut waiting = store.in_flight.take().unwrap_or_default();
        if outcome.is_err() {
            waiting.append(&mut store.next);
            store.failed = true;
            if let Some(group) = self.group.consumer() {
                group.store_failed(changes);
            }
        }
        for responder in waiting {
            // The receiver may have hung up.
            let _ = responder.send(outcome.clone().map_err(GroupError::Storage));
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
