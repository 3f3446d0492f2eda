//! A log with events, tokio's clock, and a position store that is slow and fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_env::Clock;
use highwater_flow::{DeadLetter, DeadLetterSink, Event, PositionStore};
use highwater_log::batch::NewRecord;
use highwater_log::{
    BoxFuture, GroupError, HubName, HubSettings, HubSpec, Log, MemoryLog, Offset, Partition,
    TopicPartition,
};

/// Tokio's clock, which does not advance while any task can run.
pub(crate) struct TokioClock(tokio::time::Instant);

impl TokioClock {
    pub(crate) fn start() -> Arc<TokioClock> {
        Arc::new(TokioClock(tokio::time::Instant::now()))
    }
}

impl Clock for TokioClock {
    fn unix_nanos(&self) -> i128 {
        self.elapsed().as_nanos() as i128
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Runs under a paused clock.
pub(crate) fn paused<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(work)
}

pub(crate) async fn partition() -> Arc<dyn Partition> {
    let log = MemoryLog::new(|| 0);
    let name = HubName::new("tolls").unwrap();
    let spec = HubSpec {
        name,
        partitions: 1,
        settings: HubSettings::default(),
    };
    log.create(spec).await.unwrap();
    log.partition("tolls", 0).unwrap()
}

/// One record for each key, three to a batch; the value is the number of the record.
pub(crate) async fn append(partition: &Arc<dyn Partition>, keys: &[Option<u8>]) {
    for (batch, keys) in keys.chunks(3).enumerate() {
        let number = |n: usize| (batch * 3 + n).to_string().into_bytes();
        let values: Vec<_> = (0..keys.len()).map(number).collect();
        let record = |(key, value)| NewRecord {
            key: Option::as_ref(key).map(std::slice::from_ref),
            value: Some(Vec::as_slice(value)),
            headers: &[("kind", Some(b"toll"))],
        };
        let records: Vec<_> = keys.iter().zip(&values).map(record).collect();
        partition.append_records(&records).await.unwrap();
    }
}

pub(crate) fn number(event: &Event) -> usize {
    let text = std::str::from_utf8(event.value().unwrap()).unwrap();
    text.parse().unwrap()
}

/// Stores dead letters; fails the first few times.
#[derive(Default)]
pub(crate) struct Letters {
    pub kept: Mutex<Vec<DeadLetter>>,
    pub refusals: Mutex<u32>,
}

impl DeadLetterSink for Letters {
    fn put(&self, letter: &DeadLetter) -> BoxFuture<Result<(), String>> {
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 {
            *refusals -= 1;
            return Box::pin(async { Err("the disk is full".into()) });
        }
        self.kept.lock().unwrap().push(letter.clone());
        Box::pin(async { Ok(()) })
    }
}

type EventCheck = Box<dyn Fn(Offset) + Send + Sync>;

/// A position store that is slow; every third store fails.
pub(crate) struct Slow {
    pub stored: Arc<Mutex<Vec<Offset>>>,
    pub takes: Duration,
    pub calls: Mutex<u32>,
    pub fails: bool,
    /// Called with every position to store.
    pub check: EventCheck,
}

impl Slow {
    pub(crate) fn new(takes: Duration, check: impl Fn(Offset) + Send + Sync + 'static) -> Slow {
        Slow {
            stored: Arc::default(),
            takes,
            calls: Mutex::new(0),
            fails: false,
            check: Box::new(check),
        }
    }
}

impl PositionStore for Slow {
    fn last(&self, _: &TopicPartition) -> BoxFuture<Result<Option<Offset>, GroupError>> {
        let last = self.stored.lock().unwrap().last().copied();
        Box::pin(async move { Ok(last) })
    }

    fn store(&self, _: &TopicPartition, next: Offset) -> BoxFuture<Result<(), GroupError>> {
        (self.check)(next);
        let mut calls = self.calls.lock().unwrap();
        *calls += 1;
        let fails = self.fails && *calls % 3 == 1;
        let (stored, takes) = (Arc::clone(&self.stored), self.takes);
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            if fails {
                return Err(GroupError::Loading);
            }
            stored.lock().unwrap().push(next);
            Ok(())
        })
    }
}
