//! Producers with numbers, and transactions: appends to several partitions, and positions of a
//! group, that are seen together or not at all.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
use crate::{
    AppendError, AppendInfo, BoxFuture, GroupError, OffsetCommit, Partition, Producer,
    TopicPartition,
};

pub trait TransactionCoordinator: Send + Sync {
    /// A new producer id, or for a transactional id its producer with the next epoch, after ending
    /// whatever an earlier holder left open.
    fn init_producer(
        &self,
        request: InitProducerRequest,
    ) -> BoxFuture<Result<Producer, TransactionError>>;

    /// Says that the transaction will write to these places. Ready when that would survive a crash.
    fn add_partitions(
        &self,
        transaction: TransactionRef,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), TransactionError>>;

    /// Appends a batch that belongs to a transaction, unless the transaction is over or does not
    /// write there ([`AppendError::NoTransaction`]). Without this check a batch that was long under
    /// way would open a transaction in the partition that nobody ever ends, and readers of
    /// committed records would wait for that for ever. Takes its place in the order at the call,
    /// as [`Partition::append`] does, which this is where nobody checks.
    fn append(
        &self,
        _transaction: &TransactionRef,
        partition: &Arc<dyn Partition>,
        batch: Batch,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        partition.append(batch)
    }

    /// Says that the transaction will store positions of a group.
    fn add_group(
        &self,
        transaction: TransactionRef,
        group: String,
    ) -> BoxFuture<Result<(), TransactionError>>;

    /// Stores positions that count when the transaction commits.
    fn commit_transaction_offsets(
        &self,
        transaction: TransactionRef,
        commit: OffsetCommit,
    ) -> BoxFuture<Result<(), GroupError>>;

    /// Ends it. Ready when the outcome is certain: it survives a crash from then on, and every
    /// partition has its marker.
    fn end(
        &self,
        transaction: TransactionRef,
        commit: bool,
    ) -> BoxFuture<Result<(), TransactionError>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducerRequest {
    /// `None` for a producer that is idempotent and no more.
    pub transactional_id: Option<String>,
    /// A transaction open for longer is aborted.
    pub timeout: Duration,
    /// The producer that the client had before, if it says so: its epoch is raised instead of
    /// handing out a new id.
    pub current: Option<Producer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRef {
    pub id: String,
    pub producer: Producer,
}

/// Why a transaction did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    #[error("a transactional id must not be empty")]
    InvalidId,
    #[error("a transaction timeout of {requested:?} is not between 1 ms and {max:?}")]
    Timeout { requested: Duration, max: Duration },
    #[error("producer {} does not belong to this transactional id", .0.id)]
    UnknownProducer(Producer),
    #[error("epoch {} of the producer has been replaced by a newer one", .0.epoch)]
    Fenced(Producer),
    #[error("this cannot be done in the state the transaction is in: {0}")]
    InvalidState(&'static str),
    /// Retry later: the outcome of the one before is still being written.
    #[error("the transaction before is still being ended")]
    Concurrent,
    #[error("there is no partition `{0}`")]
    UnknownPartition(TopicPartition),
    /// Retry later.
    #[error("transactions are being loaded")]
    Loading,
    #[error("the transaction could not be stored: {0}")]
    Storage(String),
}
