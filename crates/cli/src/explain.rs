//! `highwater explain`: the plan, the state of its operators, and the lookback of a start.

use std::io::{Write, stdout};

use highwater_engine::{StateEstimate, VALUE_BYTES, estimate};
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
    /// Show what this many instances of the job do in parallel, and what meets in one place
    #[arg(long, value_name = "N")]
    instances: Option<usize>,
}

impl Explain {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let job = load(&self.job, self.json)?;
        let plan = explain(&job.plan);
        let lookback = lookback(&job.plan);
        let state = estimate(&job.plan);
        let policy = &job.file.time;
        // An event may arrive before its event time by the early bound.
        let early = policy.early_arrival.unwrap_or(Duration::ZERO);
        let arrival_lookback = Duration::from_ticks(lookback.ticks() + early.ticks());
        if self.json {
            let inputs: Vec<_> = job
                .plan
                .inputs
                .iter()
                .map(|input| input.name.clone())
                .collect();
            writeln!(
                stdout(),
                "{}",
                json!({
                    "plan": plan,
                    "inputs": inputs,
                    "lookback": lookback.to_string(),
                    "state": state.iter().map(as_json).collect::<Vec<_>>(),
                    "value_bytes": VALUE_BYTES,
                    "reads_back_by_arrival": arrival_lookback.to_string(),
                    "early_arrival_off": policy.early_arrival.is_none(),
                    "warnings": diagnostics::warnings(&job),
                    "remarks": job.file.remarks,
                    "early_results": job.early_results(),
                    "repeated_rows": repeats(&job),
                    "instances": self.instances.map(|_| JobSpread::of(&job)),
                })
            )?;
            return Ok(ExitStatus::Success);
        }
        write!(stdout(), "{plan}")?;
        show(&state)?;
        if let Some(instances) = self.instances {
            writeln!(stdout())?;
            for line in JobSpread::of(&job).lines(instances) {
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
        for line in repeats(&job) {
            writeln!(stdout(), "\n{line}")?;
        }
        writeln!(stdout())?;
        writeln!(
            stdout(),
            "a start at output time T reads events from T - {lookback}, by event time;"
        )?;
        match policy.early_arrival {
            Some(early) => writeln!(
                stdout(),
                "an event time may lie up to {early} after the arrival, so reading begins at \
                 arrival time T - {arrival_lookback}"
            ),
            None => writeln!(
                stdout(),
                "without an early arrival bound an event may arrive any time before that, so reading begins at \
                 the start of the input"
            ),
        }?;
        Ok(ExitStatus::Success)
    }
}

/// A line for each output that may get a row again.
fn repeats(job: &Job) -> Vec<String> {
    let outputs = job.file.outputs.iter();
    let lines = outputs.filter_map(|output| {
        let repeats = output.settings.repeats()?;
        Some(format!("output {}: {repeats}", output.name))
    });
    lines.collect()
}

/// Prints the state of each operator.
fn show(state: &[StateEstimate]) -> std::io::Result<()> {
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
