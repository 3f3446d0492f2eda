//! What producers ask for.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::Batch;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, InitProducerRequest, OffsetCommit, Partition,
    Producer, TopicPartition, TransactionError, TransactionMarker, TransactionRef,
};
use tokio::sync::oneshot;

use super::coordinator::{Coordinator, Slot, TransactionEntry};
use super::state::{EndDecision, InitDecision, Transaction};

/// Ready when the step is durable, and its markers if it has any.
type StepReceiver = oneshot::Receiver<Result<(), TransactionError>>;

/// A producer that may go on once `StepReceiver` is.
type InitOutcome = (Producer, Option<StepReceiver>);

impl Coordinator {
    pub async fn init(
        self: &Arc<Self>,
        request: InitProducerRequest,
    ) -> Result<Producer, TransactionError> {
        let (journal, ids) = self.loaded()?;
        let fresh = || async {
            let id = ids.next(journal).await;
            id.map_err(TransactionError::Storage)
        };
        let Some(id) = &request.transactional_id else {
            let (id, epoch) = (fresh().await?, 0);
            return Ok(Producer { id, epoch });
        };
        self.check_request(id, request.timeout)?;
        let introduced = match self.introduce(id, &request, None)? {
            Some(introduced) => introduced,
            None => {
                let fresh = fresh().await?;
                let introduced = self.introduce(id, &request, Some(fresh))?;
                introduced.ok_or(TransactionError::Concurrent)?
            }
        };
        let (producer, done) = introduced;
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

    /// `None` if this takes a fresh producer id.
    fn introduce(
        self: &Arc<Self>,
        id: &str,
        request: &InitProducerRequest,
        fresh: Option<i64>,
    ) -> Result<Option<InitOutcome>, TransactionError> {
        // There is nothing to find before there is an id to put there.
        let find = || match fresh {
            Some(_) => Some(self.find_or_make(id)),
            None => self.find(id),
        };
        while let Some(slot) = find() {
            let mut entry = slot.lock();
            if !entry.gone {
                return self.introduce_to(&slot, &mut entry, request, fresh);
            }
        }
        Ok(None)
    }

    fn introduce_to(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        entry: &mut TransactionEntry,
        request: &InitProducerRequest,
        fresh: Option<i64>,
    ) -> Result<Option<InitOutcome>, TransactionError> {
        let (timeout, now_ms) = (request.timeout, self.now_ms());
        let init = match (entry.settled()?, fresh) {
            (Some(known), _) => known.init(request.current, timeout, fresh, now_ms)?,
            (None, Some(fresh)) => InitDecision::Store(Transaction::new(fresh, timeout, now_ms)),
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
        slot: &Arc<Slot>,
        entry: &mut TransactionEntry,
        next: Transaction,
    ) -> Result<StepReceiver, TransactionError> {
        let (answer, done) = oneshot::channel();
        self.step(slot, entry, next, Some(answer))?;
        Ok(done)
    }

    pub async fn add(
        self: &Arc<Self>,
        transaction: TransactionRef,
        topic_partitions: Vec<TopicPartition>,
        groups: Vec<String>,
    ) -> Result<(), TransactionError> {
        self.check_places(&topic_partitions)?;
        let done = self.with_entry(&transaction, |slot, entry| {
            let producer = transaction.producer;
            let unknown = TransactionError::UnknownProducer(producer);
            let known = entry.settled()?.ok_or(unknown)?;
            match known.add(producer, &topic_partitions, &groups, self.now_ms())? {
                Some(next) => Ok(Some(self.begin_step(slot, entry, next)?)),
                None => Ok(None),
            }
        })?;
        match done {
            Some(done) => wait(done).await,
            None => Ok(()),
        }
    }

    fn check_places(&self, topic_partitions: &[TopicPartition]) -> Result<(), TransactionError> {
        let exists = |topic_partition: &&TopicPartition| {
            let hub = self.log.hub(topic_partition.hub.as_str());
            !topic_partition.hub.is_internal()
                && hub.is_some_and(|hub| topic_partition.partition < hub.partitions)
        };
        match topic_partitions
            .iter()
            .find(|topic_partition| !exists(topic_partition))
        {
            Some(topic_partition) => {
                Err(TransactionError::UnknownPartition(topic_partition.clone()))
            }
            None => Ok(()),
        }
    }

    pub async fn end(
        self: &Arc<Self>,
        transaction: TransactionRef,
        marker: TransactionMarker,
    ) -> Result<(), TransactionError> {
        let done = self.with_entry(&transaction, |slot, entry| {
            let producer = transaction.producer;
            let unknown = TransactionError::UnknownProducer(producer);
            let known = entry.settled()?.ok_or(unknown)?;
            match known.end(producer, marker, self.now_ms())? {
                EndDecision::Known => Ok(None),
                EndDecision::Prepare(next) => Ok(Some(self.begin_step(slot, entry, next)?)),
            }
        })?;
        match done {
            // The outcome is certain, but not everywhere yet; the client asks again.
            Some(done) => (tokio::time::timeout(self.options.patience, wait(done)).await)
                .unwrap_or(Err(TransactionError::Concurrent)),
            None => Ok(()),
        }
    }

    /// The check and the place in the log are one step under the lock: whatever ends the transaction
    /// comes after.
    pub fn append(
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
        let Some(slot) = self.find(&transaction.id) else {
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

    /// As with [`Coordinator::append`], the positions take their place under the lock.
    pub fn commit_transaction_offsets(
        self: &Arc<Self>,
        transaction: &TransactionRef,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        let begun = self.with_entry(transaction, |_, entry| {
            let producer = transaction.producer;
            let known = entry.durable.as_ref();
            let unknown = TransactionError::UnknownProducer(producer);
            known.ok_or(unknown)?.check(producer)?;
            let Some(open) = entry.ongoing() else {
                return Err(TransactionError::InvalidState("it is not open"));
            };
            match open.groups.contains(&commit.member.group) {
                true => Ok(self.groups.pend(producer.id, commit)),
                false => Err(TransactionError::InvalidState(
                    "the group is not part of it",
                )),
            }
        });
        match begun {
            Ok(pending) => pending,
            Err(error) => Box::pin(ready(Err(error.into()))),
        }
    }

    fn with_entry<R>(
        self: &Arc<Self>,
        transaction: &TransactionRef,
        act: impl FnOnce(&Arc<Slot>, &mut TransactionEntry) -> Result<R, TransactionError>,
    ) -> Result<R, TransactionError> {
        self.loaded()?;
        if transaction.id.is_empty() {
            return Err(TransactionError::InvalidId);
        }
        let slot = self.find(&transaction.id);
        let slot = slot.ok_or(TransactionError::UnknownProducer(transaction.producer))?;
        let mut entry = slot.lock();
        act(&slot, &mut entry)
    }
}

async fn wait(done: StepReceiver) -> Result<(), TransactionError> {
    done.await.unwrap_or(Err(TransactionError::Loading))
}
