//! `highwater bench`: what a job or a request costs on this machine.

mod cycles;
mod generator;
mod http;
mod job;
mod latency;
mod link;
mod local;
mod queue;
mod schedule;
mod webhook;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Duration;

use highwater_env::{Clock, RealClock, disk, usage};
use highwater_job::{Job, Options, Outputs, run};
use serde_json::json;

use crate::JobArgument;
use crate::exit::Ending;
use crate::run::{cores, load};
use crate::traffic::Traffic;

#[derive(clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Run a job and print events/s, CPU seconds per million events and peak memory
    Run(BenchRun),
    /// Write toll-booth events to measure with: 1,000 a second, 5% of them up to 2 s out of order
    Generate(Generate),
    /// Send events to a running node at a fixed rate and print how long answers took
    Http(http::BenchHttp),
    /// Send, receive and complete messages of a running node and print how many a second
    Queue(queue::BenchQueue),
    /// Run a query from hub to hub with checkpoints, and beside it from file to file, and print what each costs
    Job(job::BenchJob),
    /// Send events to a hub at a fixed rate and print how long a job's rows take to be seen
    Latency(latency::BenchLatency),
    /// Deliver events to a webhook on this machine and print what each costs
    Webhook(webhook::BenchWebhook),
}

#[derive(clap::Args)]
struct BenchRun {
    #[command(flatten)]
    job: JobArgument,
    #[arg(long)]
    threads: Option<usize>,
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Generate {
    #[arg(long, default_value_t = 5_000_000)]
    events: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many different licence plates there are
    #[arg(long, default_value_t = 1000)]
    keys: u64,
    out: PathBuf,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<Ending> {
        match self.what {
            What::Run(run) => run.run(),
            What::Generate(generate) => generate.run(),
            What::Http(http) => http.run(),
            What::Queue(queue) => queue.run(),
            What::Job(job) => job.run(),
            What::Latency(latency) => latency.run(),
            What::Webhook(webhook) => webhook.run(),
        }
    }
}

impl BenchRun {
    fn run(self) -> anyhow::Result<Ending> {
        let job = load(&self.job, false)?;
        let clock = RealClock::new();
        let report = measure(&job, self.threads.unwrap_or_else(cores))?;
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
        Ok(if report.lost_data() {
            Ending::LostData
        } else {
            Ending::Well
        })
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
    fn run(self) -> anyhow::Result<Ending> {
        let mut file = disk::create_atomic(&self.out)?;
        let mut traffic = Traffic::new(self.seed, self.keys);
        let mut buffer = Vec::new();
        for _ in 0..self.events {
            traffic.write_next(&mut buffer);
            if buffer.len() > (1 << 20) {
                file.write_all(&buffer)?;
                buffer.clear();
            }
        }
        file.write_all(&buffer)?;
        file.commit()?;
        Ok(Ending::Well)
    }
}
