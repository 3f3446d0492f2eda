//! What tests of the coordinators share: Tokio's own clock, which stands still until nothing else is
//! left to do, and a log whose appends become durable when the test says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use highwater_env::{Clock, random::Random};
use highwater_log::batch::{Batch, NewRecord};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, HubName, HubSettings, HubSpec, Log, LogLayer, MemoryLog,
    Partition, PartitionLayer, Producer, TopicPartition, TransactionMarker,
};
use tokio::sync::oneshot;

/// How many seeds to try; `HIGHWATER_SEEDS` says otherwise.
pub(crate) fn seeds(usual: u64) -> u64 {
    let requested = std::env::var("HIGHWATER_SEEDS").ok();
    requested
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}

/// Follows Tokio's clock, from a given time on.
pub(crate) struct TokioClock {
    start: tokio::time::Instant,
    start_unix: Duration,
}

impl TokioClock {
    pub fn new(start_unix: Duration) -> Arc<TokioClock> {
        Arc::new(TokioClock {
            start: tokio::time::Instant::now(),
            start_unix,
        })
    }
}

impl Clock for TokioClock {
    fn unix_nanos(&self) -> i128 {
        (self.start_unix + self.elapsed()).as_nanos() as i128
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A log in memory whose appends wait until they are let through. Clones are the same log.
#[derive(Clone)]
pub(crate) struct SlowLog {
    memory: MemoryLog,
    gate: Arc<Mutex<Gate>>,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    waiting: VecDeque<(TopicPartition, Box<dyn FnOnce() + Send>)>,
    /// Hubs that take nothing for now.
    full: Vec<HubName>,
    appends: usize,
    /// How much later answers come, if they do.
    late: Option<Random>,
}

impl SlowLog {
    /// Open: every append is durable at once.
    pub fn new() -> SlowLog {
        SlowLog {
            memory: MemoryLog::new(|| 0),
            gate: Arc::default(),
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on answers come in any order, though what they answer keeps its own.
    pub fn answer_late(&self, random: Random) {
        self.gate().late = Some(random);
    }

    pub fn close(&self) {
        self.gate().closed = true;
    }

    pub fn open(&self) {
        self.gate().closed = false;
        while self.let_through(&mut Random::seeded(0)) {}
    }

    /// Makes the first append that waits at some partition durable; false if none waits.
    pub fn let_through(&self, random: &mut Random) -> bool {
        let mut gate = self.gate();
        let chosen = random.below(gate.waiting.len() as u64) as usize;
        let Some((topic_partition, _)) = gate.waiting.get(chosen) else {
            return false;
        };
        let first = gate
            .waiting
            .iter()
            .position(|(other, _)| other == topic_partition);
        let append = first.and_then(|first| gate.waiting.remove(first));
        drop(gate);
        append.into_iter().for_each(|(_, append)| append());
        true
    }

    /// What was not durable never was.
    pub fn crash(&self) {
        let lost = std::mem::take(&mut self.gate().waiting);
        drop(lost);
    }

    pub fn set_full(&self, hub: &str, full: bool) {
        let mut gate = self.gate();
        gate.full.retain(|other| other.as_str() != hub);
        if full {
            gate.full.push(HubName::new(hub).unwrap());
        }
    }

    /// How often something was appended.
    pub fn appends(&self) -> usize {
        self.gate().appends
    }

    pub fn make_hub(&self, name: &str, partitions: u32) {
        let spec = HubSpec {
            name: HubName::new(name).unwrap(),
            partitions,
            settings: HubSettings::default(),
        };
        at_once(self.memory.create(spec)).unwrap();
    }

    pub fn delete_hub(&self, name: &str) {
        at_once(self.memory.delete(&HubName::new(name).unwrap())).unwrap();
    }
}

/// The log in memory never waits.
fn at_once<T>(mut pending: BoxFuture<T>) -> T {
    match pending
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the log in memory waits"),
    }
}

pub(crate) fn topic_partition(hub: &str, partition: u32) -> TopicPartition {
    let hub = HubName::new(hub).unwrap();
    TopicPartition { hub, partition }
}

struct SlowPartition {
    log: SlowLog,
    inner: Arc<dyn Partition>,
}

type Append = Result<AppendInfo, AppendError>;

impl SlowPartition {
    fn pass(
        &self,
        append: impl FnOnce(&dyn Partition) -> BoxFuture<Append> + Send + 'static,
    ) -> BoxFuture<Append> {
        let topic_partition = self.inner.topic_partition().clone();
        let mut gate = self.log.gate();
        gate.appends += 1;
        if gate.full.contains(&topic_partition.hub) {
            return Box::pin(async {
                Err(AppendError::QueueFull {
                    topic_partition,
                    waiting: 0,
                })
            });
        }
        let inner = Arc::clone(&self.inner);
        if !gate.closed {
            let late = gate.late.as_mut().map_or(0, |random| random.below(8));
            drop(gate);
            let done = append(&*inner);
            return Box::pin(async move {
                for _ in 0..late {
                    tokio::task::yield_now().await;
                }
                done.await
            });
        }
        let (sender, answer) = oneshot::channel();
        let act = move || {
            let _ = sender.send(at_once(append(&*inner)));
        };
        gate.waiting.push_back((topic_partition, Box::new(act)));
        Box::pin(async move {
            match answer.await {
                Ok(answer) => answer,
                // Lost in a crash, of which nobody is told.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

impl PartitionLayer for SlowPartition {
    fn inner(&self) -> &dyn Partition {
        &*self.inner
    }

    fn append(&self, batch: Batch) -> BoxFuture<Append> {
        self.pass(move |inner| inner.append(batch))
    }

    fn append_records(&self, records: &[NewRecord<'_>]) -> BoxFuture<Append> {
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let copy: Vec<_> = (records.iter())
            .map(|record| (own(record.key), own(record.value)))
            .collect();
        self.pass(move |inner| {
            let records: Vec<NewRecord<'_>> = (copy.iter())
                .map(|(key, value)| NewRecord {
                    key: key.as_deref(),
                    value: value.as_deref(),
                    headers: &[],
                })
                .collect();
            inner.append_records(&records)
        })
    }

    fn append_marker(&self, producer: Producer, marker: TransactionMarker) -> BoxFuture<Append> {
        self.pass(move |inner| inner.append_marker(producer, marker))
    }
}

impl LogLayer for SlowLog {
    fn inner(&self) -> &dyn Log {
        &self.memory
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let inner = self.memory.partition(hub, partition)?;
        let log = self.clone();
        Some(Arc::new(SlowPartition { log, inner }))
    }
}
