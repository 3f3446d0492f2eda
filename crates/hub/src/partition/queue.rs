//! Batches that wait for the disk, in the order of the log.
//!
//! A batch gets its offsets and its enqueue time when it enters, and its sequence number is checked against the queue,
//! so no append waits for the disk to keep its order.

use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, NewRecord, TimestampType};
use highwater_log::producer_states::{ProducerStates, SequenceCheck};
use highwater_log::{
    AppendError, AppendInfo, EnqueueTime, Offset, Producer, TopicPartition, TransactionMarker,
};
use tokio::sync::oneshot;

use crate::storage::StampedBatch;

type Responder = oneshot::Sender<Result<AppendInfo, AppendError>>;

/// An append that entered the queue.
pub(super) struct PendingAppend {
    /// By how much the queue has grown.
    pub bytes: usize,
    pub outcome: oneshot::Receiver<Result<AppendInfo, AppendError>>,
}

pub(super) struct Queue {
    topic_partition: TopicPartition,
    limits: Limits,
    /// The state after all queued batches are written.
    producers: ProducerStates,
    last_time: Option<EnqueueTime>,
    queued: Vec<QueuedAppend>,
    /// Records of several callers that will be one batch.
    shared: BatchBuilder,
    callers: Vec<SharedBatchCaller>,
    bytes: usize,
    /// A committer has the partition or will get it.
    pub scheduled: bool,
    /// Why appends are refused.
    refusal: Option<AppendError>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub queue_bytes: usize,
    pub shared_batch_bytes: usize,
    pub batch_bytes_max: usize,
    /// The timestamps that consumers see.
    pub timestamps: TimestampType,
}

/// A batch; or none, if only a response waits for the batches before it.
pub(super) struct QueuedAppend {
    pub stamped: Option<StampedBatch>,
    pub first: AppendInfo,
    responders: Responders,
}

enum Responders {
    One(Responder),
    Shared(Vec<SharedBatchCaller>),
}

/// A caller whose records are in a shared batch.
struct SharedBatchCaller {
    /// Index of its first record.
    delta: i32,
    responder: Responder,
}

impl Queue {
    pub(super) fn new(topic_partition: TopicPartition, limits: Limits) -> Queue {
        Queue {
            topic_partition,
            limits,
            producers: ProducerStates::default(),
            last_time: None,
            queued: Vec::new(),
            shared: BatchBuilder::new(),
            callers: Vec::new(),
            bytes: 0,
            scheduled: false,
            refusal: None,
        }
    }

    /// Continues from the durable state.
    pub(super) fn reset(&mut self, producers: ProducerStates, last_time: Option<EnqueueTime>) {
        self.producers = producers;
        self.last_time = last_time;
    }

    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub(super) fn expire(&mut self, before: EnqueueTime) {
        self.producers.expire(before);
    }

    pub(super) fn refuse(&mut self, refusal: AppendError) {
        self.refusal.get_or_insert(refusal);
    }

    pub(super) fn refusal(&self) -> Option<&AppendError> {
        self.refusal.as_ref()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.callers.is_empty()
    }

    /// The offset of the next append.
    pub(super) fn end(&self) -> Offset {
        Offset(self.producers.end().0 + i64::from(self.shared.count()))
    }

    /// Adds a batch. `available` is the capacity that is left for all partitions.
    pub(super) fn push(
        &mut self,
        batch: Batch,
        now: EnqueueTime,
        available: usize,
    ) -> Result<PendingAppend, AppendError> {
        self.check_size(batch.size())?;
        let checked = self
            .producers
            .check(batch.header(), now, &self.topic_partition)?;
        match checked {
            SequenceCheck::Duplicate { first, time, .. } => {
                let (responder, outcome) = oneshot::channel();
                let first = append_info(first, time, true);
                self.push_queued(None, first, Responders::One(responder));
                Ok(PendingAppend { bytes: 0, outcome })
            }
            SequenceCheck::New => {
                if let Err(error) = self.check_capacity(batch.size(), available) {
                    self.producers.expect_sequence(batch.header(), now);
                    return Err(error);
                }
                Ok(self.push_single(batch, None, now))
            }
        }
    }

    /// Adds records that have no batch.
    pub(super) fn push_records(
        &mut self,
        records: &[NewRecord<'_>],
        now: EnqueueTime,
        available: usize,
    ) -> Result<PendingAppend, AppendError> {
        let size = records.iter().map(size_max).sum::<usize>();
        let limit = (self.limits.shared_batch_bytes).min(self.limits.batch_bytes_max);
        if size > limit || records.is_empty() {
            let mut builder = BatchBuilder::new();
            for record in records {
                builder.push(record);
            }
            let batch = builder.build(&BatchOptions::default())?;
            return self.push(batch, now, available);
        }
        self.check_size(0)?;
        self.check_capacity(size, available)?;
        if self.shared.size() + size > limit {
            self.seal(now);
        }
        let before = match self.shared.is_empty() {
            true => 0,
            false => self.shared.size(),
        };
        let delta = self.shared.count();
        for record in records {
            self.shared.push(record);
        }
        let (responder, outcome) = oneshot::channel();
        self.callers.push(SharedBatchCaller { delta, responder });
        let bytes = self.shared.size() - before;
        self.bytes += bytes;
        Ok(PendingAppend { bytes, outcome })
    }

    pub(super) fn push_marker(
        &mut self,
        producer: Producer,
        marker: TransactionMarker,
        now: EnqueueTime,
    ) -> Result<PendingAppend, AppendError> {
        self.check_size(0)?;
        self.producers
            .check_marker(producer, now, &self.topic_partition)?;
        Ok(self.push_single(Batch::marker(producer, marker), Some(marker), now))
    }

    pub(super) fn push_punctuation(
        &mut self,
        now: EnqueueTime,
        available: usize,
    ) -> Result<PendingAppend, AppendError> {
        let batch = Batch::punctuation();
        self.check_size(0)?;
        self.check_capacity(batch.size(), available)?;
        Ok(self.push_single(batch, None, now))
    }

    fn push_single(
        &mut self,
        batch: Batch,
        marker: Option<TransactionMarker>,
        now: EnqueueTime,
    ) -> PendingAppend {
        self.seal(now);
        let (responder, outcome) = oneshot::channel();
        let bytes = self.stamp(batch, marker, now, Responders::One(responder));
        PendingAppend { bytes, outcome }
    }

    fn check_size(&self, bytes: usize) -> Result<(), AppendError> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let max = self.limits.batch_bytes_max;
        match bytes <= max {
            true => Ok(()),
            false => Err(AppendError::TooLarge {
                topic_partition: self.topic_partition.clone(),
                bytes,
                max,
            }),
        }
    }

    /// An empty queue accepts a batch of any size that the node has capacity for.
    fn check_capacity(&self, size: usize, available: usize) -> Result<(), AppendError> {
        let fits = self.bytes + size <= self.limits.queue_bytes || self.bytes == 0;
        match fits && size <= available {
            true => Ok(()),
            false => Err(AppendError::QueueFull {
                topic_partition: self.topic_partition.clone(),
                waiting: self.bytes,
            }),
        }
    }

    /// Builds the batch of the shared records.
    fn seal(&mut self, now: EnqueueTime) {
        if self.shared.is_empty() {
            return;
        }
        let counted = self.shared.size();
        let batch = self.shared.build(&BatchOptions::default());
        let batch = batch.expect("shared records are few enough for a batch");
        let callers = std::mem::take(&mut self.callers);
        self.bytes -= counted;
        self.stamp(batch, None, now, Responders::Shared(callers));
    }

    /// Stamps and queues a batch; returns its size.
    fn stamp(
        &mut self,
        mut batch: Batch,
        marker: Option<TransactionMarker>,
        now: EnqueueTime,
        responders: Responders,
    ) -> usize {
        let time = self.last_time.map_or(now, |last| last.max(now));
        let offset = self.producers.end();
        batch.stamp_as(self.limits.timestamps, offset, time);
        self.producers.apply(batch.header(), time, marker);
        if marker.is_some() {
            // Only readers need the outcome of transactions, and they use the published state.
            self.producers.advance_durable(self.producers.end());
            self.producers.trim(self.producers.end());
        }
        self.last_time = Some(time);
        let size = batch.size();
        self.bytes += size;
        let stamped = StampedBatch { batch, marker };
        self.push_queued(Some(stamped), append_info(offset, time, false), responders);
        size
    }

    fn push_queued(
        &mut self,
        stamped: Option<StampedBatch>,
        first: AppendInfo,
        responders: Responders,
    ) {
        self.queued.push(QueuedAppend {
            stamped,
            first,
            responders,
        });
    }

    /// Takes all queued appends. Their bytes stay counted until [`Queue::release`].
    pub(super) fn take(&mut self, now: EnqueueTime) -> Vec<QueuedAppend> {
        self.seal(now);
        std::mem::take(&mut self.queued)
    }

    /// Ends the accounting of these bytes.
    pub(super) fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Notes that these batches were rejected, so that their producers must send them again.
    pub(super) fn expect_again(&mut self, rejected: &[QueuedAppend], now: EnqueueTime) {
        for stamped in rejected.iter().filter_map(|queued| queued.stamped.as_ref()) {
            if stamped.marker.is_none() {
                self.producers.expect_sequence(stamped.batch.header(), now);
            }
        }
    }
}

impl QueuedAppend {
    pub(super) fn bytes(&self) -> usize {
        (self.stamped.as_ref()).map_or(0, |stamped| stamped.batch.size())
    }

    /// Answers its callers. `start` is the start of the partition.
    pub(super) fn answer(self, start: Offset) {
        let first = AppendInfo {
            start,
            ..self.first
        };
        self.respond(|delta| {
            let offset = Offset(first.offset.0 + i64::from(delta));
            Ok(AppendInfo { offset, ..first })
        });
    }

    pub(super) fn refuse(self, error: &AppendError) {
        self.respond(|_| Err(error.clone()));
    }

    fn respond(self, result: impl Fn(i32) -> Result<AppendInfo, AppendError>) {
        // A receiver may have hung up.
        match self.responders {
            Responders::One(responder) => {
                let _ = responder.send(result(0));
            }
            Responders::Shared(callers) => {
                for caller in callers {
                    let _ = caller.responder.send(result(caller.delta));
                }
            }
        }
    }
}

fn append_info(offset: Offset, time: EnqueueTime, duplicate: bool) -> AppendInfo {
    AppendInfo {
        offset,
        time,
        start: Offset(0),
        duplicate,
    }
}

/// Upper bound of the encoded size of a record: its fields and their varints.
fn size_max(record: &NewRecord<'_>) -> usize {
    const VARINT: usize = 5;
    let headers = record.headers.iter();
    let headers =
        headers.map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len) + 2 * VARINT);
    let parts = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
    parts + headers.sum::<usize>() + 6 * VARINT
}
