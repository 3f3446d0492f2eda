//! `highwater bench latency`: the latency from an event to its rows, at a fixed rate.
//!
//! A node in this process, with its hubs on disk, runs a job without tolerances. The load is open loop: the rate alone
//! decides when events are due; they carry that time and are sent in batches of a millisecond. A reader of the output
//! hub compares the time in a row with the time at which it reads the row. So the latency starts before the first byte
//! is sent, and the latency of a window starts at its end. The CPU time includes sender and reader, which share this
//! process.

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
use serde_json::json;

use self::reader::{LastRow, Reader};
use self::sender::Sender;
use super::bench_node::{BenchNode, cpu, in_new_folder};
use super::percentiles::{percentiles_json, percentiles_text};
use crate::exit::ExitStatus;
use crate::runtime::single_threaded;

/// Time until the first event is due.
const LEAD_MS: i64 = 500;

/// How long rows may take after the last event.
const ROW_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct BenchLatency {
    /// Events a second
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    rate: u64,
    /// Duration of the load, for each query
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,
    /// Number of connections
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    connections: u64,
    /// Number of partitions of the hub
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    partitions: u64,
    /// A folder for the hubs, which must not exist and is removed at the end
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

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

/// Latencies of one query in microseconds, and its CPU seconds.
struct QueryResult {
    /// From the due time of an event until its append is durable.
    appends: Histogram<u64>,
    /// From the time in a row until it is read.
    rows: Histogram<u64>,
    cpu: f64,
}

impl BenchLatency {
    pub(super) fn run(self) -> anyhow::Result<ExitStatus> {
        in_new_folder(self.dir.as_deref(), async |dir| {
            let mut node = BenchNode::start(dir, &[]).await?;
            for query in &QUERIES {
                let result = self.measure(&mut node, query).await?;
                self.report(query, &result)?;
            }
            node.stop().await;
            Ok(ExitStatus::Success)
        })
    }

    async fn measure(&self, node: &mut BenchNode, query: &Query) -> anyhow::Result<QueryResult> {
        let (from, to) = (format!("{}-in", query.name), format!("{}-out", query.name));
        node.create_hub(&from, self.partitions).await?;
        node.create_hub(&to, 1).await?;
        let job = format!(
            "sql = \"{}\"\n[time]\nout_of_order = \"0s\"\n[inputs.Input]\ntype = \"hub\"\nhub = \"{from}\"\n\
             [outputs.output]\ntype = \"hub\"\nhub = \"{to}\"\n",
            query.sql
        );
        node.start_job(query.name, &job).await?;
        while node.job_status(query.name).await?["state"] != "running" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = cpu();
        let clock = RealClock::new();
        let now_ms = clock.unix_millis();
        let sender = Sender {
            server: node.server.clone(),
            hub: from,
            partitions: self.partitions,
            rate: self.rate,
            begin_ms: now_ms + LEAD_MS,
            milliseconds: self.seconds * 1000,
            connections: self.connections,
        };
        let reader = Reader {
            server: node.server.clone(),
            hub: to,
            last: match query.is_window {
                false => LastRow::Count(self.rate * self.seconds),
                true => LastRow::Time(last_window(&sender)),
            },
        };
        let sending = on_own_thread(async move { sender.run().await })?;
        let timeout = Duration::from_secs(self.seconds) + ROW_TIMEOUT;
        let reading = on_own_thread(async move {
            let read = tokio::time::timeout(timeout, reader.run()).await;
            read.context("the rows are missing")?
        })?;
        let (appends, rows) = (sending.await??, reading.await??);
        let cpu = cpu() - before;
        node.stop_job(query.name).await?;
        Ok(QueryResult { appends, rows, cpu })
    }

    fn report(&self, query: &Query, result: &QueryResult) -> anyhow::Result<()> {
        let events = (self.rate * self.seconds) as f64;
        if self.json {
            let report = json!({
                "query": query.name, "events": events, "events_per_second": self.rate,
                "appends": percentiles_json("seen", &result.appends), "rows": percentiles_json("seen", &result.rows),
                "cpu_seconds": result.cpu, "cpu_seconds_per_million": result.cpu * 1e6 / events,
            });
            writeln!(stdout(), "{report}")?;
            return Ok(());
        }
        let line = |name: &str, latencies: &Histogram<u64>| {
            format!(
                "{name:9} {}/s seen={} {}",
                self.rate,
                latencies.len(),
                percentiles_text(latencies)
            )
        };
        let mut out = stdout().lock();
        writeln!(out, "{}", line("batches", &result.appends))?;
        writeln!(
            out,
            "{} cpu={:.2} cpu_per_million={:.2}",
            line(query.name, &result.rows),
            result.cpu,
            result.cpu * 1e6 / events
        )?;
        Ok(())
    }
}

/// The end of the last window that a later event closes.
fn last_window(sender: &Sender) -> Instant {
    let last_ms = sender.begin_ms + sender.milliseconds as i64 - 100;
    Instant::from_unix_millis(last_ms - last_ms.rem_euclid(1000))
}

/// Runs `work` apart from the node's threads, so that neither waits in the other's queue.
fn on_own_thread<T: Send + 'static>(
    work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<impl Future<Output = anyhow::Result<anyhow::Result<T>>>> {
    let (done, waiting) = tokio::sync::oneshot::channel();
    let runtime = single_threaded()?;
    thread::Builder::new()
        .name("bench".into())
        .spawn(move || done.send(runtime.block_on(work)))?;
    Ok(async { waiting.await.context("a benchmark thread panicked") })
}
