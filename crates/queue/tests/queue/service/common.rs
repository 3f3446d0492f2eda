//! A clock that follows Tokio's, and a log whose appends the test delays, fails or loses.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::batch::{Batch, NewRecord};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, Log, LogLayer, MemoryLog, Partition, PartitionLayer,
    Producer, TransactionMarker,
};
use highwater_queue::{Content, NewMessage, Options, Queue, Queues, Settings};
use tokio::sync::oneshot;

pub struct TokioClock(tokio::time::Instant);

impl TokioClock {
    pub fn new() -> Arc<TokioClock> {
        Arc::new(TokioClock(tokio::time::Instant::now()))
    }
}

impl Clock for TokioClock {
    fn unix_nanos(&self) -> i128 {
        1_700_000_000_000_000_000 + self.elapsed().as_nanos() as i128
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock set by the test, backwards too.
#[derive(Default)]
pub struct Turned(AtomicU64);

impl Turned {
    pub fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for Turned {
    fn unix_nanos(&self) -> i128 {
        i128::from(self.0.load(Ordering::Relaxed)) * 1_000_000_000
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// Clones refer to the same log.
#[derive(Clone)]
pub struct Gated {
    memory: MemoryLog,
    gate: Arc<Mutex<Gate>>,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    full: bool,
    waiting: VecDeque<Box<dyn FnOnce(bool) + Send>>,
    /// Producers with a rejected batch: their next batches are out of sequence.
    broken: Vec<i64>,
}

impl Gated {
    pub fn new() -> Gated {
        let memory = MemoryLog::new(|| 0);
        let gate = Arc::default();
        Gated { memory, gate }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on appends wait.
    pub fn close(&self) {
        self.gate().closed = true;
    }

    /// Appends no longer wait, and the waiting ones are durable.
    pub fn open(&self) {
        while self.let_through(true) {}
        self.gate().closed = false;
    }

    pub fn set_full(&self, full: bool) {
        self.gate().full = full;
    }

    /// Makes the first waiting append durable, or loses it. Returns false if none waits.
    pub fn let_through(&self, durable: bool) -> bool {
        let first = self.gate().waiting.pop_front();
        let some = first.is_some();
        first.into_iter().for_each(|act| act(durable));
        some
    }

    /// Loses all appends that are not durable.
    pub fn crash(&self) {
        while self.let_through(false) {}
        self.gate().closed = false;
    }

    pub async fn open_queues(&self, clock: Arc<TokioClock>, options: Options) -> Queues {
        let log: Arc<dyn Log> = Arc::new(self.clone());
        let (queues, failed) = Queues::open(log, clock, Random::from_os(), options).await;
        assert!(failed.is_empty(), "{failed:?}");
        queues
    }

    pub async fn queue(&self, settings: Settings) -> (Queues, Queue, Arc<TokioClock>) {
        let clock = TokioClock::new();
        let queues = self.open_queues(clock.clone(), Options::default()).await;
        let queue = queues.create("q", settings).await.unwrap();
        (queues, queue, clock)
    }
}

impl LogLayer for Gated {
    fn inner(&self) -> &dyn Log {
        &self.memory
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let inner = self.memory.partition(hub, partition)?;
        let log = self.clone();
        Some(Arc::new(GatedPartition { log, inner }))
    }
}

struct GatedPartition {
    log: Gated,
    inner: Arc<dyn Partition>,
}

impl GatedPartition {
    fn refusal(&self, producer: Option<Producer>) -> Option<AppendError> {
        let mut gate = self.log.gate();
        let topic_partition = self.inner.topic_partition().clone();
        if let Some(producer) = producer {
            if gate.broken.contains(&producer.id) {
                let (expected, got) = (0, 1);
                return Some(AppendError::OutOfSequence {
                    producer,
                    expected,
                    got,
                });
            }
            if gate.full {
                gate.broken.push(producer.id);
            }
        }
        let reason = "the test says so".into();
        (gate.full).then_some(AppendError::DiskFull {
            topic_partition,
            reason,
        })
    }
}

impl PartitionLayer for GatedPartition {
    fn inner(&self) -> &dyn Partition {
        &*self.inner
    }

    fn append(&self, batch: Batch) -> BoxFuture<Result<AppendInfo, AppendError>> {
        if let Some(error) = self.refusal(batch.header().producer()) {
            return Box::pin(async { Err(error) });
        }
        let mut gate = self.log.gate();
        if !gate.closed {
            drop(gate);
            return self.inner.append(batch);
        }
        let (sender, answer) = oneshot::channel();
        let inner = self.inner.clone();
        gate.waiting.push_back(Box::new(move |durable| {
            if durable {
                let _ = sender.send(at_once(inner.append(batch)));
            }
        }));
        Box::pin(async move {
            match answer.await {
                Ok(answer) => answer,
                // Lost in a crash, so there is no reply.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn append_records(
        &self,
        records: &[NewRecord<'_>],
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.inner.append_records(records)
    }

    fn append_marker(
        &self,
        producer: Producer,
        marker: TransactionMarker,
    ) -> BoxFuture<Result<AppendInfo, AppendError>> {
        self.inner.append_marker(producer, marker)
    }
}

fn at_once<T>(mut pending: BoxFuture<T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pending.as_mut().poll(&mut context) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the log in memory waits"),
    }
}

pub fn message(body: &str) -> NewMessage {
    NewMessage {
        content: Content {
            body: body.to_owned().into(),
            ..Content::default()
        },
        ..NewMessage::default()
    }
}

pub fn bodies(deliveries: &[highwater_queue::Delivery]) -> Vec<String> {
    let bodies = deliveries.iter().map(|it| it.message.content.body.to_vec());
    bodies
        .map(|body| String::from_utf8(body).unwrap())
        .collect()
}
