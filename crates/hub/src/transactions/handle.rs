//! Transactions as others see them.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::Batch;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, InitProducerRequest, OffsetCommit, Partition,
    Producer, TopicPartition, TransactionCoordinator, TransactionError, TransactionMarker,
    TransactionRef,
};

use super::coordinator::Coordinator;
use super::state::{State, Transaction};

/// A way to the transactions; clones lead to the same ones. Its calls must be made within a Tokio
/// runtime.
#[derive(Clone)]
pub struct Handle {
    coordinator: Arc<Coordinator>,
}

/// What a transactional id is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionInfo {
    pub id: String,
    pub producer: Producer,
    pub state: TransactionState,
    pub timeout: Duration,
    /// Milliseconds since 1970; of the last one if none is open.
    pub started_ms: i64,
    pub topic_partitions: Vec<TopicPartition>,
    pub groups: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    Empty,
    Ongoing,
    /// Decided, but not every partition has its marker.
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl Handle {
    pub(super) fn new(coordinator: Arc<Coordinator>) -> Handle {
        Handle { coordinator }
    }

    /// Every transactional id, by name.
    pub fn list(&self) -> Vec<TransactionInfo> {
        let slots: Vec<_> = self.coordinator.slots.read().values().cloned().collect();
        let info = |entry: &super::coordinator::TransactionEntry| {
            let known = entry.durable.as_ref()?;
            Some(TransactionInfo::new(&entry.id, known))
        };
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
        let marker = if commit {
            TransactionMarker::Commit
        } else {
            TransactionMarker::Abort
        };
        Box::pin(async move { coordinator.end(transaction, marker).await })
    }
}
