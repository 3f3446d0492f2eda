//! `highwater bench`: rates, latencies and CPU time of jobs and requests on this machine.

mod bench_node;
mod cpu;
mod http;
mod http_load;
mod job;
mod latency;
mod percentiles;
mod queue;
mod queue_load;
mod request_head;
mod toll_events;
mod webhook;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Duration;

use highwater_env::{Clock, RealClock, disk, usage};
use highwater_job::{Job, Options, Outputs, run};
use serde_json::json;

use crate::JobArgument;
use crate::exit::ExitStatus;
use crate::run::{ThreadCount, load};
use toll_events::TollEvents;

#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// Run a job and print events/s, CPU seconds per million events and peak memory
    Run(BenchRun),
    /// Write a file of toll-booth events: 1,000 a second, 5% of them up to 2 s out of order
    Generate(Generate),
    /// Send events to a running node at a fixed rate and print response latencies
    Http(http::BenchHttp),
    /// Send, receive and complete queue messages of a running node and print the rate
    Queue(queue::BenchQueue),
    /// Run a query from hub to hub with checkpoints and from file to file, and print the cost of each
    Job(job::BenchJob),
    /// Send events to a hub at a fixed rate and print the latency until a job's rows are visible
    Latency(latency::BenchLatency),
    /// Deliver events to a webhook on this machine and print the cost of each
    Webhook(webhook::BenchWebhook),
}

#[derive(clap::Args)]
pub(crate) struct BenchRun {
    #[command(flatten)]
    job: JobArgument,
    #[command(flatten)]
    threads: ThreadCount,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct Generate {
    /// Number of events
    #[arg(long, default_value_t = 5_000_000)]
    events: u64,
    /// Seed of the event generator
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of distinct licence plates
    #[arg(long, default_value_t = 1000)]
    keys: u64,
    /// The file to write
    out: PathBuf,
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        match self {
            Bench::Run(command) => command.run(),
            Bench::Generate(command) => command.run(),
            Bench::Http(command) => command.run(),
            Bench::Queue(command) => command.run(),
            Bench::Job(command) => command.run(),
            Bench::Latency(command) => command.run(),
            Bench::Webhook(command) => command.run(),
        }
    }
}

impl BenchRun {
    fn run(self) -> anyhow::Result<ExitStatus> {
        let job = load(&self.job, false)?;
        let clock = RealClock::new();
        let report = measure(&job, self.threads.get())?;
        let wall = clock.elapsed().as_secs_f64();
        let events: u64 = report.inputs.iter().map(|input| input.events()).sum();
        let rows: u64 = report.outputs.iter().map(|output| output.rows).sum();
        let used = usage();
        let cpu = used.cpu.unwrap_or(Duration::ZERO).as_secs_f64();
        let millions = events as f64 / 1e6;
        let peak = used.memory_peak_bytes.unwrap_or(0) as f64 / 1e6;
        if self.json {
            writeln!(
                stdout(),
                "{}",
                json!({
                    "job": job.file.name, "events": events, "rows": rows, "seconds": wall,
                    "events_per_second": events as f64 / wall, "cpu_seconds": cpu,
                    "cpu_seconds_per_million": cpu / millions, "peak_megabytes": peak,
                })
            )?;
        } else {
            writeln!(
                stdout(),
                "BENCH job={} events={events} rows={rows} elapsed={wall:.3} rate={:.0} cpu={cpu:.2} \
                 cpu_per_million={:.3} peak_mb={peak:.0}",
                job.file.name,
                events as f64 / wall,
                cpu / millions,
            )?;
        }
        Ok(ExitStatus::data_loss_if(report.lost_data()))
    }
}

fn measure(job: &Job, threads: usize) -> anyhow::Result<highwater_job::Report> {
    let outputs = Outputs::declared(&job.file, &job.plan)?;
    let options = Options {
        threads,
        ..Options::default()
    };
    Ok(run(job, outputs, options)?.report)
}

impl Generate {
    fn run(self) -> anyhow::Result<ExitStatus> {
        let mut file = disk::create_atomic(&self.out)?;
        let mut events = TollEvents::new(self.seed, self.keys);
        let mut buffer = Vec::new();
        for _ in 0..self.events {
            events.write_next(&mut buffer);
            if buffer.len() > (1 << 20) {
                file.write_all(&buffer)?;
                buffer.clear();
            }
        }
        file.write_all(&buffer)?;
        file.commit()?;
        Ok(ExitStatus::Success)
    }
}
