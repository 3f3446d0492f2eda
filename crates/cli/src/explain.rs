//! `highwater explain`: the plan, and how far back a start reads.

use std::io::{Write, stdout};

use highwater_query::{explain, lookback};
use highwater_time::Duration;
use serde_json::json;

use crate::JobArgument;
use crate::exit::Ending;
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
        let job = load(&self.job)?;
        let plan = explain(&job.plan);
        let back = lookback(&job.plan);
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
                    "reads_back_by_arrival": arrival_back.to_string(),
                    "early_arrival_off": policy.early_arrival.is_none(),
                })
            )?;
            return Ok(Ending::Well);
        }
        write!(stdout(), "{plan}")?;
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
