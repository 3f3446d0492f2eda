//! The source of a pipeline: the committed records of one partition, in order.
//!
//! A batch is decoded when its first event is needed, and the next fetch begins when the current one is used up.
//! Undecodable records (a producer can send them inside a batch with a correct checksum) become one dead letter that
//! contains the batch, and the source continues after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use highwater_log::batch::{Batches, CorruptBatch, Decompressor, ReadCommittedFilter, StoredBatch};
use highwater_log::{
    BoxFuture, FetchData, Isolation, Offset, Partition, ReadError, TopicPartition,
};

use crate::Event;
use crate::dead_letter::FailedAttempt;
use crate::event::DecodedBatch;
use crate::stage::{Item, PipelineContext, Stage, StageOutput, StagePoll};

/// Delay between reads of a partition that reports new records but returns none, because it was stopped.
const PAUSE: Duration = Duration::from_millis(200);

pub struct PartitionSource {
    partition: Arc<dyn Partition>,
    start: Offset,
    until: Option<Offset>,
    fetch_bytes_max: usize,
    next: Offset,
    wait: Wait,
    pieces: VecDeque<Bytes>,
    skip: ReadCommittedFilter,
    unpacker: Decompressor,
    units: VecDeque<DecodedItem>,
}

enum Wait {
    Nothing,
    Read(BoxFuture<Result<FetchData, ReadError>>),
    More(BoxFuture<()>),
}

/// A decoded piece of a batch.
enum DecodedItem {
    Event(Event),
    Broken {
        event: Event,
        reason: String,
    },
    /// No more events below this offset.
    Gap(Offset),
}

/// Why a source ended on its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("`{topic_partition}` returned no valid batches from {from} on: {broken}")]
    Broken {
        topic_partition: TopicPartition,
        from: Offset,
        broken: CorruptBatch,
    },
}

impl DecodedItem {
    fn offset(&self) -> Offset {
        match self {
            DecodedItem::Event(event) | DecodedItem::Broken { event, .. } => event.offset(),
            DecodedItem::Gap(next) => *next,
        }
    }
}

impl PartitionSource {
    /// Reads from `start` and waits at the end for more.
    pub fn new(partition: Arc<dyn Partition>, start: Offset) -> PartitionSource {
        PartitionSource {
            partition,
            start,
            until: None,
            fetch_bytes_max: 256 * 1024,
            next: start,
            wait: Wait::Nothing,
            pieces: VecDeque::new(),
            skip: ReadCommittedFilter::default(),
            unpacker: Decompressor::default(),
            units: VecDeque::new(),
        }
    }

    /// Ends at `offset` instead of waiting for more.
    pub fn until(self, offset: Offset) -> PartitionSource {
        PartitionSource {
            until: Some(offset),
            ..self
        }
    }

    /// Approximate size of one fetch.
    pub fn fetch_bytes_max(self, bytes: usize) -> PartitionSource {
        PartitionSource {
            fetch_bytes_max: bytes,
            ..self
        }
    }

    fn poll_fetch(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        loop {
            match &mut self.wait {
                Wait::Nothing => self.wait = Wait::Read(self.read()),
                Wait::More(more) => {
                    ready!(more.as_mut().poll(cx));
                    self.wait = Wait::Read(self.read());
                }
                Wait::Read(read) => {
                    let fetched = ready!(read.as_mut().poll(cx));
                    self.wait = Wait::Nothing;
                    let fetched = fetched?;
                    if !fetched.pieces.is_empty() {
                        self.skip = ReadCommittedFilter::new(&fetched.aborted);
                        self.pieces = fetched.pieces.into();
                        return Poll::Ready(Ok(()));
                    }
                    let may_wait = fetched.bounds.visible(Isolation::Committed) <= self.next;
                    self.wait = Wait::More(self.more(may_wait));
                }
            }
        }
    }

    fn read(&self) -> BoxFuture<Result<FetchData, ReadError>> {
        self.partition
            .read(self.next, self.fetch_bytes_max, Isolation::Committed)
    }

    fn more(&self, may_wait: bool) -> BoxFuture<()> {
        let (partition, next) = (Arc::clone(&self.partition), self.next);
        Box::pin(async move {
            if may_wait {
                partition.wait_past(next, Isolation::Committed).await;
            }
            if partition.bounds().visible(Isolation::Committed) <= next || !may_wait {
                tokio::time::sleep(PAUSE).await;
            }
        })
    }

    /// Decodes the next fetched batch. Returns false if there is none.
    fn decode(&mut self) -> Result<bool, SourceError> {
        let Some(piece) = self.pieces.front_mut() else {
            return Ok(false);
        };
        let Some(batch) = Batches::new(piece).next() else {
            self.pieces.pop_front();
            return Ok(true);
        };
        let batch = batch.map_err(|broken| SourceError::Broken {
            topic_partition: self.partition.topic_partition().clone(),
            from: self.next,
            broken,
        })?;
        if !self.skip.skips(&batch.header) {
            let decoded = DecodedBatch::new(self.partition.topic_partition().clone());
            units(
                decoded,
                &batch,
                &mut self.unpacker,
                self.next,
                &mut self.units,
            );
        }
        let (length, end) = (batch.end(), batch.header.next_offset());
        piece.advance(length);
        self.next = self.next.max(end);
        let limit = self.until.unwrap_or(Offset(i64::MAX));
        self.units.retain(|unit| unit.offset() < limit);
        self.units.push_back(DecodedItem::Gap(end.min(limit)));
        Ok(true)
    }

    fn begin(&mut self, context: &mut PipelineContext) -> Option<StageOutput<Event>> {
        loop {
            match self.units.front()? {
                DecodedItem::Gap(next) => context.tracker.pass(*next),
                DecodedItem::Event(event) | DecodedItem::Broken { event, .. } => {
                    let ticket = context.tracker.begin(event.offset())?;
                    return match self.units.pop_front()? {
                        DecodedItem::Broken { event, reason } => {
                            let attempts = vec![FailedAttempt::undated(reason)];
                            Some(StageOutput::Dead(Item::new(ticket, event, attempts)))
                        }
                        DecodedItem::Event(event) => {
                            let value = event.clone();
                            Some(StageOutput::Item(Item::new(ticket, event, value)))
                        }
                        DecodedItem::Gap(_) => None,
                    };
                }
            }
            self.units.pop_front();
        }
    }
}

/// The events of a batch from `from` on, up to the first undecodable record.
fn units(
    mut decoded: DecodedBatch,
    batch: &StoredBatch<'_>,
    unpacker: &mut Decompressor,
    from: Offset,
    into: &mut VecDeque<DecodedItem>,
) {
    let mut good = || {
        for record in batch.records(unpacker)? {
            let record = record?;
            if record.offset >= from {
                decoded.push(&record);
            }
        }
        Ok::<_, highwater_log::batch::BatchError>(())
    };
    let broken = good().err();
    unpacker.release();
    let next = decoded
        .next()
        .unwrap_or(from.max(batch.header.base_offset()));
    if let Some(error) = &broken
        && next <= batch.header.last_offset()
    {
        decoded.push_raw(next, batch.enqueue_time().0, batch.bytes());
        into.extend(decoded.events().map(DecodedItem::Event));
        if let Some(DecodedItem::Event(event)) = into.pop_back() {
            let reason = format!("the rest of its batch cannot be read: {error}");
            into.push_back(DecodedItem::Broken { event, reason });
        }
        return;
    }
    into.extend(decoded.events().map(DecodedItem::Event));
}

impl Stage for PartitionSource {
    type Out = Event;

    fn poll_next(
        &mut self,
        context: &mut PipelineContext,
        cx: &mut Context<'_>,
    ) -> StagePoll<Event> {
        loop {
            if context.is_stopping() || context.failed.is_some() {
                return Poll::Ready(None);
            }
            if let Some(step) = self.begin(context) {
                return Poll::Ready(Some(step));
            }
            if !self.units.is_empty() {
                // The window is full. Finishing an event polls again.
                return Poll::Pending;
            }
            let more = match self.decode() {
                Ok(true) => continue,
                Ok(false) if self.until.is_some_and(|until| self.next >= until) => {
                    return Poll::Ready(None);
                }
                Ok(false) => ready!(self.poll_fetch(cx)),
                Err(error) => Err(error),
            };
            context.failed = more.err();
        }
    }

    fn origin(&self) -> (&TopicPartition, Offset) {
        (self.partition.topic_partition(), self.start)
    }
}
