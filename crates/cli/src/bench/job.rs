//! `highwater bench job`: the cost of a live job from hub to hub, compared with the same query over files.
//!
//! A node in this process stores toll-booth events in a hub and runs a job over them: one-minute counts by booth, to
//! another hub, exactly once. The measurement ends when the job is stopped, with all rows on disk and a final
//! checkpoint. The file run reads the same events with as many threads.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_env::{Clock, RealClock, disk};
use highwater_job::Job;
use highwater_job::config::JobFile;
use serde_json::json;

use super::bench_node::{BenchNode, cpu, in_new_folder};
use crate::bench::toll_events::TollEvents;
use crate::exit::ExitStatus;

/// Workload 2 of `benches/`.
const QUERY: &str = "SELECT TollId, System.Timestamp() AS WindowEnd, COUNT(*) AS Cars, SUM(Toll) AS Takings, \
    AVG(Toll) AS AverageToll FROM Input TIMESTAMP BY EntryTime GROUP BY TollId, TumblingWindow(minute, 1)";

/// Events in one request when filling the hub.
const FILL_BATCH: usize = 1000;

/// Pause between two polls of the job's status.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(clap::Args)]
pub(crate) struct BenchJob {
    /// Number of events
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    events: u64,
    /// Number of partitions and files, with one thread for each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    partitions: u64,
    /// Checkpoint interval; there is a final checkpoint in any case
    #[arg(long, default_value = "1s", value_name = "DURATION")]
    checkpoint_every: String,
    /// Number of measurements
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// A folder for hubs and files, which must not exist and is removed at the end
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The cost of one run.
struct RunCost {
    seconds: f64,
    cpu: f64,
    rows: u64,
    checkpoints: u64,
}

impl BenchJob {
    pub(super) fn run(self) -> anyhow::Result<ExitStatus> {
        in_new_folder(self.dir.as_deref(), async |dir| self.measure(dir).await)?;
        Ok(ExitStatus::Success)
    }

    async fn measure(&self, dir: &Path) -> anyhow::Result<()> {
        disk::create_folder(dir.join("input"))?;
        let mut node = BenchNode::start(&dir.join("data"), &[]).await?;
        node.create_hub("toll", self.partitions).await?;
        self.fill(&mut node, dir).await?;
        for run in 0..self.runs {
            let files = self.run_files(dir).await?;
            let hubs = self.run_hub(&mut node, run).await?;
            // The end of the files closes open windows; in a hub more events may follow.
            anyhow::ensure!(
                hubs.rows <= files.rows && files.rows <= hubs.rows + 200,
                "the hub run wrote {} rows, the file run {}",
                hubs.rows,
                files.rows
            );
            self.report(&files, &hubs)?;
        }
        node.stop().await;
        Ok(())
    }

    /// Writes the same events to the hub and to files.
    async fn fill(&self, node: &mut BenchNode, dir: &Path) -> anyhow::Result<()> {
        let mut events = TollEvents::new(1, 1000);
        let files = (0..self.partitions)
            .map(|partition| disk::create_atomic(dir.join(format!("input/{partition}.jsonl"))));
        let mut files = files.collect::<Result<Vec<_>, _>>()?;
        let mut batches = vec![(0, Vec::new()); files.len()];
        for number in 0..self.events {
            let partition = number % self.partitions;
            let (count, lines) = &mut batches[partition as usize];
            events.write_next(lines);
            *count += 1;
            if *count == FILL_BATCH || number + self.partitions >= self.events {
                files[partition as usize].write_all(lines)?;
                let lines = std::mem::take(lines);
                *count = 0;
                node.append("toll", partition, lines).await?;
            }
        }
        files.into_iter().try_for_each(|file| file.commit())?;
        Ok(())
    }

    async fn run_files(&self, dir: &Path) -> anyhow::Result<RunCost> {
        let text = self.job_file("path = \"input\"", "path = \"out.jsonl\"");
        let job = Job::new(JobFile::parse(&text, "job.toml")?.resolve(dir))?;
        let threads = self.partitions as usize;
        let (clock, before) = (RealClock::new(), cpu());
        let run = tokio::task::spawn_blocking(move || super::measure(&job, threads));
        let report = run.await??;
        Ok(RunCost {
            seconds: clock.elapsed().as_secs_f64(),
            cpu: cpu() - before,
            rows: report.outputs.iter().map(|output| output.rows).sum(),
            checkpoints: 0,
        })
    }

    async fn run_hub(&self, node: &mut BenchNode, run: u64) -> anyhow::Result<RunCost> {
        let name = format!("w2-{run}");
        node.create_hub(&name, 1).await?;
        let output = format!("type = \"hub\"\nhub = \"{name}\"");
        let file = self.job_file("type = \"hub\"\nhub = \"toll\"", &output);
        let (clock, before) = (RealClock::new(), cpu());
        node.start_job(&name, &file).await?;
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        loop {
            poll.tick().await;
            let status = node.job_status(&name).await?;
            if status["events"] == self.events && status["outputs"][0]["waiting"] == 0 {
                break;
            }
        }
        let status = node.stop_job(&name).await?;
        Ok(RunCost {
            seconds: clock.elapsed().as_secs_f64(),
            cpu: cpu() - before,
            rows: status["rows"].as_u64().unwrap_or(0),
            checkpoints: status["checkpoint"]["number"].as_u64().unwrap_or(0),
        })
    }

    fn job_file(&self, input: &str, output: &str) -> String {
        // The event times are generated and unrelated to the clock.
        format!(
            "sql = \"{QUERY}\"\n[time]\nout_of_order = \"5s\"\nlate_arrival = \"36500d\"\nearly_arrival = \"off\"\n\
             [checkpoint]\nevery = \"{}\"\n[inputs.Input]\n{input}\n[outputs.output]\n{output}\n",
            self.checkpoint_every
        )
    }

    fn report(&self, files: &RunCost, hubs: &RunCost) -> anyhow::Result<()> {
        let events = self.events as f64;
        let (speed, cpu_ratio) = (files.seconds / hubs.seconds, hubs.cpu / files.cpu);
        if self.json {
            let cost_json = |cost: &RunCost| {
                json!({
                    "seconds": cost.seconds, "events_per_second": events / cost.seconds, "cpu_seconds": cost.cpu,
                    "cpu_seconds_per_million": cost.cpu * 1e6 / events, "rows": cost.rows,
                })
            };
            let report = json!({
                "events": self.events, "partitions": self.partitions, "files": cost_json(files), "hubs": cost_json(hubs),
                "checkpoints": hubs.checkpoints, "speed_ratio": speed, "cpu_ratio": cpu_ratio,
            });
            writeln!(stdout(), "{report}")?;
            return Ok(());
        }
        let line = |name: &str, cost: &RunCost| {
            format!(
                "{name} elapsed={:.3} rate={:.0} cpu={:.2} cpu_per_million={:.3} rows={}",
                cost.seconds,
                events / cost.seconds,
                cost.cpu,
                cost.cpu * 1e6 / events,
                cost.rows,
            )
        };
        let mut out = stdout().lock();
        writeln!(out, "{}", line("FILES", files))?;
        writeln!(
            out,
            "{} checkpoints={} speed={speed:.2} of files, cpu={cpu_ratio:.2} of files",
            line("HUBS ", hubs),
            hubs.checkpoints,
        )?;
        Ok(())
    }
}
