//! `highwater why`: the verdict of each event, and the times and windows behind it; over files, or for one event of a
//! job of a running node.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use highwater_job::short_time;
use highwater_job::why::{Fate, WindowSpan, why};
use highwater_time::Instant;
use serde_json::Value;

use crate::JobArgument;
use crate::client::percent_encode;
use crate::exit::{ExitStatus, UsageError};
use crate::function_watchdog::FunctionWatchdog;
use crate::node_args::NodeArgs;
use crate::run::load;
use crate::runtime::block_on;

#[derive(clap::Args)]
pub(crate) struct Why {
    /// A job.toml, or the folder that holds one; with --job, an event as INPUT/PARTITION/OFFSET
    #[arg(value_name = "JOB")]
    subject: PathBuf,
    /// The job of a running node that read the event
    #[arg(long = "job", value_name = "NAME", conflicts_with_all = ["filter", "moved", "line"])]
    live_job: Option<String>,
    /// Only events that match this condition, such as "TollId = 3"
    #[arg(long = "where", value_name = "CONDITION")]
    filter: Option<String>,
    /// Only events that were adjusted, dropped or lost
    #[arg(long)]
    moved: bool,
    /// Only the event on this line
    #[arg(long)]
    line: Option<u64>,
    /// Apply the time policy of a Stream Analytics project, whose local files are read in order of event time otherwise
    #[arg(long, conflicts_with = "live_job")]
    policies: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Why {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        if let Some(job) = &self.live_job {
            return block_on(self.of_live_job(job));
        }
        let argument = JobArgument {
            job: self.subject,
            policies: self.policies,
        };
        let job = load(&argument, false)?;
        let _watchdog = FunctionWatchdog::start(&job)?;
        let fates = why(&job, self.filter.as_deref())?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        let chosen = fates.iter().filter(|fate| {
            (!self.moved || fate.verdict != "on time")
                && self.line.is_none_or(|line| line == fate.line)
        });
        for fate in chosen {
            if self.node.json {
                writeln!(out, "{}", serde_json::to_string(fate)?)?;
            } else {
                show(fate, &mut out)?;
            }
        }
        out.flush()?;
        Ok(ExitStatus::Success)
    }
}

impl Why {
    /// The fate of one event, from the node.
    async fn of_live_job(&self, job: &str) -> anyhow::Result<ExitStatus> {
        let subject = self.subject.to_string_lossy();
        let mut parts = subject.rsplitn(3, '/');
        let (Some(offset), Some(partition), Some(input)) =
            (parts.next(), parts.next(), parts.next())
        else {
            let message = format!("`{subject}` is no event: write INPUT/PARTITION/OFFSET");
            return Err(UsageError(message).into());
        };
        let [job, input] = [job, input].map(percent_encode);
        let path = format!("/api/jobs/{job}/events/{input}/{partition}/{offset}");
        let answer = self.node.get(&path).await?;
        self.node.print_with(&answer, |out| {
            show(&live_fate(&answer), out)?;
            show_sessions(&answer, out)?;
            if answer["source"] == "partial replay" {
                writeln!(
                    out,
                    "    note       recomputed from a part of the partition"
                )?;
            }
            for name in ["value", "value_base64"] {
                if let Some(value) = answer.get(name) {
                    writeln!(out, "    event      {value}")?;
                }
            }
            Ok(())
        })
    }
}

/// A time of a node, which is milliseconds.
fn live_time(value: &Value) -> Option<String> {
    let millis = value.as_i64();
    millis.map(|millis| short_time(Instant::from_unix_millis(millis)))
}

/// The session windows of an event of a live job.
fn show_sessions(answer: &Value, out: &mut dyn Write) -> std::io::Result<()> {
    let Some(sessions) = answer["sessions"].as_array() else {
        return Ok(());
    };
    let or_longer = match answer["sessions_exact"].as_bool() {
        Some(false) => ", or longer: not all events were replayed",
        _ => "",
    };
    for (index, session) in sessions.iter().enumerate() {
        let name = if index == 0 { "sessions" } else { "" };
        let bound = |name: &str| live_time(&session[name]).unwrap_or_default();
        let state = match session["state"] == "open" {
            true => ", open: may grow",
            false => "",
        };
        let (start, end) = (bound("start"), bound("end"));
        writeln!(out, "    {name:<9}  ({start} .. {end}]{state}{or_longer}")?;
    }
    Ok(())
}

/// The answer of a node.
fn live_fate(answer: &Value) -> Fate {
    let text = |name: &str| answer[name].as_str().map(str::to_owned);
    let time = live_time;
    let windows = answer["windows"].as_array().into_iter().flatten();
    Fate {
        input: text("input").unwrap_or_default(),
        file: format!(
            "{}/{}",
            answer["hub"].as_str().unwrap_or_default(),
            answer["partition"]
        ),
        line: answer["offset"].as_u64().unwrap_or_default(),
        partition: None,
        substream: text("substream"),
        arrival: time(&answer["arrived"]),
        event_time: time(&answer["happened"]),
        verdict: text("text").unwrap_or_default(),
        watermark: time(&answer["watermark"]),
        timestamp: time(&answer["timestamp"]),
        windows: windows
            .map(|window| WindowSpan {
                start: time(&window["start"]).unwrap_or_default(),
                end: time(&window["end"]).unwrap_or_default(),
            })
            .collect(),
        revisions: Vec::new(),
        reason: text("reason"),
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
    for revision in &fate.revisions {
        let (output, time) = (&revision.output, &revision.time);
        writeln!(
            out,
            "    revision   {time}, the first of {output} that counts it"
        )?;
    }
    Ok(())
}
