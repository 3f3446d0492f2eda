//! What a job file says about running for ever: where it starts, how often it saves itself, what becomes of late events
//! and of rows that an output does not take.

use highwater_time::{Duration, Instant};

use super::Output;
use super::reader::{Reader, Section};

/// How a job runs that reads hubs. The defaults are those of a job file that says nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// Where it begins, unless somebody who starts it says otherwise.
    pub start: Start,
    /// How often its state is saved.
    pub checkpoint_every: Duration,
    /// The output that takes late, early and out-of-order events, with what became of them.
    pub late: Option<String>,
    /// How many threads work off partitions; whoever runs the job decides if it is not said.
    pub threads: Option<usize>,
    /// About how much of a partition is read at once.
    pub fetch_bytes: Option<usize>,
}

impl Default for Live {
    fn default() -> Live {
        Live {
            start: Start::Resume,
            checkpoint_every: Duration::from_secs(10),
            late: None,
            threads: None,
            fetch_bytes: None,
        }
    }
}

/// The time of the first row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Where it last stopped; now, if it has never run.
    #[default]
    Resume,
    /// The moment of the start.
    Now,
    /// Rows from this time on, complete from the first.
    At(Instant),
    /// With the first event that is kept.
    Beginning,
}

impl Start {
    /// `resume`, `now`, `beginning` or a time.
    pub fn parse(text: &str) -> Option<Start> {
        match text {
            "resume" => Some(Start::Resume),
            "now" => Some(Start::Now),
            "beginning" => Some(Start::Beginning),
            time => Instant::parse_iso(time.as_bytes()).map(Start::At),
        }
    }
}

/// What becomes of rows that an output does not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They are handed over again for ever, and the job says so meanwhile.
    #[default]
    Retry,
    /// After a few tries they are dropped and counted.
    Drop,
    /// After a few tries they go to the output for dead letters.
    DeadLetter,
}

const ON_FAILURE: &[(&str, OnFailure)] = &[
    ("retry", OnFailure::Retry),
    ("drop", OnFailure::Drop),
    ("dead_letter", OnFailure::DeadLetter),
];

pub(super) fn read_on_failure(reader: &mut Reader, section: &Section) -> OnFailure {
    let chosen = reader.choice(section, "on_failure", ON_FAILURE, &[]);
    chosen.unwrap_or_default()
}

pub(super) fn read_live(reader: &mut Reader, top: &Section, outputs: &[Output]) -> Live {
    let mut live = Live::default();
    if let Some(text) = reader.text(top, "start", "now") {
        match (Start::parse(&text), top.entry("start")) {
            (Some(start), _) => live.start = start,
            (None, Some(entry)) => {
                let message = format!("\"{text}\" is no start");
                let label = "expected \"resume\", \"now\", \"beginning\" or a time such as \"2026-01-31T10:00:00Z\"";
                reader.mistake(entry.key_span(), &message, "start", label);
            }
            (None, None) => {}
        }
    }
    if let Some(section) = reader.section(top, "checkpoint") {
        reader.known_keys(&section, &["every"]);
        if let Some(every) = reader.duration(&section, "every") {
            live.checkpoint_every = every;
        }
    }
    if let Some(section) = reader.section(top, "work") {
        reader.known_keys(&section, &["threads", "fetch_bytes"]);
        let mut size = |key| {
            let number = reader.number(&section, key);
            number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        (live.threads, live.fetch_bytes) = (size("threads"), size("fetch_bytes"));
    }
    if let Some(section) = reader.section(top, "late") {
        reader.known_keys(&section, &["output"]);
        live.late = reader.text(&section, "output", "Late");
        let known = |name: &String| outputs.iter().any(|output| output.name == *name);
        match (&live.late, section.entry("output")) {
            (Some(name), Some(entry)) if !known(name) => {
                let message = "there is no such output for late events";
                let label = "name one of the outputs of this file, or add one";
                reader.mistake(entry.key_span(), message, "late.output", label);
            }
            (None, None) => reader.missing(&section, "output", "output = \"Late\""),
            _ => {}
        }
    }
    live
}
