//! `highwater timeline`: the picture of event time against arrival time.

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};

use highwater_devtools::job_picture;
use highwater_devtools::picture::{Picture, Terminal, svg};
use highwater_env::disk;
use highwater_job::{Job, why};
use serde_json::json;

use crate::JobArgument;
use crate::exit::{BadRequest, Ending};
use crate::run::load;

#[derive(clap::Args)]
pub struct Timeline {
    #[command(flatten)]
    job: JobArgument,
    /// Write an SVG file; without it the picture is drawn in the terminal
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// The input to draw [default: the first]
    #[arg(long)]
    input: Option<String>,
    /// The points and the watermark as JSON
    #[arg(long)]
    json: bool,
}

impl Timeline {
    pub fn run(self) -> anyhow::Result<Ending> {
        let job = load(&self.job, false)?;
        let drawing = draw(&job, self.input.as_deref())?;
        if self.json {
            writeln!(stdout(), "{}", as_json(&drawing))?;
        } else if let Some(path) = &self.output {
            write_svg(path, &drawing)?;
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
                .draw(&drawing)
            )?;
        }
        Ok(Ending::Well)
    }
}

pub fn draw(job: &Job, input: Option<&str>) -> anyhow::Result<Picture> {
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
        return Err(BadRequest(text).into());
    }
    let outcome = why::witness(job)?;
    job_picture(job, &outcome, input).ok_or_else(|| {
        BadRequest("there is nothing to draw: the input has no events".into()).into()
    })
}

pub fn write_svg(path: &Path, drawing: &Picture) -> anyhow::Result<()> {
    let mut file = disk::create_atomic(path)?;
    file.write_all(svg(drawing).as_bytes())?;
    Ok(file.commit()?)
}

fn as_json(drawing: &Picture) -> serde_json::Value {
    let points = drawing.points.iter().map(|point| {
        json!({
            "arrival": point.arrival.to_string(),
            "event_time": point.event_time.to_string(),
            "timestamp": point.assigned.map(|time| time.to_string()),
            "verdict": point.verdict,
            "lane": point.lane,
        })
    });
    let lines = drawing.watermarks.iter().map(|line| {
        let steps = line
            .steps
            .iter()
            .map(|step| json!([step.arrival.to_string(), step.watermark.to_string()]));
        json!({"lane": line.lane, "steps": steps.collect::<Vec<_>>()})
    });
    json!({"points": points.collect::<Vec<_>>(), "watermarks": lines.collect::<Vec<_>>()})
}

/// The console's size, or one that suits most pages where there is no console.
fn console_size() -> (usize, usize) {
    match console::Term::stdout().size_checked() {
        Some((rows, columns)) => (columns.into(), usize::from(rows).saturating_sub(2).max(20)),
        None => (100, 32),
    }
}
