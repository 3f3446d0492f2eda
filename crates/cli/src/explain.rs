//! `highwater explain`: the plan, the state of its operators, and the lookback of a start.

use std::io::{self, Write, stdout};

use highwater_engine::{StateEstimate, VALUE_BYTES, estimate};
use highwater_job::config::ArrivalTime;
use highwater_job::{Job, JobSpread};
use highwater_query::{explain, lookback};
use highwater_time::Duration;
use serde_json::json;

use crate::JobArgument;
use crate::diagnostics;
use crate::exit::ExitStatus;
use crate::run::load;

#[derive(clap::Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    job: JobArgument,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show which steps this many instances of the job run in parallel, and which run in a combiner
    #[arg(long, value_name = "N")]
    instances: Option<usize>,
}

impl Explain {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let mut job = load(&self.job, self.json)?;
        if self.instances.is_some() {
            // Instances share a job over a cluster, where hubs are topics.
            let arrival = |_: &[String]| ArrivalTime::LogAppend;
            job.file.over_cluster(true, arrival);
        }
        let explanation = Explanation {
            plan: explain(&job.plan),
            state: estimate(&job.plan),
            start: Lookback::of(&job),
            instances: self.instances,
            job: &job,
        };
        match self.json {
            true => explanation.print_json(),
            false => explanation.print_text(),
        }?;
        Ok(ExitStatus::Success)
    }
}

struct Explanation<'a> {
    job: &'a Job,
    plan: String,
    state: Vec<StateEstimate>,
    start: Lookback,
    instances: Option<usize>,
}

/// How far before its first output a job reads.
struct Lookback {
    by_event_time: Duration,
    by_arrival: Duration,
    early_arrival: Option<Duration>,
}

impl Lookback {
    fn of(job: &Job) -> Lookback {
        let by_event_time = lookback(&job.plan);
        let early_arrival = job.file.time.early_arrival;
        // An event may arrive before its event time by the early bound.
        let early = early_arrival.unwrap_or(Duration::ZERO);
        Lookback {
            by_event_time,
            by_arrival: Duration::from_ticks(by_event_time.ticks() + early.ticks()),
            early_arrival,
        }
    }

    fn print(&self) -> io::Result<()> {
        writeln!(
            stdout(),
            "\na start at output time T reads events from T - {}, by event time;",
            self.by_event_time
        )?;
        match self.early_arrival {
            Some(early) => writeln!(
                stdout(),
                "an event time may lie up to {early} after the arrival, so reading begins at \
                 arrival time T - {}",
                self.by_arrival
            ),
            None => writeln!(
                stdout(),
                "without an early arrival bound an event may arrive any time before that, so reading begins at \
                 the start of the input"
            ),
        }
    }
}

impl Explanation<'_> {
    fn print_json(&self) -> io::Result<()> {
        let job = self.job;
        let inputs = job.plan.inputs.iter();
        let inputs: Vec<_> = inputs.map(|input| input.name.clone()).collect();
        writeln!(
            stdout(),
            "{}",
            json!({
                "plan": self.plan,
                "inputs": inputs,
                "lookback": self.start.by_event_time.to_string(),
                "state": self.state.iter().map(as_json).collect::<Vec<_>>(),
                "value_bytes": VALUE_BYTES,
                "reads_back_by_arrival": self.start.by_arrival.to_string(),
                "early_arrival_off": self.start.early_arrival.is_none(),
                "warnings": diagnostics::warnings(job),
                "remarks": job.file.remarks,
                "early_results": job.early_results(),
                "repeated_rows": repeats(job),
                "instances": self.instances.map(|_| JobSpread::of(job)),
            })
        )
    }

    fn print_text(&self) -> io::Result<()> {
        let job = self.job;
        write!(stdout(), "{}", self.plan)?;
        show(&self.state)?;
        if let Some(instances) = self.instances {
            writeln!(stdout())?;
            for line in JobSpread::of(job).lines(instances) {
                writeln!(stdout(), "{line}")?;
            }
        }
        let early_results = job.early_results();
        if !early_results.is_empty() {
            writeln!(stdout(), "\nearly results:")?;
            for line in early_results {
                writeln!(stdout(), "  {line}")?;
            }
        }
        for line in repeats(job) {
            writeln!(stdout(), "\n{line}")?;
        }
        self.start.print()
    }
}

/// A line for each output that may repeat rows.
fn repeats(job: &Job) -> Vec<String> {
    let outputs = job.file.outputs.iter();
    let lines = outputs.filter_map(|output| {
        let repeats = output.settings.repeats()?;
        Some(format!("output {}: {repeats}", output.name))
    });
    lines.collect()
}

/// Prints the state of each operator.
fn show(state: &[StateEstimate]) -> io::Result<()> {
    if state.is_empty() {
        return writeln!(stdout(), "\nno operator keeps state");
    }
    writeln!(
        stdout(),
        "\nstate, with {VALUE_BYTES} B for the value of a column:"
    )?;
    for step in state {
        for item in &step.items {
            writeln!(stdout(), "  {}: {}", step.step, item.description())?;
        }
    }
    Ok(())
}

fn as_json(step: &StateEstimate) -> serde_json::Value {
    let items = step.items.iter().map(|item| {
        json!({
            "bytes": item.bytes,
            "per": item.unit.description(),
            "open": item.open_windows,
            "held": item.retention.to_string(),
        })
    });
    json!({
        "step": step.step,
        "kept": items.collect::<Vec<_>>(),
    })
}
