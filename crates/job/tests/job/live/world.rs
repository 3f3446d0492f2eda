//! A log in memory, a clock that is moved by hand, and jobs over them.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use highwater_connect::{ClusterConnector, FolderStore, OutsideAccess, StateStore};
use highwater_env::{Clock, SimClock, SimDisk};
use highwater_job::Job;
use highwater_job::config::{JobFile, Start};
use highwater_job::live::{AtEnd, DiskCheckpoints, Handle, JobContext, Options, start};
use highwater_log::batch::NewRecord;
use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog, Offset};
use highwater_retry::{Backoff, RetryPolicy};
use highwater_time::Instant;

use crate::live::cluster::TestCluster;
use crate::live::recorder::Recorder;

/// The first time of the clock: 2026-01-31T10:00:00Z.
pub(crate) const START_MS: i64 = 1_769_853_600_000;

pub(crate) struct World {
    pub clock: Arc<SimClock>,
    pub log: MemoryLog,
    pub disk: SimDisk,
    pub recorder: Recorder,
    /// The cluster of Kafka inputs, with topics of its own.
    pub cluster: TestCluster,
    /// The state of jobs that have it in a store.
    pub store: Arc<dyn StateStore>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let clock = Arc::new(SimClock::at_unix_nanos(i128::from(START_MS) * 1_000_000));
        let now = clock.clone();
        let disk = SimDisk::new(seed);
        World {
            store: folder_store(&disk),
            log: MemoryLog::new(move || now.unix_millis()),
            cluster: TestCluster::new(&clock),
            clock,
            disk,
            recorder: Recorder::default(),
        }
    }

    pub(crate) async fn hub(&self, name: &str, partitions: u32) {
        let spec = HubSpec {
            name: HubName::new(name).unwrap(),
            partitions,
            settings: HubSettings::default(),
        };
        self.log.create(spec).await.unwrap();
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// Appends events, one batch.
    pub(crate) async fn send(&self, hub: &str, partition: u32, events: &[String]) {
        let records: Vec<NewRecord<'_>> = events
            .iter()
            .map(|event| NewRecord {
                key: None,
                value: Some(event.as_bytes()),
                headers: &[],
            })
            .collect();
        let partition = self.log.partition(hub, partition).unwrap();
        partition.append_records(&records).await.unwrap();
    }

    /// Punctuates the partition.
    pub(crate) async fn silence(&self, hub: &str, partition: u32) {
        let partition = self.log.partition(hub, partition).unwrap();
        let end = partition.bounds().end;
        partition.punctuate(end).await.unwrap().unwrap();
    }

    pub(crate) fn end(&self, hub: &str, partition: u32) -> Offset {
        self.log.partition(hub, partition).unwrap().bounds().end
    }

    /// The same log, without checkpoints and rows.
    pub(crate) fn afresh(&self) -> World {
        let disk = SimDisk::new(0);
        World {
            clock: self.clock.clone(),
            log: self.log.clone(),
            store: folder_store(&disk),
            disk,
            recorder: Recorder::default(),
            cluster: self.cluster.clone(),
        }
    }

    pub(crate) fn context(&self) -> JobContext {
        JobContext {
            log: Arc::new(self.log.clone()),
            clock: self.clock.clone(),
            checkpoints: Arc::new(self.checkpoints()),
            endpoints: Arc::new(self.recorder.clone()),
            clusters: Some(ClusterConnector {
                clusters: Arc::new(self.cluster.clone()),
                access: OutsideAccess::default(),
            }),
            state: Some(self.store.clone()),
            assignor: None,
        }
    }

    pub(crate) fn checkpoints(&self) -> DiskCheckpoints {
        DiskCheckpoints::new(Arc::new(self.disk.clone()), PathBuf::from("checkpoints"))
    }

    pub(crate) fn start(&self, job: &Arc<Job>, options: Options) -> Handle {
        start(job.clone(), self.context(), options)
    }
}

fn folder_store(disk: &SimDisk) -> Arc<dyn StateStore> {
    Arc::new(FolderStore::new(Arc::new(disk.clone()), "state"))
}

pub(crate) fn job(text: &str) -> Arc<Job> {
    let file = JobFile::parse(text, "job.toml").unwrap_or_else(|error| panic!("{text}\n{error}"));
    Arc::new(Job::new(file).unwrap_or_else(|error| panic!("{error}")))
}

/// That many milliseconds after the first time of the clock.
pub(crate) fn at(ms: i64) -> Instant {
    Instant::from_unix_millis(START_MS + ms)
}

impl World {
    /// Since the first time of the clock.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.unix_millis() - START_MS
    }
}

/// From the first event on; punctuates as soon as the clock is moved; takes checkpoints on request only.
pub(crate) fn live() -> Options {
    Options {
        start: Some(Start::Beginning),
        silence: Duration::from_millis(1),
        checkpoint_every: Some(Duration::from_secs(3600)),
        retry: RetryPolicy {
            backoff: Backoff::Fixed(Duration::from_millis(1)),
            ..RetryPolicy::default()
        },
        ..Options::default()
    }
}

/// Up to the current ends of the partitions.
pub(crate) fn to_the_end() -> Options {
    Options {
        until_end: Some(AtEnd::Checkpoint),
        ..live()
    }
}

/// Fails if the future does not complete within a minute.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let patience = Duration::from_secs(60);
    let done = tokio::time::timeout(patience, what).await;
    done.expect("it happens soon")
}
