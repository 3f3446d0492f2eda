//! `highwater timeline`: draws event time against arrival time.

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};

use highwater_devtools::job_picture;
use highwater_devtools::picture::{Picture, Terminal, svg};
use highwater_env::disk;
use highwater_job::{Job, why};
use serde_json::json;

use crate::JobArgument;
use crate::exit::{ExitStatus, UsageError};
use crate::function_watchdog::FunctionWatchdog;
use crate::run::load;

#[derive(clap::Args)]
pub(crate) struct Timeline {
    #[command(flatten)]
    job: JobArgument,
    /// Write an SVG file instead of drawing in the terminal
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// The input to draw [default: the first with events]
    #[arg(long)]
    input: Option<String>,
    /// Print the points and watermark steps as JSON
    #[arg(long)]
    json: bool,
}

impl Timeline {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let job = load(&self.job, false)?;
        let picture = draw(&job, self.input.as_deref())?;
        if self.json {
            writeln!(stdout(), "{}", as_json(&picture))?;
        } else if let Some(path) = &self.output {
            write_svg(path, &picture)?;
            eprintln!("wrote {}", path.display());
        } else {
            let colour = stdout().is_terminal();
            let (width, height) = console_size();
            write!(
                stdout(),
                "{}",
                Terminal {
                    width,
                    height,
                    colour
                }
                .draw(&picture)
            )?;
        }
        Ok(ExitStatus::Success)
    }
}

pub(crate) fn draw(job: &Job, input: Option<&str>) -> anyhow::Result<Picture> {
    if let Some(name) = input
        && !job
            .plan
            .inputs
            .iter()
            .any(|input| input.name.eq_ignore_ascii_case(name))
    {
        let known: Vec<&str> = job
            .plan
            .inputs
            .iter()
            .map(|input| &input.name[..])
            .collect();
        let text = format!("the job has no input {name:?}; it has {}", known.join(", "));
        return Err(UsageError(text).into());
    }
    let _watchdog = FunctionWatchdog::start(job)?;
    let outcome = why::trace_events(job)?;
    job_picture(job, &outcome, input)
        .ok_or_else(|| UsageError("nothing to draw: the input has no events".into()).into())
}

pub(crate) fn write_svg(path: &Path, picture: &Picture) -> anyhow::Result<()> {
    let mut file = disk::create_atomic(path)?;
    file.write_all(svg(picture).as_bytes())?;
    Ok(file.commit()?)
}

fn as_json(picture: &Picture) -> serde_json::Value {
    let points = picture.points.iter().map(|point| {
        json!({
            "arrival": point.arrival.to_string(),
            "event_time": point.event_time.to_string(),
            "timestamp": point.assigned.map(|time| time.to_string()),
            "verdict": point.verdict,
            "lane": point.lane,
        })
    });
    let lines = picture.watermarks.iter().map(|line| {
        let steps = line
            .steps
            .iter()
            .map(|step| json!([step.arrival.to_string(), step.watermark.to_string()]));
        json!({"lane": line.lane, "steps": steps.collect::<Vec<_>>()})
    });
    let revisions = picture.revisions.iter().map(ToString::to_string);
    json!({
        "points": points.collect::<Vec<_>>(),
        "watermarks": lines.collect::<Vec<_>>(),
        "revisions": revisions.collect::<Vec<_>>(),
    })
}

/// The size of the terminal, or a default without one.
fn console_size() -> (usize, usize) {
    match console::Term::stdout().size_checked() {
        Some((rows, columns)) => (columns.into(), usize::from(rows).saturating_sub(2).max(20)),
        None => (100, 32),
    }
}
