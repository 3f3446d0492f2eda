//! The interface of the transaction coordinator.

use std::sync::Arc;

use highwater_log::batch::Batch;
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, GroupError, InitProducerRequest, OffsetCommit, Partition,
    Producer, TopicPartition, TransactionCoordinator, TransactionError, TransactionInfo,
    TransactionMarker, TransactionRef,
};

use super::coordinator::Coordinator;

/// A handle to the coordinator, which clones share. Its methods need a Tokio runtime.
#[derive(Clone)]
pub struct Handle {
    coordinator: Arc<Coordinator>,
}

impl Handle {
    pub(super) fn new(coordinator: Arc<Coordinator>) -> Handle {
        Handle { coordinator }
    }

    /// The states of all transactional ids.
    #[cfg(test)]
    pub(super) fn states(&self) -> Vec<super::state::State> {
        let slots = self.coordinator.slots.all().into_iter();
        slots
            .filter_map(|slot| Some(slot.lock().durable.as_ref()?.state))
            .collect()
    }
}

impl TransactionCoordinator for Handle {
    fn transactions(&self) -> BoxFuture<Result<Vec<TransactionInfo>, TransactionError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move {
            coordinator.loaded()?;
            let slots = coordinator.slots.all().into_iter();
            let infos = slots.filter_map(|slot| {
                let entry = slot.lock();
                Some(entry.durable.as_ref()?.info(&entry.id))
            });
            Ok(infos.collect())
        })
    }

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
        self.coordinator
            .append(transaction, partition, batch, false)
    }

    fn append_adding(
        &self,
        transaction: &TransactionRef,
        partition: &Arc<dyn Partition>,
        batch: Batch,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.coordinator.append(transaction, partition, batch, true)
    }

    fn commit_offsets_adding(
        &self,
        transaction: TransactionRef,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move { coordinator.commit_offsets_adding(transaction, commit).await })
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
        Box::pin(async move { coordinator.end(transaction, marker(commit)).await })
    }

    fn end_raising_epoch(
        &self,
        transaction: TransactionRef,
        commit: bool,
    ) -> BoxFuture<Result<Producer, TransactionError>> {
        let coordinator = Arc::clone(&self.coordinator);
        Box::pin(async move {
            let marker = marker(commit);
            coordinator.end_raising_epoch(transaction, marker).await
        })
    }
}

fn marker(commit: bool) -> TransactionMarker {
    match commit {
        true => TransactionMarker::Commit,
        false => TransactionMarker::Abort,
    }
}
