//! `highwater why`: the verdict of each event, and the times and windows behind it.

use std::io::{BufWriter, Write};

use highwater_job::why::{Fate, why};

use crate::JobArgument;
use crate::exit::ExitStatus;
use crate::run::load;

#[derive(clap::Args)]
pub(crate) struct Why {
    #[command(flatten)]
    job: JobArgument,
    /// Only events that match this condition, such as "TollId = 3"
    #[arg(long = "where", value_name = "CONDITION")]
    filter: Option<String>,
    /// Only events that were adjusted, dropped or lost
    #[arg(long)]
    moved: bool,
    /// Only the event on this line
    #[arg(long)]
    line: Option<u64>,
    /// Print one JSON object per event
    #[arg(long)]
    json: bool,
}

impl Why {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let job = load(&self.job, false)?;
        let fates = why(&job, self.filter.as_deref())?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        let chosen = fates.iter().filter(|fate| {
            (!self.moved || fate.verdict != "on time")
                && self.line.is_none_or(|line| line == fate.line)
        });
        for fate in chosen {
            if self.json {
                writeln!(out, "{}", serde_json::to_string(fate)?)?;
            } else {
                show(fate, &mut out)?;
            }
        }
        out.flush()?;
        Ok(ExitStatus::Success)
    }
}

fn show(fate: &Fate, out: &mut impl Write) -> std::io::Result<()> {
    write!(out, "{}:{}  {}", fate.file, fate.line, fate.verdict)?;
    if let Some(partition) = fate.partition {
        write!(out, "  [partition {partition}]")?;
    }
    if let Some(key) = &fate.substream {
        write!(out, "  [substream {key}]")?;
    }
    writeln!(out)?;
    if let Some(reason) = &fate.reason {
        return writeln!(out, "    {reason}");
    }
    let or = |time: &Option<String>, otherwise: &str| time.clone().unwrap_or(otherwise.into());
    writeln!(
        out,
        "    arrived    {}",
        or(&fate.arrival, "at an unknown time")
    )?;
    writeln!(out, "    happened   {}", or(&fate.event_time, "-"))?;
    writeln!(out, "    watermark  {}", or(&fate.watermark, "none yet"))?;
    writeln!(
        out,
        "    timestamp  {}",
        or(&fate.timestamp, "none: dropped")
    )?;
    for (index, window) in fate.windows.iter().enumerate() {
        let name = if index == 0 { "windows" } else { "" };
        writeln!(out, "    {name:<9}  ({} .. {}]", window.start, window.end)?;
    }
    Ok(())
}
