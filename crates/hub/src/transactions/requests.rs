//! Requests of producers.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::Batch;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, InitProducerRequest, OffsetCommit, Partition,
    Producer, TopicPartition, TransactionError, TransactionMarker, TransactionRef,
};
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, TransactionEntry};
use super::implicit::Admission;
use super::state::{EndDecision, InitDecision, Transaction};
use crate::coordinator::NAME_BYTES_MAX;
use crate::coordinator::slots::Slot;

/// Receives the outcome when the step and its markers are durable.
type StepReceiver = oneshot::Receiver<Result<(), TransactionError>>;

/// The producer, and the step that must be durable before it is returned.
type InitOutcome = (Producer, Option<StepReceiver>);

impl Coordinator {
    pub(super) async fn init(
        self: &Arc<Self>,
        request: InitProducerRequest,
    ) -> Result<Producer, TransactionError> {
        let (journal, ids) = self.loaded()?;
        let new_id = || async {
            let id = ids.next(journal).await;
            id.map_err(TransactionError::Storage)
        };
        let Some(id) = &request.transactional_id else {
            let (id, epoch) = (new_id().await?, 0);
            return Ok(Producer { id, epoch });
        };
        self.check_request(id, request.timeout)?;
        let (producer, done) = match self.init_transactional(id, &request, None)? {
            Some(outcome) => outcome,
            None => {
                let new_id = new_id().await?;
                let outcome = self.init_transactional(id, &request, Some(new_id))?;
                outcome.ok_or(TransactionError::Concurrent)?
            }
        };
        match done {
            Some(done) => wait(done).await.map(|()| producer),
            None => Ok(producer),
        }
    }

    fn check_request(&self, id: &str, requested: Duration) -> Result<(), TransactionError> {
        let max = self.options.timeout_max;
        let is_too_long = id.len() > NAME_BYTES_MAX && self.slots.get(id).is_none();
        if id.is_empty() || is_too_long {
            return Err(TransactionError::InvalidId);
        }
        match (Duration::from_millis(1)..=max).contains(&requested) {
            true => Ok(()),
            false => Err(TransactionError::Timeout { requested, max }),
        }
    }

    /// `None` if a new producer id is needed.
    fn init_transactional(
        self: &Arc<Self>,
        id: &str,
        request: &InitProducerRequest,
        new_id: Option<i64>,
    ) -> Result<Option<InitOutcome>, TransactionError> {
        // Without a producer id no entry is created.
        let new = || TransactionEntry::new(id, None);
        let find = || match new_id {
            Some(_) => Some(self.slots.get_or_insert(id, new)),
            None => self.slots.get(id),
        };
        while let Some(slot) = find() {
            let mut entry = slot.lock();
            if !entry.removed {
                return self.init_locked(&slot, &mut entry, request, new_id);
            }
        }
        Ok(None)
    }

    fn init_locked(
        self: &Arc<Self>,
        slot: &Slot<TransactionEntry>,
        entry: &mut TransactionEntry,
        request: &InitProducerRequest,
        new_id: Option<i64>,
    ) -> Result<Option<InitOutcome>, TransactionError> {
        let (timeout, now_ms) = (request.timeout, self.now_ms());
        let init = match (entry.current()?, new_id) {
            (Some(known), _) => known.init(request.current, timeout, new_id, now_ms)?,
            (None, Some(id)) => InitDecision::Store(Transaction::new(id, timeout, now_ms)),
            (None, None) => InitDecision::NeedsId,
        };
        match init {
            InitDecision::NeedsId => Ok(None),
            InitDecision::Known(producer) => Ok(Some((producer, None))),
            InitDecision::Store(next) => {
                let producer = next.producer;
                let done = self.begin_step(slot, entry, next)?;
                Ok(Some((producer, Some(done))))
            }
            InitDecision::Abort(next) => {
                self.step(slot, entry, next, None)?;
                Err(TransactionError::Concurrent)
            }
        }
    }

    fn begin_step(
        self: &Arc<Self>,
        slot: &Slot<TransactionEntry>,
        entry: &mut TransactionEntry,
        next: Transaction,
    ) -> Result<StepReceiver, TransactionError> {
        let (responder, done) = oneshot::channel();
        self.step(slot, entry, next, Some(responder))?;
        Ok(done)
    }

    pub(super) async fn add(
        self: &Arc<Self>,
        transaction: TransactionRef,
        topic_partitions: Vec<TopicPartition>,
        groups: Vec<String>,
    ) -> Result<(), TransactionError> {
        self.check_partitions(&topic_partitions)?;
        let done = self.decide(&transaction, |known, producer| {
            known.add(producer, &topic_partitions, &groups, self.now_ms())
        })?;
        match done {
            Some(done) => wait(done).await,
            None => Ok(()),
        }
    }

    /// Begins the step that `next` returns, if any.
    fn decide(
        self: &Arc<Self>,
        transaction: &TransactionRef,
        next: impl FnOnce(&Transaction, Producer) -> Result<Option<Transaction>, TransactionError>,
    ) -> Result<Option<StepReceiver>, TransactionError> {
        self.with_entry(transaction, |slot, entry| {
            let producer = transaction.producer;
            let unknown = TransactionError::UnknownProducer(producer);
            let next = next(entry.current()?.ok_or(unknown)?, producer)?;
            next.map(|next| self.begin_step(slot, entry, next))
                .transpose()
        })
    }

    pub(super) fn check_partitions(
        &self,
        topic_partitions: &[TopicPartition],
    ) -> Result<(), TransactionError> {
        let exists = |topic_partition: &&TopicPartition| {
            let hub = self.log.hub(topic_partition.hub.as_str());
            !topic_partition.hub.is_internal()
                && hub.is_some_and(|hub| topic_partition.partition < hub.partitions)
        };
        match topic_partitions.iter().find(|one| !exists(one)) {
            Some(unknown) => Err(TransactionError::UnknownPartition(unknown.clone())),
            None => Ok(()),
        }
    }

    pub(super) async fn end(
        self: &Arc<Self>,
        transaction: TransactionRef,
        marker: TransactionMarker,
    ) -> Result<(), TransactionError> {
        let done = self.decide(&transaction, |known, producer| {
            known.end(producer, marker, self.now_ms())
        })?;
        match done {
            Some(done) => self.completed(done).await,
            None => Ok(()),
        }
    }

    /// Returns the producer of the next transaction.
    pub(super) async fn end_raising_epoch(
        self: &Arc<Self>,
        transaction: TransactionRef,
        marker: TransactionMarker,
    ) -> Result<Producer, TransactionError> {
        let done = self.decide(&transaction, |known, producer| {
            let decision = known.end_raising_epoch(producer, marker, self.now_ms())?;
            Ok(match decision {
                EndDecision::Known(_) => None,
                EndDecision::Store(next) => Some(next),
            })
        })?;
        if let Some(done) = done {
            self.completed(done).await?;
        }
        self.with_entry(&transaction, |_, entry| {
            // Another holder of the id may have come meanwhile.
            let known = entry.durable.as_ref();
            let own = known.filter(|known| known.previous == Some(transaction.producer));
            own.map(|known| known.producer)
                .ok_or(TransactionError::Fenced(transaction.producer))
        })
    }

    /// Waits until every marker is written.
    async fn completed(&self, done: StepReceiver) -> Result<(), TransactionError> {
        // After the timeout the outcome is decided, but markers are missing; the client retries.
        (tokio::time::timeout(self.options.completion_timeout, wait(done)).await)
            .unwrap_or(Err(TransactionError::Concurrent))
    }

    /// Check and append happen under the lock, so the end of the transaction comes after them. If `adds`, a partition
    /// that is not part of the transaction is added to it.
    pub(super) fn append(
        self: &Arc<Self>,
        transaction: &TransactionRef,
        partition: &Arc<dyn Partition>,
        batch: Batch,
        adds: bool,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let (producer, topic_partition) =
            (transaction.producer, partition.topic_partition().clone());
        if self.loaded().is_err() {
            let waiting = 0;
            return Box::pin(ready(Err(AppendError::QueueFull {
                topic_partition,
                waiting,
            })));
        }
        let none = AppendError::NoTransaction {
            producer,
            topic_partition: topic_partition.clone(),
        };
        let slot = self.slots.get(&transaction.id);
        let Some(slot) = slot.filter(|_| batch.header().producer() == Some(producer)) else {
            return Box::pin(ready(Err(none)));
        };
        let mut entry = slot.lock();
        match entry.admission(producer, &topic_partition) {
            Admission::Append => partition.append(batch),
            Admission::Add if adds => {
                self.append_after_add(&slot, &mut entry, partition, producer, batch)
            }
            Admission::Add => Box::pin(ready(Err(none))),
            Admission::Refuse(AppendError::Busy { .. }) if !adds => Box::pin(ready(Err(none))),
            Admission::Refuse(error) => Box::pin(ready(Err(error))),
        }
    }

    /// As in [`Coordinator::append`], check and append of the offsets happen under the lock.
    pub(super) fn commit_transaction_offsets(
        self: &Arc<Self>,
        transaction: &TransactionRef,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        let pending = self.with_entry(transaction, |_, entry| {
            let producer = transaction.producer;
            let known = entry.durable.as_ref();
            let unknown = TransactionError::UnknownProducer(producer);
            known.ok_or(unknown)?.check(producer)?;
            let Some(open) = entry.ongoing() else {
                return Err(TransactionError::InvalidState("it is not open"));
            };
            match open.groups.contains(&commit.member.group) {
                true => Ok(self.groups.commit_pending(producer.id, commit)),
                false => Err(TransactionError::InvalidState(
                    "the group is not part of it",
                )),
            }
        });
        match pending {
            Ok(pending) => pending,
            Err(error) => Box::pin(ready(Err(error.into()))),
        }
    }

    pub(super) fn with_entry<R>(
        self: &Arc<Self>,
        transaction: &TransactionRef,
        act: impl FnOnce(&Slot<TransactionEntry>, &mut TransactionEntry) -> Result<R, TransactionError>,
    ) -> Result<R, TransactionError> {
        self.loaded()?;
        if transaction.id.is_empty() {
            return Err(TransactionError::InvalidId);
        }
        let slot = self.slots.get(&transaction.id);
        let slot = slot.ok_or(TransactionError::UnknownProducer(transaction.producer))?;
        let mut entry = slot.lock();
        act(&slot, &mut entry)
    }
}

async fn wait(done: StepReceiver) -> Result<(), TransactionError> {
    done.await.unwrap_or(Err(TransactionError::Loading))
}
