//! Group commit to a hub: requests that arrive during an append share the next one.
//!
//! A writer belongs to one hub. Requests write their events into the current batch and wait for it as a whole, so a
//! request needs no memory of its own and a batch answers all its requests at once. A few senders, each with a
//! connection to the node, take turns. A batch is sent when it reaches its target size, or a while after the previous
//! one: every append syncs each partition it touches, and small appends cost the node more than the requests do. The
//! target is a fixed number, or the number in flight if that is larger, so that batches grow when the node is slow. A
//! single request is sent at once.
//!
//! A failed batch is retried for a while: events that the node appended at the first attempt are then there twice, with
//! the same ids.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Interval, MissedTickBehavior};

use crate::node::{Batch, Node, NodeError};

/// Maximum number of waiting requests; beyond it callers get 429.
const WAITING_MAX: usize = 32_768;
/// Maximum requests and approximate maximum bytes per batch.
const BATCH_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 400 << 10;
/// A batch of this many is sent at once, unless more are in flight; smaller ones wait at most `FLUSH_INTERVAL`.
const BATCH_TARGET: usize = 128;
const FLUSH_INTERVAL: Duration = Duration::from_millis(5);
/// Batches in flight at the same time.
const SENDERS: u32 = 4;
/// Attempts per batch, and the delay between them.
const TRIES: u32 = 20;
const RETRY_DELAY: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request is not on the hub, as far as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SendError {
    /// Too many requests wait; it was not sent.
    Full,
    /// The node did not accept it.
    Node(String),
}

/// The outcome of a batch; `None` while it is in flight.
type Outcome = Option<Result<(), SendError>>;

/// Which partition an event goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partitioning {
    /// By key, so that events of a delivery stay in order.
    ByKey,
    /// One partition per batch, for hubs with one event per delivery: a batch then costs one sync instead of one per
    /// partition.
    ByBatch,
}

pub(super) struct HubWriter {
    shared: Arc<Shared>,
}

struct Shared {
    hub: &'static str,
    pending: Mutex<PendingBatches>,
    /// A batch was begun, or may have reached its target.
    changed: Notify,
    /// Held by the next sender.
    next_sender: tokio::sync::Mutex<Interval>,
}

/// Batches not taken by a sender yet. Only the last one grows.
#[derive(Default)]
struct PendingBatches {
    batches: VecDeque<PendingBatch>,
    waiting: usize,
    /// Requests in flight.
    under_way: usize,
}

impl PendingBatches {
    fn batch_target(&self) -> usize {
        self.under_way.max(BATCH_TARGET)
    }
}

struct PendingBatch {
    events: Batch,
    outcome: watch::Sender<Outcome>,
}

impl HubWriter {
    /// A writer to a hub of the node at `address` (host and port).
    pub(super) fn open(address: &str, hub: &'static str, partitioning: Partitioning) -> HubWriter {
        let shared = Arc::new(Shared::new(hub));
        for number in 0..SENDERS {
            let sender = BatchSender {
                node: Node::new(address, TIMEOUT),
                hub,
                number,
                partitioning,
                partition: None,
            };
            tokio::spawn(shared.clone().send_batches(sender));
        }
        HubWriter { shared }
    }

    pub(super) fn hub(&self) -> &'static str {
        self.shared.hub
    }

    /// Sends the event that `write` adds to a batch. Completes when it is durable.
    pub(super) async fn send(&self, write: impl FnOnce(&mut Batch)) -> Result<(), SendError> {
        let mut outcome = self.shared.add(write)?;
        match outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            Ok(None) | Err(_) => Err(SendError::Node("the way to the node has ended".into())),
        }
    }
}

impl Shared {
    fn new(hub: &'static str) -> Shared {
        let mut flush = tokio::time::interval(FLUSH_INTERVAL);
        flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Shared {
            hub,
            pending: Mutex::default(),
            changed: Notify::new(),
            next_sender: tokio::sync::Mutex::new(flush),
        }
    }

    fn add(&self, write: impl FnOnce(&mut Batch)) -> Result<watch::Receiver<Outcome>, SendError> {
        let mut pending = self.pending.lock();
        if pending.waiting >= WAITING_MAX {
            return Err(SendError::Full);
        }
        pending.waiting += 1;
        if pending.batches.back().is_none_or(PendingBatch::is_full) {
            pending.batches.push_back(PendingBatch {
                events: Batch::new(),
                outcome: watch::Sender::new(None),
            });
        }
        let last = pending.batches.back_mut();
        let batch = last.expect("one was added if there was none");
        write(&mut batch.events);
        let begun = batch.events.len() == 1;
        let outcome = batch.outcome.subscribe();
        if begun || pending.waiting == pending.batch_target() {
            self.changed.notify_one();
        }
        Ok(outcome)
    }

    async fn send_batches(self: Arc<Self>, mut sender: BatchSender) {
        loop {
            let PendingBatch { events, outcome } = self.next().await;
            let count = events.len();
            outcome.send_replace(Some(sender.send_with_retries(events.text()).await));
            self.pending.lock().under_way -= count;
            self.changed.notify_one();
        }
    }

    async fn next(&self) -> PendingBatch {
        let mut flush = self.next_sender.lock().await;
        loop {
            let (waiting, target) = {
                let pending = self.pending.lock();
                (pending.waiting, pending.batch_target())
            };
            if waiting >= target {
                flush.reset();
                break;
            }
            tokio::select! {
                _ = flush.tick(), if waiting > 0 => break,
                () = self.changed.notified() => {}
            }
        }
        let mut pending = self.pending.lock();
        let batch = pending.batches.pop_front();
        let batch = batch.expect("something waits, and only who has the next_sender takes it");
        pending.waiting -= batch.events.len();
        pending.under_way += batch.events.len();
        batch
    }
}

impl PendingBatch {
    fn is_full(&self) -> bool {
        self.events.len() >= BATCH_MAX || self.events.bytes() >= BATCH_BYTES_MAX
    }
}

/// Sends batches to the node.
struct BatchSender {
    node: Node,
    hub: &'static str,
    number: u32,
    partitioning: Partitioning,
    /// Its partition, after it has read their number.
    partition: Option<u32>,
}

impl BatchSender {
    async fn send_with_retries(&mut self, batch: Bytes) -> Result<(), SendError> {
        let mut tries = 1;
        loop {
            match self.send(batch.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if tries == TRIES => return Err(SendError::Node(error.to_string())),
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
            tries += 1;
        }
    }

    async fn send(&mut self, batch: Bytes) -> Result<(), NodeError> {
        if self.partitioning == Partitioning::ByKey {
            return self.node.send(self.hub, batch).await;
        }
        let partition = match self.partition {
            Some(partition) => partition,
            None => self.number % self.node.partitions(self.hub).await?.max(1),
        };
        self.partition = Some(partition);
        self.node.send_to(self.hub, partition, batch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::CloudEvent;

    fn add(hub_writer: &Shared, count: usize) -> Result<(), SendError> {
        let event = CloudEvent {
            specversion: "1.0",
            id: "1",
            source: "/s",
            kind: "k",
            subject: "s",
            data: &(),
        };
        (0..count).try_for_each(|_| hub_writer.add(|batch| batch.push(&event)).map(drop))
    }

    /// Size of the next batch and how long it took. It stays in flight.
    async fn leaves(hub_writer: &Shared) -> (usize, Duration) {
        let before = tokio::time::Instant::now();
        let batch = hub_writer.next().await;
        (batch.events.len(), before.elapsed())
    }

    /// The same, and it is answered at once.
    async fn next(hub_writer: &Shared) -> (usize, Duration) {
        let left = leaves(hub_writer).await;
        hub_writer.pending.lock().under_way -= left.0;
        left
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_alone_goes_at_once_and_the_next_wait_for_each_other() {
        let hub_writer = Shared::new("h");
        add(&hub_writer, 1).unwrap();
        assert_eq!(next(&hub_writer).await, (1, Duration::ZERO));
        add(&hub_writer, 3).unwrap();
        assert_eq!(next(&hub_writer).await, (3, FLUSH_INTERVAL));
        tokio::time::advance(FLUSH_INTERVAL).await;
        add(&hub_writer, 2).unwrap();
        assert_eq!(next(&hub_writer).await, (2, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn enough_wait_for_nobody() {
        let hub_writer = Shared::new("h");
        for _ in 0..3 {
            add(&hub_writer, BATCH_TARGET).unwrap();
            assert_eq!(next(&hub_writer).await, (BATCH_TARGET, Duration::ZERO));
        }
        let (waited, added) = tokio::join!(next(&hub_writer), async {
            add(&hub_writer, 1).unwrap();
            tokio::time::sleep(FLUSH_INTERVAL / 5).await;
            add(&hub_writer, BATCH_TARGET)
        });
        added.unwrap();
        assert_eq!(waited, (BATCH_TARGET + 1, FLUSH_INTERVAL / 5));
    }

    #[tokio::test(start_paused = true)]
    async fn enough_is_as_many_as_are_under_way() {
        let hub_writer = Shared::new("h");
        add(&hub_writer, 2 * BATCH_TARGET).unwrap();
        assert_eq!(
            leaves(&hub_writer).await,
            (2 * BATCH_TARGET, Duration::ZERO)
        );
        add(&hub_writer, BATCH_TARGET).unwrap();
        assert_eq!(leaves(&hub_writer).await, (BATCH_TARGET, FLUSH_INTERVAL));
        add(&hub_writer, 3 * BATCH_TARGET).unwrap();
        assert_eq!(
            leaves(&hub_writer).await,
            (3 * BATCH_TARGET, Duration::ZERO)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_has_a_bound_and_so_has_a_batch() {
        let hub_writer = Shared::new("h");
        add(&hub_writer, WAITING_MAX).unwrap();
        assert_eq!(add(&hub_writer, 1), Err(SendError::Full));
        for _ in 0..WAITING_MAX / BATCH_MAX {
            assert_eq!(next(&hub_writer).await, (BATCH_MAX, Duration::ZERO));
        }
        add(&hub_writer, 1).unwrap();
        assert_eq!(next(&hub_writer).await.0, 1);
    }
}
