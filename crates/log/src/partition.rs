//! One append-only sequence of batches: append, read, find by time.

use bytes::Bytes;

use crate::batch::{Batch, BatchError, NewRecord};
use crate::{BoxFuture, EnqueueTime, Offset, Producer, TopicPartition};

/// One partition. Readers see only durable records; an append completes when it is durable.
pub trait Partition: Send + Sync {
    fn topic_partition(&self) -> &TopicPartition;

    /// Appends a producer's batch and assigns its offsets and enqueue time. The order is fixed by the call, not by
    /// awaiting the future, so a caller keeps its order without waiting in between.
    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>>;

    /// Appends records that have no batch yet. Records of several callers may share a batch; each caller gets the
    /// offset of its own first record, and its records are contiguous.
    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>>;

    /// Appends the marker that ends a producer's transaction in this partition.
    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>>;

    /// Appends a [punctuation](Batch::punctuation), which takes one offset and states that no event arrived until now.
    /// Appends nothing and returns `None` if the partition, counting batches not yet durable, no longer ends at `end`.
    fn punctuate(&self, end: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>>;

    /// Whole batches from the one that contains `from`: up to about `bytes_max` bytes, but at least one batch if there
    /// is one. Completes at once, with no batch if `from` is the end.
    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> BoxFuture<Result<FetchData, ReadError>>;

    /// The current bounds; of a remote log, the last ones received.
    fn bounds(&self) -> Bounds;

    /// The current bounds; a remote log asks the leader of the partition.
    fn fetch_bounds(&self) -> BoxFuture<Result<Bounds, ReadError>> {
        Box::pin(std::future::ready(Ok(self.bounds())))
    }

    /// The size of the stored records; `None` if it is unknown, as of a remote log.
    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    /// The producers that the partition remembers; `None` if they are unknown, as of a remote log.
    fn producers(&self) -> Option<Vec<ProducerInfo>> {
        None
    }

    /// Completes when [`Bounds::visible`] is past `offset`, or the partition is deleted or stopped.
    fn wait_past(&self, offset: Offset, isolation: Isolation) -> BoxFuture<()>;

    /// Whether records have enqueue times. A topic of a cluster may have the times of producers instead, which mean
    /// nothing for [`Partition::offset_for_time`].
    fn has_enqueue_times(&self) -> bool {
        true
    }

    /// The first offset with this enqueue time or a later one; `None` if there is none yet. It may belong to a marker
    /// or a punctuation, so reading from it misses neither records nor punctuations.
    fn offset_for_time(
        &self,
        time: EnqueueTime,
    ) -> BoxFuture<Result<Option<(Offset, EnqueueTime)>, ReadError>>;

    /// The offset and timestamp of a record, by the timestamps that consumers see: enqueue times or the producers'
    /// times, which may go back. Markers and punctuations do not count. `None` if there is no such record.
    fn offset_for_timestamp(
        &self,
        lookup: TimestampLookup,
    ) -> BoxFuture<Result<Option<(Offset, i64)>, ReadError>>;

    /// Deletes the records before `offset`, which may be inside a batch; returns the new start.
    fn trim(&self, offset: Offset) -> BoxFuture<Result<Offset, ReadError>>;
}

/// The record that [`Partition::offset_for_timestamp`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampLookup {
    /// The first record with this timestamp or a later one.
    AtLeast(i64),
    /// The first record with the latest timestamp of the partition.
    Latest,
}

/// A producer that numbers its batches, as its partition remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerInfo {
    pub producer: Producer,
    /// The number of its last record; `None` if that was forgotten.
    pub last_sequence: Option<i32>,
    pub last_time: EnqueueTime,
    /// The first offset of its open transaction.
    pub open: Option<Offset>,
}

/// The offset and time of an appended batch, or of a caller's records in a shared batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// The offset of the first record.
    pub offset: Offset,
    pub time: EnqueueTime,
    /// The start of the partition at the time of the append.
    pub start: Offset,
    /// The producer sent the batch before: `offset` and `time` are those of the first append.
    pub duplicate: bool,
}

/// Start and end of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that is kept.
    pub start: Offset,
    /// The last stable offset: the first offset of the oldest open transaction, or `end`.
    pub stable: Offset,
    /// The next durable record gets this offset; no offset from here on is served.
    pub end: Offset,
    /// Enqueue time of the last batch before `end`, which may be a punctuation.
    pub last_time: Option<EnqueueTime>,
    /// Bytes on the disk.
    pub bytes: u64,
}

impl Bounds {
    /// The end for a reader with this isolation.
    pub fn visible(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::Uncommitted => self.end,
            Isolation::Committed => self.stable,
        }
    }
}

/// The records that a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All records.
    Uncommitted,
    /// No records of open transactions; aborted transactions are listed with the fetch.
    Committed,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub struct FetchData {
    /// Whole batches, in order; no piece ends inside a batch. Empty at the end of the partition. Batches with
    /// producers' timestamps may have their enqueue time before them ([`crate::batch::without_frames`]).
    pub pieces: Vec<Bytes>,
    pub bounds: Bounds,
    /// Aborted transactions with records in the pieces; empty for [`Isolation::Uncommitted`].
    pub aborted: Vec<AbortedTransaction>,
}

/// An aborted transaction. Readers of committed records skip the records of `producer_id` from `first` to its abort
/// marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first: Offset,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionMarker {
    Abort,
    Commit,
}

/// Why a batch was not appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    #[error("the batch is malformed: {0}")]
    Malformed(#[from] BatchError),
    #[error("a batch of {bytes} bytes is larger than the {max} that `{topic_partition}` takes")]
    TooLarge {
        topic_partition: TopicPartition,
        bytes: usize,
        max: usize,
    },
    #[error("batch {got} of producer {} is out of sequence: {expected} was expected", producer.id)]
    OutOfSequence {
        producer: Producer,
        expected: i32,
        got: i32,
    },
    #[error("batch {sequence} of producer {} is a repeat older than the remembered ones", producer.id)]
    DuplicateTooOld { producer: Producer, sequence: i32 },
    #[error("producer {} has epoch {current}: its epoch {} is fenced", producer.id, producer.epoch)]
    Fenced { producer: Producer, current: i16 },
    #[error("producer {} has no transaction open in `{topic_partition}`", producer.id)]
    NoTransaction {
        producer: Producer,
        topic_partition: TopicPartition,
    },
    /// Retry later.
    #[error(
        "`{topic_partition}` has {waiting} bytes waiting for the disk and takes no more for now"
    )]
    QueueFull {
        topic_partition: TopicPartition,
        waiting: usize,
    },
    /// The process or the system has no free file descriptor. Nothing was written; retry later.
    #[error("`{topic_partition}` cannot be written at the moment: {reason}")]
    Busy {
        topic_partition: TopicPartition,
        reason: String,
    },
    /// The disk is full. Nothing was written; the partition accepts writes again as soon as space is free.
    #[error("the disk has no space for `{topic_partition}`: {reason}")]
    DiskFull {
        topic_partition: TopicPartition,
        reason: String,
    },
    /// A write or sync failed. The partition accepts no writes until a restart, because the contents of the disk are
    /// unknown.
    #[error("`{topic_partition}` accepts no writes: {reason}")]
    Stopped {
        topic_partition: TopicPartition,
        reason: String,
    },
    /// A remote log did not answer in time. It may have appended the batch.
    #[error("it is unknown whether `{topic_partition}` appended the batch: {reason}")]
    OutcomeUnknown {
        topic_partition: TopicPartition,
        reason: String,
    },
    #[error("the hub of `{0}` has been deleted")]
    Deleted(TopicPartition),
}

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("offset {requested} of `{topic_partition}` is out of range: {start} to {end} are kept")]
    OutOfRange {
        topic_partition: TopicPartition,
        requested: Offset,
        start: Offset,
        end: Offset,
    },
    /// Never skipped silently: damaged bytes cannot be trusted.
    #[error("`{topic_partition}` is damaged: {file} at byte {position}: {reason}")]
    Damaged {
        topic_partition: TopicPartition,
        file: String,
        position: u64,
        reason: String,
    },
    #[error("`{topic_partition}` could not be read: {reason}")]
    Storage {
        topic_partition: TopicPartition,
        reason: String,
    },
    #[error("the hub of `{0}` has been deleted")]
    Deleted(TopicPartition),
}
