//! One partition in memory.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::{ClockFn, lock};
use crate::batch::{
    Batch, BatchBuilder, BatchHeader, BatchOptions, Batches, Decompressor, NewRecord, StoredBatch,
    TimestampType,
};
use crate::producer_states::{ProducerStates, SequenceCheck};
use crate::{
    AppendError, AppendInfo, Bounds, BoxFuture, EnqueueTime, FetchData, HubSettings, Isolation,
    Offset, Partition, Producer, ProducerInfo, ReadError, TimestampLookup, TopicPartition,
    TransactionMarker,
};

pub(super) struct MemoryPartition {
    topic_partition: TopicPartition,
    now: ClockFn,
    state: Arc<Mutex<State>>,
}

struct State {
    batches: VecDeque<MemoryBatch>,
    /// Total size of the batches.
    bytes: u64,
    start: Offset,
    producers: ProducerStates,
    last_time: Option<EnqueueTime>,
    batch_bytes_max: usize,
    timestamps: TimestampType,
    deleted: bool,
    waiting: Vec<Waker>,
}

struct MemoryBatch {
    header: BatchHeader,
    time: EnqueueTime,
    bytes: Bytes,
}

impl MemoryPartition {
    pub(super) fn new(
        topic_partition: TopicPartition,
        settings: &HubSettings,
        now: ClockFn,
    ) -> MemoryPartition {
        let state = State {
            batches: VecDeque::new(),
            bytes: 0,
            start: Offset(0),
            producers: ProducerStates::default(),
            last_time: None,
            batch_bytes_max: settings.batch_bytes_max as usize,
            timestamps: settings.timestamps.kind,
            deleted: false,
            waiting: Vec::new(),
        };
        MemoryPartition {
            topic_partition,
            now,
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(super) fn change(&self, settings: &HubSettings) {
        let mut state = lock(&self.state);
        state.batch_bytes_max = settings.batch_bytes_max as usize;
        state.timestamps = settings.timestamps.kind;
    }

    pub(super) fn delete(&self) {
        let mut state = lock(&self.state);
        state.deleted = true;
        state.batches.clear();
        state.bytes = 0;
        wake(state);
    }

    fn try_append(&self, batch: Batch) -> Result<AppendInfo, AppendError> {
        let state = self.state_to_append(batch.size())?;
        let now = EnqueueTime((self.now)());
        let checked = state
            .producers
            .check(batch.header(), now, &self.topic_partition)?;
        match checked {
            SequenceCheck::New => Ok(self.put(state, batch)),
            SequenceCheck::Duplicate { first, time, .. } => Ok(AppendInfo {
                offset: first,
                time,
                start: state.start,
                duplicate: true,
            }),
        }
    }

    fn try_append_records(&self, records: &[NewRecord<'_>]) -> Result<AppendInfo, AppendError> {
        let mut builder = BatchBuilder::new();
        for record in records {
            builder.push(record);
        }
        self.try_append(builder.build(&BatchOptions::default())?)
    }

    fn try_append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> Result<AppendInfo, AppendError> {
        let state = self.state_to_append(0)?;
        state
            .producers
            .check_marker(producer, EnqueueTime((self.now)()), &self.topic_partition)?;
        Ok(self.put(state, Batch::marker(producer, marker)))
    }

    fn try_punctuate(&self, end: Offset) -> Result<Option<AppendInfo>, AppendError> {
        let state = self.state_to_append(0)?;
        Ok((state.producers.end() == end).then(|| self.put(state, Batch::punctuation())))
    }

    fn put(&self, mut state: StateGuard<'_>, batch: Batch) -> AppendInfo {
        let appended = state.put(batch, EnqueueTime((self.now)()));
        wake(state);
        appended
    }

    fn state_to_append(&self, bytes: usize) -> Result<StateGuard<'_>, AppendError> {
        let state = lock(&self.state);
        if state.deleted {
            return Err(AppendError::Deleted(self.topic_partition.clone()));
        }
        let max = state.batch_bytes_max;
        match bytes <= max {
            true => Ok(state),
            false => Err(AppendError::TooLarge {
                topic_partition: self.topic_partition.clone(),
                bytes,
                max,
            }),
        }
    }

    fn state_to_read(&self) -> Result<StateGuard<'_>, ReadError> {
        let state = lock(&self.state);
        match state.deleted {
            true => Err(ReadError::Deleted(self.topic_partition.clone())),
            false => Ok(state),
        }
    }

    fn out_of_range(&self, requested: Offset, bounds: Bounds) -> ReadError {
        ReadError::OutOfRange {
            topic_partition: self.topic_partition.clone(),
            requested,
            start: bounds.start,
            end: bounds.end,
        }
    }

    fn try_read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<FetchData, ReadError> {
        let state = self.state_to_read()?;
        let bounds = state.bounds();
        if !(bounds.start..=bounds.end).contains(&from) {
            return Err(self.out_of_range(from, bounds));
        }
        let (pieces, to) = state.pieces(from, bytes_max, bounds.visible(isolation));
        let aborted = match isolation {
            Isolation::Committed => state.producers.aborted_transactions(from, to),
            Isolation::Uncommitted => Vec::new(),
        };
        Ok(FetchData {
            pieces,
            bounds,
            aborted,
        })
    }

    fn try_find(&self, time: EnqueueTime) -> Result<Option<(Offset, EnqueueTime)>, ReadError> {
        let state = self.state_to_read()?;
        let batches = &state.batches;
        let at = batches.partition_point(|batch| batch.time < time);
        Ok(batches.get(at).map(|batch| {
            let offset = batch.header.base_offset().max(state.start);
            (offset, batch.time)
        }))
    }

    fn try_find_timestamp(
        &self,
        lookup: TimestampLookup,
    ) -> Result<Option<(Offset, i64)>, ReadError> {
        let state = self.state_to_read()?;
        let mut decompressor = Decompressor::default();
        let batches = || state.batches.iter().filter_map(stored);
        let timestamp = match lookup {
            TimestampLookup::AtLeast(timestamp) => Some(timestamp),
            TimestampLookup::Latest => batches()
                .filter_map(|batch| {
                    batch
                        .max_timestamp_from(state.start, &mut decompressor)
                        .ok()?
                })
                .max(),
        };
        let found = timestamp.and_then(|timestamp| {
            batches().find_map(|batch| {
                let found = batch.find_timestamp(timestamp, state.start, &mut decompressor);
                found.ok()?
            })
        });
        Ok(found)
    }

    fn try_trim(&self, offset: Offset) -> Result<Offset, ReadError> {
        let mut state = self.state_to_read()?;
        let bounds = state.bounds();
        if offset > bounds.end {
            return Err(self.out_of_range(offset, bounds));
        }
        let start = bounds.start.max(offset);
        state.start = start;
        let batches = &mut state.batches;
        let gone = batches.partition_point(|batch| batch.header.last_offset() < start);
        let freed: u64 = batches
            .drain(..gone)
            .map(|batch| batch.bytes.len() as u64)
            .sum();
        state.bytes -= freed;
        state.producers.trim(start);
        Ok(start)
    }
}

fn stored(batch: &MemoryBatch) -> Option<StoredBatch<'_>> {
    Batches::new(&batch.bytes).next()?.ok()
}

type StateGuard<'a> = MutexGuard<'a, State>;

/// Releases the lock before it calls the wakers.
fn wake(mut state: StateGuard<'_>) {
    let waiting = mem::take(&mut state.waiting);
    drop(state);
    waiting.into_iter().for_each(Waker::wake);
}

impl State {
    fn put(&mut self, mut batch: Batch, now: EnqueueTime) -> AppendInfo {
        let offset = self.producers.end();
        let time = now.max(self.last_time.unwrap_or(now));
        let marker = batch
            .as_marker()
            .expect("only markers and punctuations are appended as control batches");
        batch.stamp_as(self.timestamps, offset, time);
        self.producers.apply(batch.header(), time, marker);
        self.producers.advance_durable(batch.header().next_offset());
        self.last_time = Some(time);
        self.bytes += batch.stored_size() as u64;
        self.batches.push_back(MemoryBatch {
            header: *batch.header(),
            time,
            bytes: batch.stored_parts().concat().into(),
        });
        AppendInfo {
            offset,
            time,
            start: self.start,
            duplicate: false,
        }
    }

    fn bounds(&self) -> Bounds {
        let end = self.producers.end();
        Bounds {
            start: self.start,
            stable: self.producers.last_stable_offset(end).max(self.start),
            end,
            last_time: self.last_time,
            bytes: self.bytes,
        }
    }

    /// Whole batches from the one that contains `from` up to `visible`, and the offset after them.
    fn pieces(&self, from: Offset, bytes_max: usize, visible: Offset) -> (Vec<Bytes>, Offset) {
        let (mut pieces, mut size, mut to) = (Vec::new(), 0, from);
        let first = self
            .batches
            .partition_point(|batch| batch.header.last_offset() < from);
        for MemoryBatch { header, bytes, .. } in self.batches.range(first..) {
            size += bytes.len();
            if header.last_offset() >= visible || size > bytes_max && !pieces.is_empty() {
                break;
            }
            pieces.push(bytes.clone());
            to = header.next_offset();
        }
        (pieces, to)
    }
}

impl Partition for MemoryPartition {
    fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        Box::pin(ready(self.try_append(batch)))
    }

    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        Box::pin(ready(self.try_append_records(records)))
    }

    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        Box::pin(ready(self.try_append_marker(producer, marker)))
    }

    fn punctuate(&self, end: Offset) -> BoxFuture<Result<Option<AppendInfo>, AppendError>> {
        Box::pin(ready(self.try_punctuate(end)))
    }

    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> BoxFuture<Result<FetchData, ReadError>> {
        Box::pin(ready(self.try_read(from, bytes_max, isolation)))
    }

    fn producers(&self) -> Option<Vec<ProducerInfo>> {
        Some(lock(&self.state).producers.infos())
    }

    fn stored_bytes(&self) -> Option<u64> {
        Some(lock(&self.state).bytes)
    }

    fn bounds(&self) -> Bounds {
        lock(&self.state).bounds()
    }

    fn wait_past(&self, offset: Offset, isolation: Isolation) -> BoxFuture<()> {
        Box::pin(Wait {
            state: Arc::clone(&self.state),
            offset,
            isolation,
        })
    }

    fn offset_for_time(
        &self,
        time: EnqueueTime,
    ) -> BoxFuture<Result<Option<(Offset, EnqueueTime)>, ReadError>> {
        Box::pin(ready(self.try_find(time)))
    }

    fn offset_for_timestamp(
        &self,
        lookup: TimestampLookup,
    ) -> BoxFuture<Result<Option<(Offset, i64)>, ReadError>> {
        Box::pin(ready(self.try_find_timestamp(lookup)))
    }

    fn trim(&self, offset: Offset) -> BoxFuture<Result<Offset, ReadError>> {
        Box::pin(ready(self.try_trim(offset)))
    }
}

/// Future of [`Partition::wait_past`].
struct Wait {
    state: Arc<Mutex<State>>,
    offset: Offset,
    isolation: Isolation,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.deleted || state.bounds().visible(self.isolation) > self.offset {
            return Poll::Ready(());
        }
        if !state
            .waiting
            .iter()
            .any(|waker| waker.will_wake(context.waker()))
        {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
