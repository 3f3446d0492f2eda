//! A clock that follows Tokio's, and a log whose appends the test delays, fails or loses.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::testing::GatedLog;
use highwater_log::{AppendError, Log, LogLayer};
use highwater_queue::{Content, NewMessage, Options, Queue, Queues, Settings};

pub(crate) struct TokioClock(tokio::time::Instant);

impl TokioClock {
    pub(crate) fn new() -> Arc<TokioClock> {
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
pub(crate) struct Turned(AtomicU64);

impl Turned {
    pub(crate) fn set(&self, seconds: u64) {
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

/// A log whose disk can be full. Clones refer to the same log.
#[derive(Clone)]
pub(crate) struct Gated {
    log: GatedLog,
    full: Arc<AtomicBool>,
}

impl Deref for Gated {
    type Target = GatedLog;

    fn deref(&self) -> &GatedLog {
        &self.log
    }
}

impl LogLayer for Gated {
    fn inner(&self) -> &dyn Log {
        &self.log
    }
}

impl Gated {
    pub(crate) fn new() -> Gated {
        let log = GatedLog::default();
        let full = Arc::<AtomicBool>::default();
        let is_full = full.clone();
        // Producers with a rejected batch: their next batches are out of sequence.
        let mut broken = Vec::new();
        log.refuse(move |partition, producer| {
            let full = is_full.load(Ordering::Relaxed);
            match producer {
                Some(producer) if broken.contains(&producer.id) => {
                    let (expected, got) = (0, 1);
                    return Some(AppendError::OutOfSequence {
                        producer,
                        expected,
                        got,
                    });
                }
                Some(producer) if full => broken.push(producer.id),
                _ => {}
            }
            full.then(|| AppendError::DiskFull {
                topic_partition: partition.clone(),
                reason: "the test says so".into(),
            })
        });
        Gated { log, full }
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// Loses all appends that are not durable.
    pub(crate) fn crash(&self) {
        self.lose();
        self.open();
    }

    pub(crate) async fn open_queues(&self, clock: Arc<TokioClock>, options: Options) -> Queues {
        let log: Arc<dyn Log> = Arc::new(self.log.clone());
        let (queues, failed) = Queues::open(log, clock, Random::from_os(), options).await;
        assert!(failed.is_empty(), "{failed:?}");
        queues
    }

    pub(crate) async fn queue(&self, settings: Settings) -> (Queues, Queue, Arc<TokioClock>) {
        let clock = TokioClock::new();
        let queues = self.open_queues(clock.clone(), Options::default()).await;
        let queue = queues.create("q", settings).await.unwrap();
        (queues, queue, clock)
    }
}

pub(crate) fn message(body: &str) -> NewMessage {
    NewMessage {
        content: Content {
            body: body.to_owned().into(),
            ..Content::default()
        },
        ..NewMessage::default()
    }
}

pub(crate) fn bodies(deliveries: &[highwater_queue::Delivery]) -> Vec<String> {
    let bodies = deliveries.iter().map(|it| it.message.content.body.to_vec());
    bodies
        .map(|body| String::from_utf8(body).unwrap())
        .collect()
}
