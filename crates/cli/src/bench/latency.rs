//! `highwater bench latency`: how long it takes from an event to the rows that it makes, at a fixed rate.
//!
//! A node of its own, whose hubs are on a disk, runs a job without tolerances. The load is open loop: events are due at times that the
//! rate alone decides, carry them, and are sent in batches of a millisecond. A reader on the hub of the results compares the
//! time that a row carries with the time at which it is seen. So the clock starts before the first byte is sent, and a
//! window counts from the moment that ends it. Sender and reader share this process, so the CPU time is theirs too.

mod reader;
mod sender;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use highwater_env::{Clock, RealClock};
use highwater_time::Instant;
use serde_json::{Value, json};

use self::reader::{Reader, Until};
use self::sender::Sender;
use super::local::{Local, cpu, in_new_folder};
use crate::block_on::one_thread;
use crate::exit::Ending;

/// How long before the first event is due.
const AHEAD_MS: i64 = 500;

/// How long after the last event rows may take at most.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub struct BenchLatency {
    /// Events a second
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    rate: u64,
    /// How long to send, for each query
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,
    /// Connections that the batches are spread over
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    connections: u64,
    /// Partitions of the hub
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    partitions: u64,
    /// A folder for the hubs, which must not be there and is removed in the end
    #[arg(long)]
    dir: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

/// A query, and what its rows say.
struct Query {
    name: &'static str,
    sql: &'static str,
    is_window: bool,
}

const QUERIES: [Query; 2] = [
    Query {
        name: "rows",
        sql: "SELECT EntryTime AS At, TollId, LicensePlate, Toll FROM Input TIMESTAMP BY EntryTime",
        is_window: false,
    },
    Query {
        name: "windows",
        sql: "SELECT System.Timestamp() AS At, TollId, COUNT(*) AS Cars FROM Input TIMESTAMP BY EntryTime \
              GROUP BY TollId, TumblingWindow(second, 1)",
        is_window: true,
    },
];

/// What was measured of one query; times are in microseconds.
struct Measured {
    /// From when an event was due until the hub had it safe.
    appends: Histogram<u64>,
    /// From the time of a row until it was seen.
    rows: Histogram<u64>,
    cpu: f64,
}

impl BenchLatency {
    pub fn run(self) -> anyhow::Result<Ending> {
        in_new_folder(self.dir.as_deref(), async |dir| {
            let mut node = Local::start(dir, &[]).await?;
            for query in &QUERIES {
                let measured = self.measure(&mut node, query).await?;
                self.report(query, &measured)?;
            }
            node.stop().await;
            Ok(Ending::Well)
        })
    }

    async fn measure(&self, node: &mut Local, query: &Query) -> anyhow::Result<Measured> {
        let (from, to) = (format!("{}-in", query.name), format!("{}-out", query.name));
        node.create_hub(&from, self.partitions).await?;
        node.create_hub(&to, 1).await?;
        let job = format!(
            "sql = \"{}\"\n[time]\nout_of_order = \"0s\"\n[inputs.Input]\ntype = \"hub\"\nhub = \"{from}\"\n\
             [outputs.output]\ntype = \"hub\"\nhub = \"{to}\"\n",
            query.sql
        );
        node.start_job(query.name, &job).await?;
        while node.job(query.name).await?["state"] != "running" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = cpu();
        let clock = RealClock::new();
        let now_ms = clock.unix_nanos().div_euclid(1_000_000) as i64;
        let sender = Sender {
            server: node.server.clone(),
            hub: from,
            partitions: self.partitions,
            rate: self.rate,
            begin_ms: now_ms + AHEAD_MS,
            milliseconds: self.seconds * 1000,
            connections: self.connections,
        };
        let reader = Reader {
            server: node.server.clone(),
            hub: to,
            until: match query.is_window {
                false => Until::Count(self.rate * self.seconds),
                true => Until::Time(last_window(&sender)),
            },
        };
        let sending = on_a_thread(async move { sender.run().await })?;
        let patience = Duration::from_secs(self.seconds) + PATIENCE;
        let reading = on_a_thread(async move {
            let read = tokio::time::timeout(patience, reader.run()).await;
            read.context("the rows did not come")?
        })?;
        let (appends, rows) = (sending.await??, reading.await??);
        let cpu = cpu() - before;
        node.stop_job(query.name).await?;
        Ok(Measured { appends, rows, cpu })
    }

    fn report(&self, query: &Query, measured: &Measured) -> anyhow::Result<()> {
        let events = (self.rate * self.seconds) as f64;
        if self.json {
            let report = json!({
                "query": query.name, "events": events, "events_per_second": self.rate,
                "appends": latencies(&measured.appends), "rows": latencies(&measured.rows),
                "cpu_seconds": measured.cpu, "cpu_seconds_per_million": measured.cpu * 1e6 / events,
            });
            writeln!(stdout(), "{report}")?;
            return Ok(());
        }
        let line = |name: &str, seen: &Histogram<u64>| {
            let at = |quantile| Duration::from_micros(seen.value_at_quantile(quantile));
            format!(
                "{name:9} {}/s seen={} p50={:?} p99={:?} p99.9={:?} max={:?}",
                self.rate,
                seen.len(),
                at(0.5),
                at(0.99),
                at(0.999),
                Duration::from_micros(seen.max()),
            )
        };
        let mut out = stdout().lock();
        writeln!(out, "{}", line("batches", &measured.appends))?;
        writeln!(
            out,
            "{} cpu={:.2} cpu_per_million={:.2}",
            line(query.name, &measured.rows),
            measured.cpu,
            measured.cpu * 1e6 / events
        )?;
        Ok(())
    }
}

/// The end of the last window that an event is sure to close.
fn last_window(sender: &Sender) -> Instant {
    let last_ms = sender.begin_ms + sender.milliseconds as i64 - 100;
    Instant::from_unix_millis(last_ms - last_ms.rem_euclid(1000))
}

/// Off the threads of the node, so that neither waits in the other's queue.
fn on_a_thread<T: Send + 'static>(
    work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<impl Future<Output = anyhow::Result<anyhow::Result<T>>>> {
    let (done, waiting) = tokio::sync::oneshot::channel();
    let runtime = one_thread()?;
    thread::Builder::new()
        .name("bench".into())
        .spawn(move || done.send(runtime.block_on(work)))?;
    Ok(async { waiting.await.context("a thread ended unexpectedly") })
}

fn latencies(seen: &Histogram<u64>) -> Value {
    let at = |quantile| seen.value_at_quantile(quantile) as f64 / 1000.0;
    json!({
        "seen": seen.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999),
        "max_ms": seen.max() as f64 / 1000.0,
    })
}
