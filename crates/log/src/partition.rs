//! One append-only sequence of batches: append, read, find by time.

use bytes::Bytes;

use crate::batch::{Batch, BatchError, NewRecord};
use crate::{BoxFuture, EnqueueTime, Offset, Producer, TopicPartition};

/// One partition. Readers see what is durable and nothing else; appends are answered when they are.
pub trait Partition: Send + Sync {
    fn topic_partition(&self) -> &TopicPartition;

    /// Appends a batch as it came from a producer, giving it offsets and an enqueue time. Takes its
    /// place in the order at the call, not when the answer is awaited, so that a caller who calls
    /// twice without waiting keeps its order.
    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>>;

    /// Appends records that have no batch yet. Records of several callers may share one; each caller
    /// is told the offset of its own first record, and its records stand together.
    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>>;

    /// Ends a producer's transaction in this partition.
    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>>;

    /// Lets time go by where no event does: says in the log itself that nothing came up to now, with a
    /// [punctuation](Batch::punctuation) of one offset, which is durable before anybody sees it, as
    /// everything is. But only if the partition still ends at `end`, counting what is on its way to
    /// the disk; otherwise something did come, nothing is appended, and the answer is `None`.
    fn punctuate(&self, end: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>>;

    /// Whole batches from the one that holds `from`, up to about `bytes_max` bytes but at least one
    /// batch if there is any. Answers at once, with no batch when `from` is the end.
    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> BoxFuture<Result<FetchData, ReadError>>;

    /// Where the partition starts and ends right now; of a log that is elsewhere, as it was last heard.
    fn bounds(&self) -> Bounds;

    /// The same, asked of whoever has the partition. What is in this process knows without asking.
    fn fetch_bounds(&self) -> BoxFuture<Result<Bounds, ReadError>> {
        Box::pin(std::future::ready(Ok(self.bounds())))
    }

    /// Ready when [`Bounds::visible`] is past `offset`, or the partition is deleted or stopped.
    fn wait_past(&self, offset: Offset, isolation: Isolation) -> BoxFuture<()>;

    /// The first offset taken in at `time` or later, or `None` if there is none yet. It may be that of
    /// a marker or a punctuation: who reads from there misses no record and no time that went by.
    fn offset_for_time(
        &self,
        time: EnqueueTime,
    ) -> BoxFuture<Result<Option<(Offset, EnqueueTime)>, ReadError>>;

    /// Forgets what is before `offset`, which may be in the middle of a batch; answers with the new
    /// start.
    fn trim(&self, offset: Offset) -> BoxFuture<Result<Offset, ReadError>>;
}

/// Where a batch, or a caller's share of one, was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// Of the first record.
    pub offset: Offset,
    pub time: EnqueueTime,
    /// The start of the partition at that moment.
    pub start: Offset,
    /// True when the producer had sent the batch before: `offset` and `time` are the first ones.
    pub duplicate: bool,
}

/// The ends of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset still kept.
    pub start: Offset,
    /// The end as far as no open transaction stands before it.
    pub stable: Offset,
    /// The offset that the next durable record will follow; nothing at or past it is served.
    pub end: Offset,
    /// Of the last batch before `end`, which may be a punctuation.
    pub last_time: Option<EnqueueTime>,
    /// Bytes on the disk.
    pub bytes: u64,
}

impl Bounds {
    /// The end for a reader of this kind.
    pub fn visible(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::Uncommitted => self.end,
            Isolation::Committed => self.stable,
        }
    }
}

/// Which records a reader is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All of them.
    Uncommitted,
    /// None of an open transaction, and word of those that were aborted.
    Committed,
}

/// What a read found.
#[derive(Clone, Debug)]
pub struct FetchData {
    /// Whole batches, one after another; a piece never ends inside a batch. Empty at the end of the
    /// partition.
    pub pieces: Vec<Bytes>,
    pub bounds: Bounds,
    /// Aborted transactions that reach into the pieces; empty unless asked for committed records.
    pub aborted: Vec<AbortedTransaction>,
}

/// A transaction whose records a reader of committed ones must skip: those of `producer_id` from
/// `first` up to its abort marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first: Offset,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionMarker {
    Abort,
    Commit,
}

/// Why nothing was appended.
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
    #[error("batch {got} of producer {} came where {expected} was due", producer.id)]
    OutOfSequence {
        producer: Producer,
        expected: i32,
        got: i32,
    },
    #[error("batch {sequence} of producer {} is older than any remembered one", producer.id)]
    DuplicateTooOld { producer: Producer, sequence: i32 },
    #[error("producer {} has epoch {current}, so its epoch {} may write no more", producer.id, producer.epoch)]
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
    /// The disk is full. Nothing was written, and the partition takes writes again as soon as there is
    /// room.
    #[error("there is no room on the disk for `{topic_partition}`: {reason}")]
    DiskFull {
        topic_partition: TopicPartition,
        reason: String,
    },
    /// The disk refused a write or a sync. The partition takes no writes until the node is started
    /// again, because nobody can say what the disk holds.
    #[error("`{topic_partition}` takes no writes: {reason}")]
    Stopped {
        topic_partition: TopicPartition,
        reason: String,
    },
    /// The log is elsewhere and was not heard of in time. It may have appended the batch or not.
    #[error("nobody knows whether `{topic_partition}` has the batch: {reason}")]
    OutcomeUnknown {
        topic_partition: TopicPartition,
        reason: String,
    },
    #[error("the hub of `{0}` has been deleted")]
    Deleted(TopicPartition),
}

/// Why nothing was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("offset {requested} of `{topic_partition}` is outside what is kept, {start} to {end}")]
    OutOfRange {
        topic_partition: TopicPartition,
        requested: Offset,
        start: Offset,
        end: Offset,
    },
    /// Never skipped silently: what it holds cannot be trusted.
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
