//! Partitions and groups that are added to a transaction without a request, as in the second version of the protocol.
//!
//! A batch for a partition that the transaction does not have waits in its entry until the partition is stored; batches
//! that come meanwhile wait behind it, so their order stays. The connections bound what waits: each has few requests in
//! flight.

use std::future::ready;
use std::sync::Arc;

use highwater_log::batch::Batch;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, OffsetCommit, Partition, Producer,
    TopicPartition, TransactionError, TransactionRef,
};
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, TransactionEntry};
use super::state::State;
use crate::coordinator::slots::Slot;

type Append = BoxFuture<Result<AppendInfo, AppendError>>;

/// A request that waits for the end of a step.
pub(super) enum Waiter {
    Append(PendingAppend),
    /// Decides anew.
    Retry(oneshot::Sender<()>),
}

/// A batch whose partition is being added.
pub(super) struct PendingAppend {
    producer: Producer,
    partition: Arc<dyn Partition>,
    batch: Batch,
    /// Receives the append once it has begun.
    responder: oneshot::Sender<Append>,
}

/// The decision about a batch of a transaction.
pub(super) enum Admission {
    Append,
    /// Its partition must be added before.
    Add,
    Refuse(AppendError),
}

impl PendingAppend {
    fn begin(self) {
        let append = self.partition.append(self.batch);
        // The receiver may have hung up.
        let _ = self.responder.send(append);
    }

    fn refuse(self, reason: &str) {
        let refused = busy(self.partition.topic_partition(), reason);
        let _ = self.responder.send(Box::pin(ready(Err(refused))));
    }
}

fn busy(topic_partition: &TopicPartition, reason: &str) -> AppendError {
    AppendError::Busy {
        topic_partition: topic_partition.clone(),
        reason: reason.to_owned(),
    }
}

impl TransactionEntry {
    pub(super) fn admission(&self, producer: Producer, at: &TopicPartition) -> Admission {
        let none = || {
            Admission::Refuse(AppendError::NoTransaction {
                producer,
                topic_partition: at.clone(),
            })
        };
        let Some(known) = &self.durable else {
            return none();
        };
        if known.producer.id == producer.id && known.producer != producer {
            let current = known.producer.epoch;
            return Admission::Refuse(AppendError::Fenced { producer, current });
        }
        if known.producer != producer {
            return none();
        }
        match (self.ongoing(), self.next_state, known.state) {
            (Some(open), ..) if open.topic_partitions.contains(at) => Admission::Append,
            (_, Some(State::Ongoing), _) => Admission::Add,
            (_, None, State::Empty | State::Ongoing | State::Complete(_)) => Admission::Add,
            _ => Admission::Refuse(busy(at, "its transaction is being ended")),
        }
    }
}

impl Coordinator {
    /// Appends the batch when its partition is part of the transaction.
    pub(super) fn append_after_add(
        self: &Arc<Self>,
        slot: &Slot<TransactionEntry>,
        entry: &mut TransactionEntry,
        partition: &Arc<dyn Partition>,
        producer: Producer,
        batch: Batch,
    ) -> Append {
        let (responder, begun) = oneshot::channel();
        entry.waiting.push(Waiter::Append(PendingAppend {
            producer,
            partition: Arc::clone(partition),
            batch,
            responder,
        }));
        self.add_waiting(slot, entry);
        let topic_partition = partition.topic_partition().clone();
        Box::pin(async move {
            match begun.await {
                Ok(append) => append.await,
                Err(_) => Err(busy(&topic_partition, "its transaction is gone")),
            }
        })
    }

    /// Begins the step that adds the partitions of the waiting batches, unless one is being written.
    fn add_waiting(self: &Arc<Self>, slot: &Slot<TransactionEntry>, entry: &mut TransactionEntry) {
        if entry.next_state.is_some() {
            return;
        }
        let mut producer = None;
        let mut topic_partitions = Vec::new();
        for waiter in &entry.waiting {
            if let Waiter::Append(pending) = waiter {
                producer = Some(pending.producer);
                topic_partitions.push(pending.partition.topic_partition().clone());
            }
        }
        let (Some(producer), Some(known)) = (producer, &entry.durable) else {
            return;
        };
        let next = (self.check_partitions(&topic_partitions))
            .and_then(|()| known.add(producer, &topic_partitions, &[], self.now_ms()));
        let begun = match next {
            Ok(Some(next)) => self.step(slot, entry, next, None),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = begun {
            refuse_appends(entry, &error.to_string());
        }
    }

    /// A step has ended: begins the appends that waited for it, and the step that the others need.
    pub(super) fn wake_waiting(self: &Arc<Self>, slot: &Slot<TransactionEntry>, durable: bool) {
        let mut entry = slot.lock();
        let mut waiting = std::mem::take(&mut entry.waiting).into_iter();
        let mut others = Vec::new();
        for waiter in waiting.by_ref() {
            match waiter {
                Waiter::Retry(sender) => {
                    let _ = sender.send(());
                }
                Waiter::Append(pending) => {
                    let at = pending.partition.topic_partition();
                    match entry.admission(pending.producer, at) {
                        Admission::Append => pending.begin(),
                        Admission::Add if durable => others.push(Waiter::Append(pending)),
                        _ => pending.refuse("its transaction could not be stored, or has ended"),
                    }
                }
            }
        }
        entry.waiting = others;
        self.add_waiting(slot, &mut entry);
    }

    /// Adds the group, waiting for the steps before it, and stores the offsets.
    pub(super) async fn commit_offsets_adding(
        self: &Arc<Self>,
        transaction: TransactionRef,
        commit: OffsetCommit,
    ) -> Result<(), GroupError> {
        let group = commit.member.group.clone();
        let adding = self.add_group_in_turn(&transaction, group);
        let added = tokio::time::timeout(self.options.completion_timeout, adding).await;
        added.unwrap_or(Err(TransactionError::Concurrent))?;
        self.commit_transaction_offsets(&transaction, commit).await
    }

    async fn add_group_in_turn(
        self: &Arc<Self>,
        transaction: &TransactionRef,
        group: String,
    ) -> Result<(), TransactionError> {
        loop {
            let groups = vec![group.clone()];
            match self.add(transaction.clone(), Vec::new(), groups).await {
                Err(TransactionError::Concurrent) => self.step_end(transaction).await?,
                added => return added,
            }
        }
    }

    /// Waits for the step that is being written, if there is one. Fails while markers are being written.
    async fn step_end(
        self: &Arc<Self>,
        transaction: &TransactionRef,
    ) -> Result<(), TransactionError> {
        let ended = self.with_entry(transaction, |_, entry| {
            if entry.next_state.is_some() {
                let (sender, ended) = oneshot::channel();
                entry.waiting.push(Waiter::Retry(sender));
                return Ok(Some(ended));
            }
            let known = entry.durable.as_ref().map(|known| known.state);
            match known {
                Some(State::Preparing(_)) => Err(TransactionError::Concurrent),
                _ => Ok(None),
            }
        })?;
        if let Some(ended) = ended {
            // A dropped sender ended without a result; the caller decides anew.
            let _ = ended.await;
        }
        Ok(())
    }
}

fn refuse_appends(entry: &mut TransactionEntry, reason: &str) {
    for waiter in std::mem::take(&mut entry.waiting) {
        match waiter {
            Waiter::Append(pending) => pending.refuse(reason),
            retry => entry.waiting.push(retry),
        }
    }
}
