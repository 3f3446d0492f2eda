//! The append queue of a partition, and the task that sends it.
//!
//! Batches are appended in the order of the calls; records that arrive while requests are in flight share the next
//! batch. Several requests are in flight at once, but a response counts only after all responses before it: when the
//! first request fails, the others are awaited and all are sent again, in order, with the same sequence numbers. The
//! broker recognises duplicates by them, so no batch is appended twice or out of order.

mod sender;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use highwater_log::batch::{Batch, BatchBuilder, BatchError, NewRecord};
use highwater_log::{AppendError, AppendInfo, BoxFuture, Producer, TopicPartition};
use tokio::sync::oneshot;

use super::cluster::Cluster;
use super::lock;
use super::partition::PartitionCache;
use super::view::Target;
use sender::{Sender, SequenceState};

pub(crate) struct Appender {
    cluster: Arc<Cluster>,
    target: Target,
    cache: Arc<PartitionCache>,
    queue: Mutex<Queue>,
    /// The only writer of the partition, whose first failed append ends it ([`Log::claim`](highwater_log::Log::claim)).
    is_claimed: bool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Entry>,
    bytes: usize,
    /// The sender task is running.
    driven: bool,
    /// Kept between two sender tasks.
    sequences: SequenceState,
    /// Why the claim has ended.
    ended: Option<AppendError>,
}

/// A batch, or records that become one when they are sent.
struct Entry {
    content: Content,
    transaction: Option<String>,
    callers: Callers,
    /// Its size in the limit of the queue.
    bytes: usize,
}

/// The callers that wait for a batch, each with the offset delta of its first record.
type Callers = Vec<(i32, Caller)>;
type Caller = oneshot::Sender<Result<AppendInfo, AppendError>>;

enum Content {
    Batch(Batch),
    Records(BatchBuilder),
}

impl Appender {
    pub(super) fn new(
        cluster: Arc<Cluster>,
        target: Target,
        cache: Arc<PartitionCache>,
    ) -> Appender {
        Appender {
            cluster,
            target,
            cache,
            queue: Mutex::default(),
            is_claimed: false,
        }
    }

    /// Appends as this producer, whatever producers the batches have.
    pub(super) fn claimed(
        cluster: Arc<Cluster>,
        target: Target,
        cache: Arc<PartitionCache>,
        producer: Producer,
    ) -> Appender {
        let appender = Appender::new(cluster, target, cache);
        appender.queue().sequences = SequenceState::of(producer);
        Appender {
            is_claimed: true,
            ..appender
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    pub(super) fn append(
        self: &Arc<Self>,
        batch: Batch,
        transaction: Option<String>,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let bytes = batch.size();
        self.enqueue(bytes, |queue, caller| {
            queue.waiting.push_back(Entry {
                content: Content::Batch(batch),
                transaction,
                callers: vec![(0, caller)],
                bytes,
            });
        })
    }

    pub(super) fn append_records(
        self: &Arc<Self>,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let mut builder = BatchBuilder::new();
        push_all(&mut builder, records);
        let (bytes, max) = (builder.size(), self.bytes_max());
        if builder.is_empty() {
            let (count, last_offset_delta) = (0, -1);
            let empty = BatchError::Count {
                count,
                last_offset_delta,
            };
            return Box::pin(std::future::ready(Err(empty.into())));
        }
        if bytes > max {
            let topic_partition = self.target.topic_partition.clone();
            let refused = AppendError::TooLarge {
                topic_partition,
                bytes,
                max,
            };
            return Box::pin(std::future::ready(Err(refused)));
        }
        self.enqueue(bytes, |queue, caller| {
            if let Some(Entry {
                content: Content::Records(shared),
                callers,
                bytes: counted,
                ..
            }) = queue.waiting.back_mut()
                && shared.size() + bytes <= max
            {
                *counted += bytes;
                callers.push((shared.count(), caller));
                push_all(shared, records);
                return;
            }
            queue.waiting.push_back(Entry {
                content: Content::Records(builder),
                transaction: None,
                callers: vec![(0, caller)],
                bytes,
            });
        })
    }

    /// The claimed partition; `None` if the claim has ended.
    pub(super) fn claimed_partition(&self) -> Option<TopicPartition> {
        let has_ended = self.queue().ended.is_some();
        (!has_ended).then(|| self.target.topic_partition.clone())
    }

    /// Refuses all further appends; those in flight are refused by the broker.
    pub(super) fn end_claim(&self, error: AppendError) {
        self.queue().ended.get_or_insert(error);
    }

    fn bytes_max(&self) -> usize {
        let hub = self.cluster.hub(self.target.topic_partition.hub.as_str());
        hub.map_or(usize::MAX, |hub| hub.settings.batch_bytes_max as usize)
    }

    fn enqueue(
        self: &Arc<Self>,
        bytes: usize,
        push: impl FnOnce(&mut Queue, Caller),
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let topic_partition = self.target.topic_partition.clone();
        let (caller, response) = oneshot::channel();
        {
            let mut queue = self.queue();
            if let Some(ended) = &queue.ended {
                return Box::pin(std::future::ready(Err(ended.clone())));
            }
            let waiting = queue.bytes;
            if waiting > 0 && waiting + bytes > self.cluster.options.waiting_bytes_max {
                let full = AppendError::QueueFull {
                    topic_partition,
                    waiting,
                };
                queue.ended = self.is_claimed.then(|| full.clone());
                return Box::pin(std::future::ready(Err(full)));
            }
            queue.bytes += bytes;
            push(&mut queue, caller);
            if !std::mem::replace(&mut queue.driven, true) {
                self.cluster.runtime.spawn(Arc::clone(self).drive());
            }
        }
        Box::pin(async move {
            let gone = || AppendError::OutcomeUnknown {
                topic_partition,
                reason: "the client was dropped".into(),
            };
            response.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    /// Sends until the queue is empty.
    async fn drive(self: Arc<Self>) {
        let sequences = std::mem::take(&mut self.queue().sequences);
        let mut sender = Sender::new(Arc::clone(&self), sequences);
        loop {
            sender.fill();
            if !sender.in_flight.is_empty() {
                sender.step().await;
                continue;
            }
            let mut queue = self.queue();
            if queue.waiting.is_empty() {
                queue.driven = false;
                queue.sequences = sender.sequences;
                return;
            }
        }
    }
}

fn push_all(builder: &mut BatchBuilder, records: &[NewRecord<'_>]) {
    for record in records {
        builder.push(record);
    }
}
