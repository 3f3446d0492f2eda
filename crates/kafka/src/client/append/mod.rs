//! What waits to be appended to a partition, and the task that sends it.
//!
//! A batch has its place when it is handed over; records that come while others are under way share the
//! next batch. Several requests are under way at once, but an answer counts only when everything before it
//! has been answered: if something goes wrong with the first, the others are waited for and all are sent
//! again, in order, with the same numbers. The broker tells by the numbers what it has already, so nothing
//! is appended twice and nothing overtakes.

mod sender;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_log::batch::{Batch, BatchBuilder, BatchError, NewRecord};
use highwater_log::{AppendError, AppendInfo, BoxFuture};
use tokio::sync::oneshot;

use super::cluster::Cluster;
use super::partition::PartitionCache;
use super::view::Target;
use sender::{Sender, SequenceState};

pub(crate) struct Appender {
    cluster: Arc<Cluster>,
    target: Target,
    cache: Arc<PartitionCache>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Entry>,
    bytes: usize,
    /// A task is at work.
    driven: bool,
    /// Between two tasks.
    sequences: SequenceState,
}

/// A batch, or what will be one when it is its turn.
struct Entry {
    content: Content,
    transaction: Option<String>,
    callers: Callers,
    /// What it counts for while it waits.
    bytes: usize,
}

/// Who waits for a batch, each with the number of its first record.
type Callers = Vec<(i32, Caller)>;
type Caller = oneshot::Sender<Result<AppendInfo, AppendError>>;

enum Content {
    Batch(Batch),
    Records(BatchBuilder),
}

impl Appender {
    pub fn new(cluster: Arc<Cluster>, target: Target, cache: Arc<PartitionCache>) -> Appender {
        Appender {
            cluster,
            target,
            cache,
            queue: Mutex::default(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn append(
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

    pub fn append_records(
        self: &Arc<Self>,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let mut alone = BatchBuilder::new();
        push_all(&mut alone, records);
        let (bytes, max) = (alone.size(), self.bytes_max());
        if alone.is_empty() {
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
                content: Content::Records(alone),
                transaction: None,
                callers: vec![(0, caller)],
                bytes,
            });
        })
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
        let (caller, answer) = oneshot::channel();
        {
            let mut queue = self.queue();
            let waiting = queue.bytes;
            if waiting > 0 && waiting + bytes > self.cluster.options.waiting_bytes_max {
                return Box::pin(std::future::ready(Err(AppendError::QueueFull {
                    topic_partition,
                    waiting,
                })));
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
                reason: "the client has ended".into(),
            };
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    /// Sends what there is until there is nothing more.
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
