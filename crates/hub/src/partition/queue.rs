//! Batches on their way to the disk, in the order that they will have there.
//!
//! A batch gets its offsets and its time when it enters, and whether its producer may send it is
//! judged then, against what is ahead of it in the queue. So nobody waits for the disk to keep an
//! order.

use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, NewRecord};
use highwater_log::producer_states::{ProducerStates, SequenceCheck};
use highwater_log::{
    AppendError, AppendInfo, EnqueueTime, Offset, Producer, TopicPartition, TransactionMarker,
};
use tokio::sync::oneshot;

use crate::storage::StampedBatch;

pub type Responder = oneshot::Sender<Result<AppendInfo, AppendError>>;

pub struct Queue {
    topic_partition: TopicPartition,
    limits: Limits,
    /// As they will be when everything here is written.
    producers: ProducerStates,
    last_time: Option<EnqueueTime>,
    staged: Vec<QueuedAppend>,
    /// Records of several callers, which will be one batch.
    shared: BatchBuilder,
    callers: Vec<SharedBatchCaller>,
    bytes: usize,
    /// A committer has the partition, or is about to.
    pub scheduled: bool,
    /// Why nothing is taken any more.
    refusal: Option<AppendError>,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub queue_bytes: usize,
    pub shared_batch_bytes: usize,
    pub batch_bytes_max: usize,
}

/// A batch, or none where only an answer has to wait for what is ahead of it.
pub struct QueuedAppend {
    pub stamped: Option<StampedBatch>,
    pub first: AppendInfo,
    pub answers: Callers,
}

pub enum Callers {
    One(Responder),
    Shared(Vec<SharedBatchCaller>),
}

/// Somebody whose records are in a shared batch, from this one on.
pub struct SharedBatchCaller {
    delta: i32,
    answer: Responder,
}

impl Queue {
    pub fn new(topic_partition: TopicPartition, limits: Limits) -> Queue {
        Queue {
            topic_partition,
            limits,
            producers: ProducerStates::default(),
            last_time: None,
            staged: Vec::new(),
            shared: BatchBuilder::new(),
            callers: Vec::new(),
            bytes: 0,
            scheduled: false,
            refusal: None,
        }
    }

    /// Goes on from what is on the disk.
    pub fn reset(&mut self, producers: ProducerStates, last_time: Option<EnqueueTime>) {
        self.producers = producers;
        self.last_time = last_time;
    }

    pub fn set_batch_bytes_max(&mut self, bytes: usize) {
        self.limits.batch_bytes_max = bytes;
    }

    pub fn expire(&mut self, before: EnqueueTime) {
        self.producers.expire(before);
    }

    pub fn refuse(&mut self, refusal: AppendError) {
        self.refusal.get_or_insert(refusal);
    }

    pub fn refusal(&self) -> Option<&AppendError> {
        self.refusal.as_ref()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.staged.is_empty() && self.callers.is_empty()
    }

    /// What is appended next begins here.
    pub fn end(&self) -> Offset {
        Offset(self.producers.end().0 + i64::from(self.shared.count()))
    }

    /// Takes a batch in; answers how many bytes more are waiting.
    pub fn push(
        &mut self,
        batch: Batch,
        now: EnqueueTime,
        room: usize,
        answer: Responder,
    ) -> Result<usize, (AppendError, Responder)> {
        let judged = self
            .check_size(batch.size())
            .and_then(|()| self.producers.check(batch.header()));
        match judged {
            Err(error) => Err((error, answer)),
            Ok(SequenceCheck::Duplicate { first, time, .. }) => {
                let first = appended(first, time, true);
                let answers = Callers::One(answer);
                self.stage(None, first, answers);
                Ok(0)
            }
            Ok(SequenceCheck::New) => match self.check_room(batch.size(), room) {
                Err(error) => {
                    self.producers.expect_sequence(batch.header(), now);
                    Err((error, answer))
                }
                Ok(()) => {
                    self.seal(now);
                    Ok(self.place_batch(batch, None, now, Callers::One(answer)))
                }
            },
        }
    }

    /// Takes in records that have no batch.
    pub fn push_records(
        &mut self,
        records: &[NewRecord<'_>],
        now: EnqueueTime,
        room: usize,
        answer: Responder,
    ) -> Result<usize, (AppendError, Responder)> {
        let size = records.iter().map(size_max).sum::<usize>();
        let limit = (self.limits.shared_batch_bytes).min(self.limits.batch_bytes_max);
        if size > limit || records.is_empty() {
            let mut builder = BatchBuilder::new();
            for record in records {
                builder.push(record);
            }
            return match builder.build(&BatchOptions::default()) {
                Ok(batch) => self.push(batch, now, room, answer),
                Err(error) => Err((error.into(), answer)),
            };
        }
        if let Err(error) = self
            .check_size(0)
            .and_then(|()| self.check_room(size, room))
        {
            return Err((error, answer));
        }
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
        self.callers.push(SharedBatchCaller { delta, answer });
        let more = self.shared.size() - before;
        self.bytes += more;
        Ok(more)
    }

    pub fn push_marker(
        &mut self,
        producer: Producer,
        marker: TransactionMarker,
        now: EnqueueTime,
        answer: Responder,
    ) -> Result<usize, (AppendError, Responder)> {
        let judged = self
            .check_size(0)
            .and_then(|()| self.producers.check_marker(producer, &self.topic_partition));
        if let Err(error) = judged {
            return Err((error, answer));
        }
        self.seal(now);
        let batch = Batch::marker(producer, marker);
        Ok(self.place_batch(batch, Some(marker), now, Callers::One(answer)))
    }

    pub fn push_punctuation(
        &mut self,
        now: EnqueueTime,
        room: usize,
        answer: Responder,
    ) -> Result<usize, (AppendError, Responder)> {
        let batch = Batch::punctuation();
        let judged = self
            .check_size(0)
            .and_then(|()| self.check_room(batch.size(), room));
        if let Err(error) = judged {
            return Err((error, answer));
        }
        self.seal(now);
        Ok(self.place_batch(batch, None, now, Callers::One(answer)))
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

    /// `room` is what the node has left for all partitions.
    fn check_room(&self, size: usize, room: usize) -> Result<(), AppendError> {
        let fits = self.bytes + size <= self.limits.queue_bytes && size <= room;
        match fits || self.bytes == 0 && size <= room {
            true => Ok(()),
            false => Err(AppendError::QueueFull {
                topic_partition: self.topic_partition.clone(),
                waiting: self.bytes,
            }),
        }
    }

    /// Makes a batch of the shared records, which ends their time together.
    fn seal(&mut self, now: EnqueueTime) {
        if self.shared.is_empty() {
            return;
        }
        let counted = self.shared.size();
        let batch = self.shared.build(&BatchOptions::default());
        let batch = batch.expect("shared records are few enough for a batch");
        let callers = std::mem::take(&mut self.callers);
        self.bytes -= counted;
        self.place_batch(batch, None, now, Callers::Shared(callers));
    }

    fn place_batch(
        &mut self,
        mut batch: Batch,
        marker: Option<TransactionMarker>,
        now: EnqueueTime,
        answers: Callers,
    ) -> usize {
        let time = self.last_time.map_or(now, |last| last.max(now));
        let offset = self.producers.end();
        batch.stamp(offset, time);
        self.producers.apply(batch.header(), marker);
        if marker.is_some() {
            // What became of transactions is for readers, who do not look here.
            self.producers.advance_durable(self.producers.end());
            self.producers.trim(self.producers.end());
        }
        self.last_time = Some(time);
        let size = batch.size();
        self.bytes += size;
        let stamped = StampedBatch { batch, marker };
        self.stage(Some(stamped), appended(offset, time, false), answers);
        size
    }

    fn stage(&mut self, stamped: Option<StampedBatch>, first: AppendInfo, answers: Callers) {
        self.staged.push(QueuedAppend {
            stamped,
            first,
            answers,
        });
    }

    /// Hands over everything that waits. It stays counted until [`Queue::done`].
    pub fn take(&mut self, now: EnqueueTime) -> Vec<QueuedAppend> {
        self.seal(now);
        std::mem::take(&mut self.staged)
    }

    /// Room for others: these bytes wait no more.
    pub fn done(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Says of batches that were turned away after they had been taken in that they are still to
    /// come.
    pub fn expect(&mut self, staged: &[QueuedAppend], now: EnqueueTime) {
        for stamped in staged.iter().filter_map(|staged| staged.stamped.as_ref()) {
            if stamped.marker.is_none() {
                self.producers.expect_sequence(stamped.batch.header(), now);
            }
        }
    }
}

impl QueuedAppend {
    pub fn bytes(&self) -> usize {
        self.stamped
            .as_ref()
            .map_or(0, |stamped| stamped.batch.size())
    }

    /// Answers everybody who waits for it. `start` is where the partition starts.
    pub fn answer(self, start: Offset) {
        let first = AppendInfo {
            start,
            ..self.first
        };
        match self.answers {
            Callers::One(answer) => send(answer, Ok(first)),
            Callers::Shared(callers) => {
                for SharedBatchCaller { delta, answer } in callers {
                    let offset = Offset(first.offset.0 + i64::from(delta));
                    send(answer, Ok(AppendInfo { offset, ..first }));
                }
            }
        }
    }

    pub fn refuse(self, error: &AppendError) {
        match self.answers {
            Callers::One(answer) => send(answer, Err(error.clone())),
            Callers::Shared(callers) => {
                for sharer in callers {
                    send(sharer.answer, Err(error.clone()));
                }
            }
        }
    }
}

/// Whoever asked may have stopped waiting.
pub fn send(answer: Responder, result: Result<AppendInfo, AppendError>) {
    let _ = answer.send(result);
}

fn appended(offset: Offset, time: EnqueueTime, duplicate: bool) -> AppendInfo {
    AppendInfo {
        offset,
        time,
        start: Offset(0),
        duplicate,
    }
}

/// No record takes more than this: its parts, and the numbers before them.
fn size_max(record: &NewRecord<'_>) -> usize {
    const NUMBER: usize = 5;
    let headers = record.headers.iter();
    let headers =
        headers.map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len) + 2 * NUMBER);
    let parts = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
    parts + headers.sum::<usize>() + 6 * NUMBER
}
