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
use super::state::{InitDecision, Transaction};
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
        if id.is_empty() {
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

    fn check_partitions(
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
            // The outcome is decided, but markers are missing; the client retries.
            Some(done) => (tokio::time::timeout(self.options.completion_timeout, wait(done)).await)
                .unwrap_or(Err(TransactionError::Concurrent)),
            None => Ok(()),
        }
    }

    /// Check and append happen under the lock, so the end of the transaction comes after them.
    pub(super) fn append(
        self: &Arc<Self>,
        transaction: &TransactionRef,
        partition: &Arc<dyn Partition>,
        batch: Batch,
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
        let Some(slot) = self.slots.get(&transaction.id) else {
            return Box::pin(ready(Err(none)));
        };
        let entry = slot.lock();
        let allowed = match entry.ongoing() {
            _ if batch.header().producer() != Some(producer) => Err(none),
            Some(open)
                if open.producer == producer
                    && open.topic_partitions.contains(&topic_partition) =>
            {
                Ok(())
            }
            _ => match &entry.durable {
                Some(known) if known.producer.id == producer.id && known.producer != producer => {
                    let current = known.producer.epoch;
                    Err(AppendError::Fenced { producer, current })
                }
                _ => Err(none),
            },
        };
        match allowed {
            Ok(()) => partition.append(batch),
            Err(error) => Box::pin(ready(Err(error))),
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

    fn with_entry<R>(
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
