//! Producer ids, and transactions: appends to several partitions and offsets of a group that become visible together or
//! not at all.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
use crate::{
    AppendError, AppendInfo, BoxFuture, GroupError, OffsetCommit, Partition, Producer,
    TopicPartition,
};

pub trait TransactionCoordinator: Send + Sync {
    /// Returns a new producer id; or, for a transactional id, its producer with the next epoch, after ending the
    /// transaction of the previous holder.
    fn init_producer(
        &self,
        request: InitProducerRequest,
    ) -> BoxFuture<Result<Producer, TransactionError>>;

    /// Adds partitions to the transaction. Completes when that is durable.
    fn add_partitions(
        &self,
        transaction: TransactionRef,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), TransactionError>>;

    /// Appends a batch of a transaction. Fails with [`AppendError::NoTransaction`] if the transaction is over or does
    /// not include the partition: a late batch would open a transaction in the partition that no marker ends, and would
    /// block readers of committed records for ever. The order is fixed by the call, as in [`Partition::append`].
    fn append(
        &self,
        _transaction: &TransactionRef,
        partition: &Arc<dyn Partition>,
        batch: Batch,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        partition.append(batch)
    }

    /// Like [`append`](Self::append), but a partition that is not part of the transaction is added to it first, and a
    /// transaction begins if none is open. Producers of the second version of the protocol send no request for that.
    fn append_adding(
        &self,
        transaction: &TransactionRef,
        partition: &Arc<dyn Partition>,
        batch: Batch,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.append(transaction, partition, batch)
    }

    /// Adds a group to the transaction, whose offsets it will commit.
    fn add_group(
        &self,
        transaction: TransactionRef,
        group: String,
    ) -> BoxFuture<Result<(), TransactionError>>;

    /// Stores offsets that take effect when the transaction commits.
    fn commit_transaction_offsets(
        &self,
        transaction: TransactionRef,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>>;

    /// Like [`commit_transaction_offsets`](Self::commit_transaction_offsets), but adds the group to the transaction
    /// first.
    fn commit_offsets_adding(
        &self,
        transaction: TransactionRef,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>> {
        self.commit_transaction_offsets(transaction, commit)
    }

    /// The states of all transactional ids, sorted by id. A coordinator that does not know them refuses.
    fn transactions(&self) -> BoxFuture<Result<Vec<TransactionInfo>, TransactionError>> {
        let refused = TransactionError::InvalidState("this coordinator lists no transactions");
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Commits or aborts. Completes when the decision is durable and every partition has its marker.
    fn end(
        &self,
        transaction: TransactionRef,
        commit: bool,
    ) -> BoxFuture<Result<(), TransactionError>>;

    /// Like [`end`](Self::end), but raises the epoch of the producer with the same step, so that a delayed request of
    /// this transaction cannot touch the next one. Returns the producer of the next transaction.
    fn end_raising_epoch(
        &self,
        _transaction: TransactionRef,
        _commit: bool,
    ) -> BoxFuture<Result<Producer, TransactionError>> {
        let refused = TransactionError::InvalidState("this coordinator keeps the epochs");
        Box::pin(std::future::ready(Err(refused)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducerRequest {
    /// `None` for a producer that is only idempotent.
    pub transactional_id: Option<String>,
    /// A transaction that is open for longer is aborted.
    pub timeout: Duration,
    /// The client's current producer, if it has one: its epoch is raised and its id stays.
    pub current: Option<Producer>,
}

/// The durable state of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionInfo {
    pub id: String,
    pub producer: Producer,
    pub timeout: Duration,
    pub phase: TransactionPhase,
    /// Milliseconds since 1970; `None` unless a transaction is open or being ended.
    pub started_ms: Option<i64>,
    /// Sorted.
    pub topic_partitions: Vec<TopicPartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionPhase {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRef {
    pub id: String,
    pub producer: Producer,
}

/// Why a request of a transaction failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    #[error("a transactional id must have 1 to 1024 bytes")]
    InvalidId,
    #[error("a transaction timeout of {requested:?} is not between 1 ms and {max:?}")]
    Timeout { requested: Duration, max: Duration },
    #[error("producer {} does not belong to this transactional id", .0.id)]
    UnknownProducer(Producer),
    #[error("epoch {} of the producer has been replaced by a newer one", .0.epoch)]
    Fenced(Producer),
    #[error("this cannot be done in the state the transaction is in: {0}")]
    InvalidState(&'static str),
    /// Retry later: the markers of the previous transaction are being written.
    #[error("the previous transaction is still being completed")]
    Concurrent,
    #[error("there is no partition `{0}`")]
    UnknownPartition(TopicPartition),
    /// Retry later.
    #[error("transactions are being loaded")]
    Loading,
    #[error("the transaction could not be stored: {0}")]
    Storage(String),
}
