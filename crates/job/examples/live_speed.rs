//! The cost of a live job beside the same query over a file, and the pause of a checkpoint of a million groups.
//!
//! ```sh
//! cargo run --release -p highwater-job --example live_speed [EVENTS]
//! ```
//!
//! The log is in memory, so that only the job is measured: fetching, decoding, ordering, the query, numbering and
//! checkpoints. CPU seconds are those of the whole process.

#![allow(clippy::disallowed_methods)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_connect::{Endpoint, EndpointError, EndpointFuture, Rows};
use highwater_env::random::Random;
use highwater_env::{Clock, RealClock, RealDisk, usage};
use highwater_job::config::{JobFile, Start};
use highwater_job::live::{
    AtEnd, DiskCheckpoints, EndpointRequest, Endpoints, JobContext, Options, start,
};
use highwater_job::{Job, Options as FileOptions, Outputs, run};
use highwater_log::batch::{BatchBuilder, BatchOptions, NewRecord};
use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog};
use highwater_retry::RetryPolicy;
use highwater_time::Instant;

const COUNTS: &str = "SELECT TollId, System.Timestamp() AS WindowEnd, COUNT(*) AS Cars, SUM(Toll) AS Takings, \
    AVG(Toll) AS AverageToll INTO out FROM Input TIMESTAMP BY EntryTime GROUP BY TollId, TumblingWindow(minute, 1)";
const PLATES: &str = "SELECT LicensePlate, COUNT(*) AS Passages INTO out FROM Input TIMESTAMP BY EntryTime \
    GROUP BY LicensePlate, TumblingWindow(day, 1)";

/// Records of a batch.
const BATCH: usize = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let events = std::env::args()
        .nth(1)
        .map_or(Ok(2_000_000), |count| count.parse())?;
    let folder = tempfile::tempdir()?;
    let traffic = traffic(events);
    let file = folder.path().join("input.jsonl");
    std::fs::write(&file, traffic.join("\n"))?;

    let job = load(
        COUNTS,
        &format!("path = {:?}", file.display().to_string()),
        folder.path(),
    );
    let before = cpu();
    run(&job, Outputs::discarded(&job.plan), FileOptions::default())?;
    let by_file = cpu() - before;

    let log = fill(&traffic).await;
    let seconds = live(COUNTS, &log, &folder.path().join("counts"), events).await;
    let million = events as f64 / 1e6;
    println!("file {:.3} CPU s per million events", by_file / million);
    println!(
        "live {:.3} CPU s per million events, {:.2} times the file",
        seconds / million,
        seconds / by_file
    );
    live(PLATES, &log, &folder.path().join("plates"), events).await;
    Ok(())
}

/// Runs a query over the whole log with a checkpoint every second; the CPU seconds that it took.
async fn live(query: &str, log: &MemoryLog, folder: &Path, events: usize) -> f64 {
    let job = Arc::new(load(query, "hub = \"toll\"", folder));
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let site = JobContext {
        log: Arc::new(log.clone()),
        clock: clock.clone(),
        checkpoints: Arc::new(DiskCheckpoints::new(Arc::new(RealDisk), folder)),
        endpoints: Arc::new(Nowhere),
        clusters: None,
        state: None,
        assignor: None,
    };
    let options = Options {
        start: Some(Start::Beginning),
        checkpoint_every: Some(Duration::from_secs(1)),
        until_end: Some(AtEnd::Checkpoint),
        retry: RetryPolicy::default(),
        ..Options::default()
    };
    let (began, before) = (clock.elapsed(), cpu());
    let status = start(job.clone(), site.clone(), options.clone())
        .ended()
        .await;
    let (took, used) = (clock.elapsed() - began, cpu() - before);
    println!(
        "{:?}: {events} events in {took:.2?}, {used:.2} CPU s; last checkpoint {} of {:.1} MB held it up for {:.1?}",
        status.state,
        status.checkpoint.number,
        status.checkpoint.bytes as f64 / 1e6,
        status.checkpoint.pause,
    );
    let began = clock.elapsed();
    let again = Options {
        start: None,
        ..options
    };
    let status = start(job, site, again).ended().await;
    println!(
        "{:?}: went on from there in {:.2?}",
        status.state,
        clock.elapsed() - began
    );
    used
}

fn load(query: &str, input: &str, folder: &Path) -> Job {
    let text = format!(
        "name = \"speed\"\nsql = \"{query}\"\n[time]\nout_of_order = \"5s\"\nlate_arrival = \"2d\"\nearly_arrival = \"off\"\n[inputs.Input]\n{input}\n"
    );
    let file = JobFile::parse(&text, "job.toml").unwrap_or_else(|error| panic!("{error}"));
    Job::new(file.resolve(folder)).unwrap_or_else(|error| panic!("{error}"))
}

fn cpu() -> f64 {
    usage().cpu.unwrap_or_default().as_secs_f64()
}

/// Events of the published shape, with a plate for every one of the first million.
fn traffic(events: usize) -> Vec<String> {
    let mut random = Random::seeded(1);
    let opening = Instant::from_civil(2026, 1, 1).unwrap_or(Instant::CALENDAR_START);
    let event = |number: usize| {
        let late = if number.is_multiple_of(20) {
            random.below(2_000) as i64
        } else {
            0
        };
        let time = Instant::from_unix_millis(opening.to_unix_millis() + number as i64 - late);
        let plate = (number as u64).wrapping_mul(0x9E37_79B1) % 1_000_000;
        format!(
            "{{\"TollId\":{},\"EntryTime\":\"{time}\",\"LicensePlate\":\"P {plate:06}\",\"State\":\"NY\",\"Make\":\"Honda\",\
             \"VehicleType\":{},\"Toll\":{}.5,\"Tag\":\"{}\"}}",
            random.below(10),
            1 + random.below(3),
            4 + random.below(9),
            random.next_u64(),
        )
    };
    (0..events).map(event).collect()
}

async fn fill(traffic: &[String]) -> MemoryLog {
    let log = MemoryLog::new(|| 1_767_312_000_000);
    let spec = HubSpec {
        name: HubName::new("toll").expect("it is a name"),
        partitions: 1,
        settings: HubSettings::default(),
    };
    log.create(spec).await.expect("there is no hub yet");
    let partition = log.partition("toll", 0).expect("it was made just now");
    let mut builder = BatchBuilder::new();
    for batch in traffic.chunks(BATCH) {
        for event in batch {
            builder.push(&NewRecord {
                key: None,
                value: Some(event.as_bytes()),
                headers: &[],
            });
        }
        let batch = builder
            .build(&BatchOptions::default())
            .expect("it has records");
        partition.append(batch).await.expect("memory takes it");
    }
    log
}

struct Nowhere;

impl Endpoints for Nowhere {
    fn open(&self, _: &EndpointRequest<'_>) -> Result<Box<dyn Endpoint>, EndpointError> {
        Ok(Box::new(Nowhere))
    }
}

impl Endpoint for Nowhere {
    fn resume<'a>(&'a mut self, _: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn write<'a>(&'a mut self, _: &'a Rows) -> EndpointFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
