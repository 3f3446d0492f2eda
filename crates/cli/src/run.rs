//! `highwater run`: runs a job to the end of its inputs.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_env::{RealClock, disk};
use highwater_job::config::JobFile;
use highwater_job::live::{JobState, PartitionStatus};
use highwater_job::{Job, Options, Outputs, run};
use highwater_server::jobs::run_at_rest;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::ExitStatus;
use crate::function_watchdog::FunctionWatchdog;
use crate::runtime::run_on;
use crate::{JobArgument, summary};

#[derive(clap::Args)]
pub(crate) struct ThreadCount {
    /// Number of threads [default: the number of cores]
    #[arg(long)]
    threads: Option<usize>,
}

impl ThreadCount {
    pub(crate) fn get(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        self.threads.unwrap_or_else(cores)
    }
}

#[derive(clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    job: JobArgument,
    #[command(flatten)]
    threads: ThreadCount,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// The data folder of a stopped node, for a job that reads hubs
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let job = load(&self.job, self.json)?;
        if let Some(data) = &self.data {
            let threads = self.threads.get();
            return run_stored_hubs(job, data, threads, self.json);
        }
        let _watchdog = FunctionWatchdog::start(&job)?;
        let outputs = Outputs::declared(&job.file, &job.plan)?;
        let bar = progress_bar(&job);
        let mut progress = |bytes| bar.set_position(bytes);
        let options = Options {
            threads: self.threads.get(),
            progress: Some(&mut progress),
            ..Options::default()
        };
        let outcome = run(&job, outputs, options);
        bar.finish_and_clear();
        let report = outcome?.report;
        if self.json {
            eprintln!("{}", summary::json(&job, &report));
        } else {
            eprint!("{}", summary::text(&job, &report));
        }
        Ok(ExitStatus::data_loss_if(report.lost_data()))
    }
}

/// Runs a job over the hubs in the data folder of a stopped node.
fn run_stored_hubs(
    job: Job,
    data: &Path,
    threads: usize,
    json: bool,
) -> anyhow::Result<ExitStatus> {
    let runtime = tokio::runtime::Runtime::new()?;
    let clock = Arc::new(RealClock::new());
    let work = async { Ok(run_at_rest(job, data, threads, clock).await?) };
    let status = run_on(&runtime, Box::pin(work))?;
    if let JobState::Failed { reason } = &status.state {
        anyhow::bail!("error: {reason}");
    }
    let partitions = || status.inputs.iter().flat_map(|input| &input.partitions);
    let lost = |partition: &PartitionStatus| {
        partition.deserialization_errors + partition.conversion_errors + partition.runtime_errors
    };
    let events: u64 = partitions().map(|partition| partition.events).sum();
    let lost = partitions().map(lost).sum::<u64>() + status.runtime_errors;
    let rows = status
        .outputs
        .iter()
        .map(|output| (&output.name, output.rows));
    if json {
        let rows: serde_json::Map<_, _> = rows
            .map(|(name, rows)| (name.clone(), rows.into()))
            .collect();
        eprintln!(
            "{}",
            serde_json::json!({"events": events, "lost": lost, "rows": rows})
        );
    } else {
        eprintln!(
            "read {events} events from {} partitions, {lost} lost to errors",
            partitions().count()
        );
        rows.for_each(|(name, rows)| eprintln!("  {name}: {rows} rows"));
    }
    Ok(ExitStatus::data_loss_if(lost > 0))
}

/// Loads the job and prints the warnings of its query; with `json` the output holds them instead.
pub(crate) fn load(argument: &JobArgument, json: bool) -> anyhow::Result<Job> {
    let job = match argument.policies {
        true => Job::new(JobFile::load(&argument.job)?)?,
        false => Job::load(&argument.job)?,
    };
    if json {
        return Ok(job);
    }
    for remark in &job.file.remarks {
        eprintln!("note: {remark}");
    }
    for warning in &job.warnings {
        eprintln!("{}", warning.render(&job.query, &job.query_name));
    }
    Ok(job)
}

/// Shown on a terminal only, and only for large inputs of known size.
fn progress_bar(job: &Job) -> ProgressBar {
    let inputs = job.file.inputs.iter().filter(|input| !input.reference);
    let files = inputs.filter_map(|input| input.files().ok()).flatten();
    let total: u64 = files
        .filter_map(|file| disk::open(file).ok())
        .map(|file| file.len())
        .sum();
    if !std::io::stderr().is_terminal() || total < (8 << 20) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec}")
    {
        bar.set_style(style);
    }
    bar
}
