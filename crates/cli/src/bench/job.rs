//! `highwater bench job`: what a live job costs, from one hub to another, beside the same query over files.
//!
//! A node of its own keeps toll-booth events in a hub and runs a job over all of them: one-minute counts by booth, to
//! another hub, exactly once. What is measured ends when the job is stopped, so everything is on the disk and its state is
//! saved. The same events in files, on as many threads, are what it is compared with, in turn.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_env::{Clock, RealClock, disk};
use highwater_job::Job;
use highwater_job::config::JobFile;
use serde_json::json;

use super::local::{Local, cpu, in_new_folder};
use crate::exit::Ending;
use crate::traffic::Traffic;

/// Workload 2 of `benches/`.
const QUERY: &str = "SELECT TollId, System.Timestamp() AS WindowEnd, COUNT(*) AS Cars, SUM(Toll) AS Takings, \
    AVG(Toll) AS AverageToll FROM Input TIMESTAMP BY EntryTime GROUP BY TollId, TumblingWindow(minute, 1)";

/// Events in one request when the hub is filled.
const FILL: usize = 1000;

/// Between two looks at how far the job is.
const LOOK: Duration = Duration::from_millis(20);

#[derive(clap::Args)]
pub struct BenchJob {
    /// How many events there are
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    events: u64,
    /// Partitions of the hub, and files: one thread works on each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    partitions: u64,
    /// How often the job saves its state; it does so at the end in any case
    #[arg(long, default_value = "1s", value_name = "DURATION")]
    checkpoint_every: String,
    /// How often each way is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// A folder for hubs and files, which must not be there and is removed in the end
    #[arg(long)]
    dir: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

/// What one way took.
struct Took {
    seconds: f64,
    cpu: f64,
    rows: u64,
    checkpoints: u64,
}

impl BenchJob {
    pub fn run(self) -> anyhow::Result<Ending> {
        in_new_folder(self.dir.as_deref(), async |dir| self.measure(dir).await)?;
        Ok(Ending::Well)
    }

    async fn measure(&self, dir: &Path) -> anyhow::Result<()> {
        disk::create_folder(dir.join("input"))?;
        let mut node = Local::start(&dir.join("data"), &[]).await?;
        node.create_hub("toll", self.partitions).await?;
        self.fill(&mut node, dir).await?;
        for run in 0..self.runs {
            let files = self.run_files(dir).await?;
            let hubs = self.run_hub(&mut node, run).await?;
            // Windows that are open at the end of the files are closed; in a hub more may come.
            anyhow::ensure!(
                hubs.rows <= files.rows && files.rows <= hubs.rows + 200,
                "the job wrote {} rows, where files give {}",
                hubs.rows,
                files.rows
            );
            self.report(&files, &hubs)?;
        }
        node.stop().await;
        Ok(())
    }

    /// Writes the same events to the hub and to files.
    async fn fill(&self, node: &mut Local, dir: &Path) -> anyhow::Result<()> {
        let mut traffic = Traffic::new(1, 1000);
        let files = (0..self.partitions)
            .map(|partition| disk::create_atomic(dir.join(format!("input/{partition}.jsonl"))));
        let mut files = files.collect::<Result<Vec<_>, _>>()?;
        let mut batches = vec![(0, Vec::new()); files.len()];
        for number in 0..self.events {
            let partition = number % self.partitions;
            let (count, lines) = &mut batches[partition as usize];
            traffic.write_next(lines);
            *count += 1;
            if *count == FILL || number + self.partitions >= self.events {
                files[partition as usize].write_all(lines)?;
                let lines = std::mem::take(lines);
                *count = 0;
                node.append("toll", partition, lines).await?;
            }
        }
        files.into_iter().try_for_each(|file| file.commit())?;
        Ok(())
    }

    async fn run_files(&self, dir: &Path) -> anyhow::Result<Took> {
        let text = self.job_file("path = \"input\"", "path = \"out.jsonl\"");
        let job = Job::new(JobFile::parse(&text, "job.toml")?.resolve(dir))?;
        let threads = self.partitions as usize;
        let (clock, before) = (RealClock::new(), cpu());
        let run = tokio::task::spawn_blocking(move || super::measure(&job, threads));
        let report = run.await??;
        Ok(Took {
            seconds: clock.elapsed().as_secs_f64(),
            cpu: cpu() - before,
            rows: report.outputs.iter().map(|output| output.rows).sum(),
            checkpoints: 0,
        })
    }

    async fn run_hub(&self, node: &mut Local, run: u64) -> anyhow::Result<Took> {
        let name = format!("w2-{run}");
        node.create_hub(&name, 1).await?;
        let output = format!("type = \"hub\"\nhub = \"{name}\"");
        let file = self.job_file("type = \"hub\"\nhub = \"toll\"", &output);
        let (clock, before) = (RealClock::new(), cpu());
        node.start_job(&name, &file).await?;
        let mut waited = tokio::time::interval(LOOK);
        loop {
            waited.tick().await;
            let status = node.job(&name).await?;
            if status["events"] == self.events && status["outputs"][0]["waiting"] == 0 {
                break;
            }
        }
        let status = node.stop_job(&name).await?;
        Ok(Took {
            seconds: clock.elapsed().as_secs_f64(),
            cpu: cpu() - before,
            rows: status["rows"].as_u64().unwrap_or(0),
            checkpoints: status["checkpoint"]["number"].as_u64().unwrap_or(0),
        })
    }

    fn job_file(&self, input: &str, output: &str) -> String {
        // The events are made up, and may be of any day.
        format!(
            "sql = \"{QUERY}\"\n[time]\nout_of_order = \"5s\"\nlate_arrival = \"36500d\"\nearly_arrival = \"off\"\n\
             [checkpoint]\nevery = \"{}\"\n[inputs.Input]\n{input}\n[outputs.output]\n{output}\n",
            self.checkpoint_every
        )
    }

    fn report(&self, files: &Took, hubs: &Took) -> anyhow::Result<()> {
        let events = self.events as f64;
        let (speed, cost) = (files.seconds / hubs.seconds, hubs.cpu / files.cpu);
        if self.json {
            let facts = |took: &Took| {
                json!({
                    "seconds": took.seconds, "events_per_second": events / took.seconds, "cpu_seconds": took.cpu,
                    "cpu_seconds_per_million": took.cpu * 1e6 / events, "rows": took.rows,
                })
            };
            let report = json!({
                "events": self.events, "partitions": self.partitions, "files": facts(files), "hubs": facts(hubs),
                "checkpoints": hubs.checkpoints, "speed_ratio": speed, "cpu_ratio": cost,
            });
            writeln!(stdout(), "{report}")?;
            return Ok(());
        }
        let line = |name: &str, took: &Took| {
            format!(
                "{name} elapsed={:.3} rate={:.0} cpu={:.2} cpu_per_million={:.3} rows={}",
                took.seconds,
                events / took.seconds,
                took.cpu,
                took.cpu * 1e6 / events,
                took.rows,
            )
        };
        let mut out = stdout().lock();
        writeln!(out, "{}", line("FILES", files))?;
        writeln!(
            out,
            "{} checkpoints={} speed={speed:.2} of files, cpu={cost:.2} of files",
            line("HUBS ", hubs),
            hubs.checkpoints,
        )?;
        Ok(())
    }
}
