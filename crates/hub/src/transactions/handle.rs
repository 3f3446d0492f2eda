//! The interface of the transaction coordinator.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::Batch;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, InitProducerRequest, OffsetCommit, Partition,
    Producer, TopicPartition, TransactionCoordinator, TransactionError, TransactionMarker,
    TransactionRef,
};

use super::coordinator::{Coordinator, TransactionEntry};
use super::state::{State, Transaction};

/// A handle to the coordinator, which clones share. Its methods need a Tokio runtime.
#[derive(Clone)]
pub struct Handle {
    coordinator: Arc<Coordinator>,
}

/// The state of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionInfo {
    pub id: String,
    pub producer: Producer,
    pub state: TransactionState,
    pub timeout: Duration,
    /// Start of the open or last transaction, in milliseconds since 1970.
    pub started_ms: i64,
    pub topic_partitions: Vec<TopicPartition>,
    pub groups: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    Empty,
    Ongoing,
    /// Decided, but markers are missing.
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl Handle {
    pub(super) fn new(coordinator: Arc<Coordinator>) -> Handle {
        Handle { coordinator }
    }

    /// All transactional ids, sorted.
    pub fn list(&self) -> Vec<TransactionInfo> {
        let info = |entry: &TransactionEntry| {
            let known = entry.durable.as_ref()?;
            Some(TransactionInfo::new(&entry.id, known))
        };
        let slots = self.coordinator.slots.all();
        slots.iter().filter_map(|slot| info(&slot.lock())).collect()
    }
}

impl TransactionInfo {
    fn new(id: &str, transaction: &Transaction) -> TransactionInfo {
        TransactionInfo {
            id: id.to_owned(),
            producer: transaction.producer,
            state: match transaction.state {
                State::Empty => TransactionState::Empty,
                State::Ongoing => TransactionState::Ongoing,
                State::Preparing(TransactionMarker::Commit) => TransactionState::PrepareCommit,
                State::Preparing(TransactionMarker::Abort) => TransactionState::PrepareAbort,
                State::Complete(TransactionMarker::Commit) => TransactionState::CompleteCommit,
                State::Complete(TransactionMarker::Abort) => TransactionState::CompleteAbort,
            },
            timeout: transaction.timeout,
            started_ms: transaction.started_ms,
            topic_partitions: transaction.topic_partitions.iter().cloned().collect(),
            groups: transaction.groups.iter().cloned().collect(),
        }
    }
}

impl TransactionCoordinator for Handle {
    fn init_producer(
        &self,
        request: InitProducerRequest,
    ) -> BoxFuture<Result<Producer, TransactionError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move { coordinator.init(request).await })
    }

    fn add_partitions(
        &self,
        transaction: TransactionRef,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), TransactionError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move {
            coordinator
                .add(transaction, topic_partitions, Vec::new())
                .await
        })
    }

    fn add_group(
        &self,
        transaction: TransactionRef,
        group: String,
    ) -> BoxFuture<Result<(), TransactionError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move { coordinator.add(transaction, Vec::new(), vec![group]).await })
    }

    fn append(
        &self,
        transaction: &TransactionRef,
        partition: &Arc<dyn Partition>,
        batch: Batch,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.coordinator.append(transaction, partition, batch)
    }

    fn commit_transaction_offsets(
        &self,
        transaction: TransactionRef,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        self.coordinator
            .commit_transaction_offsets(&transaction, commit)
    }

    fn end(
        &self,
        transaction: TransactionRef,
        commit: bool,
    ) -> BoxFuture<Result<(), TransactionError>> {
        let coordinator = Arc::clone(&self.coordinator);
        let marker = match commit {
            true => TransactionMarker::Commit,
            false => TransactionMarker::Abort,
        };
        Box::pin(async move { coordinator.end(transaction, marker).await })
    }
}
