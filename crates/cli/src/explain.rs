//! `highwater explain`: the plan, what its steps keep, and how far back a start reads.

use std::io::{Write, stdout};

use highwater_engine::{StateEstimate, VALUE_BYTES, estimate};
use highwater_query::{explain, lookback};
use highwater_time::Duration;
use serde_json::json;

use crate::JobArgument;
use crate::exit::Ending;
use crate::findings;
use crate::run::load;

#[derive(clap::Args)]
pub struct Explain {
    #[command(flatten)]
    job: JobArgument,
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub fn run(self) -> anyhow::Result<Ending> {
        let job = load(&self.job, self.json)?;
        let plan = explain(&job.plan);
        let back = lookback(&job.plan);
        let state = estimate(&job.plan);
        let policy = &job.file.time;
        // An event may arrive before its time by the early bound and after it by the late one.
        let early = policy.early_arrival.unwrap_or(Duration::ZERO);
        let arrival_back = Duration::from_ticks(back.ticks() + early.ticks());
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
                    "lookback": back.to_string(),
                    "state": state.iter().map(as_json).collect::<Vec<_>>(),
                    "value_bytes": VALUE_BYTES,
                    "reads_back_by_arrival": arrival_back.to_string(),
                    "early_arrival_off": policy.early_arrival.is_none(),
                    "warnings": findings::warnings(&job),
                    "remarks": job.file.remarks,
                })
            )?;
            return Ok(Ending::Well);
        }
        write!(stdout(), "{plan}")?;
        show(&state)?;
        writeln!(stdout())?;
        writeln!(
            stdout(),
            "a start at output time T reads events from T - {back}, by event time;"
        )?;
        match policy.early_arrival {
            Some(early) => writeln!(
                stdout(),
                "an event may carry a time up to {early} after its arrival, so reading begins at the \
                 arrival time T - {arrival_back}"
            ),
            None => writeln!(
                stdout(),
                "with early arrival off an event may arrive any time before that, so reading begins at \
                 the start of the input"
            ),
        }?;
        Ok(Ending::Well)
    }
}

/// What the steps keep, one line for each kind of thing.
fn show(state: &[StateEstimate]) -> std::io::Result<()> {
    if state.is_empty() {
        return writeln!(stdout(), "\nno step keeps anything");
    }
    writeln!(
        stdout(),
        "\nstate, with {VALUE_BYTES} B for the value of a column:"
    )?;
    for step in state {
        for kept in &step.kept {
            writeln!(stdout(), "  {}: {}", step.step, kept.words())?;
        }
    }
    Ok(())
}

fn as_json(step: &StateEstimate) -> serde_json::Value {
    let kept = step.kept.iter().map(|kept| {
        json!({
            "bytes": kept.bytes,
            "per": kept.each.words(),
            "open": kept.times,
            "held": kept.held.to_string(),
        })
    });
    json!({
        "step": step.step,
        "kept": kept.collect::<Vec<_>>(),
    })
}
