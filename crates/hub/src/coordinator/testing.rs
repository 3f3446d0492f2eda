//! What tests of the coordinators share: Tokio's own clock, which stands still until nothing else is
//! left to do, and a log whose appends become durable when the test says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use highwater_env::{Clock, random::Random};
use highwater_log::batch::{Batch, NewRecord};
use highwater_log::{
    AdminError, AppendError, Appended, Bounds, EnqueueTime, Fetched, HubId, HubInfo, HubName,
    HubSettings, HubSpec, Isolation, Log, Marker, MemoryLog, Offset, Partition, Pending, Place,
    Producer, ReadError,
};
use tokio::sync::oneshot;

/// How many seeds to try; `HIGHWATER_SEEDS` says otherwise.
pub(crate) fn seeds(usual: u64) -> u64 {
    let asked = std::env::var("HIGHWATER_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(usual)
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
    waiting: VecDeque<(Place, Box<dyn FnOnce() + Send>)>,
    /// Hubs that take nothing for now.
    full: Vec<HubName>,
    appends: usize,
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
        let Some((place, _)) = gate.waiting.get(chosen) else {
            return false;
        };
        let first = gate.waiting.iter().position(|(other, _)| other == place);
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
fn at_once<T>(mut pending: Pending<T>) -> T {
    match pending
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the log in memory waits"),
    }
}

pub(crate) fn place(hub: &str, partition: u32) -> Place {
    let hub = HubName::new(hub).unwrap();
    Place { hub, partition }
}

struct SlowPartition {
    log: SlowLog,
    inner: Arc<dyn Partition>,
}

type Append = Result<Appended, AppendError>;

impl SlowPartition {
    fn pass(
        &self,
        append: impl FnOnce(&dyn Partition) -> Pending<Append> + Send + 'static,
    ) -> Pending<Append> {
        let place = self.inner.place().clone();
        let mut gate = self.log.gate();
        gate.appends += 1;
        if gate.full.contains(&place.hub) {
            return Box::pin(async { Err(AppendError::Full { place, waiting: 0 }) });
        }
        let inner = Arc::clone(&self.inner);
        if !gate.closed {
            drop(gate);
            return append(&*inner);
        }
        let (sender, answer) = oneshot::channel();
        let act = move || {
            let _ = sender.send(at_once(append(&*inner)));
        };
        gate.waiting.push_back((place, Box::new(act)));
        Box::pin(async move {
            match answer.await {
                Ok(answer) => answer,
                // Lost in a crash, of which nobody is told.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

impl Partition for SlowPartition {
    fn place(&self) -> &Place {
        self.inner.place()
    }

    fn append(&self, batch: Batch) -> Pending<Append> {
        self.pass(move |inner| inner.append(batch))
    }

    fn append_records(&self, records: &[NewRecord<'_>]) -> Pending<Append> {
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

    fn append_marker(&self, producer: Producer, marker: Marker) -> Pending<Append> {
        self.pass(move |inner| inner.append_marker(producer, marker))
    }

    fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Pending<Result<Fetched, ReadError>> {
        self.inner.read(from, bytes_max, isolation)
    }

    fn bounds(&self) -> Bounds {
        self.inner.bounds()
    }

    fn wait_past(&self, offset: Offset, isolation: Isolation) -> Pending<()> {
        self.inner.wait_past(offset, isolation)
    }

    fn find(&self, time: EnqueueTime) -> Pending<Result<Option<(Offset, EnqueueTime)>, ReadError>> {
        self.inner.find(time)
    }

    fn trim(&self, offset: Offset) -> Pending<Result<Offset, ReadError>> {
        self.inner.trim(offset)
    }
}

impl Log for SlowLog {
    fn hubs(&self) -> Vec<Arc<HubInfo>> {
        self.memory.hubs()
    }

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        self.memory.hub(name)
    }

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>> {
        self.memory.hub_by_id(id)
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        let inner = self.memory.partition(hub, partition)?;
        let log = self.clone();
        Some(Arc::new(SlowPartition { log, inner }))
    }

    fn create(&self, spec: HubSpec) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.memory.create(spec)
    }

    fn delete(&self, name: &HubName) -> Pending<Result<(), AdminError>> {
        self.memory.delete(name)
    }

    fn grow(&self, name: &HubName, partitions: u32) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.memory.grow(name, partitions)
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> Pending<Result<Arc<HubInfo>, AdminError>> {
        self.memory.change(name, settings)
    }
}
