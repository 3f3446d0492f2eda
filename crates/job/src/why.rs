//! The fate of every event: arrival time, event time, verdict and windows.

use std::collections::{BTreeSet, HashMap, HashSet};

use highwater_engine::Chunk;
use highwater_time::Instant;
use serde::Serialize;

use crate::condition::EventCondition;
use crate::early::WindowBounds;
use crate::event_trace::{TracedEvent, origin_file, origin_line};
use crate::load::Job;
use crate::outputs::Outputs;
use crate::plan::InputPlan;
use crate::run::{InputFile, Options, Outcome, RunError, run};
use crate::traced_revisions::{TracedRevisions, WindowsOfEvents};

/// One event's fate, ready to be shown.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Fate {
    pub input: String,
    pub file: String,
    pub line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub substream: Option<String>,
    pub arrival: Option<String>,
    pub event_time: Option<String>,
    pub verdict: String,
    /// The watermark that the event met; `None` before the first event.
    pub watermark: Option<String>,
    /// System.Timestamp(), if the event was kept.
    pub timestamp: Option<String>,
    /// The windows that contain it, as (start, end].
    pub windows: Vec<WindowSpan>,
    /// The first revision of each output with early results that counts it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<FirstRevision>,
    /// Why the event could not be read, if it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct WindowSpan {
    pub start: String,
    pub end: String,
}

/// The first early rows that count an event.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct FirstRevision {
    pub output: String,
    pub time: String,
}

/// The times of the revisions of early results, in order.
pub fn revision_times(job: &Job, outcome: &Outcome) -> Vec<Instant> {
    let revisions = TracedRevisions::new(job, outcome, &WindowsOfEvents::new());
    let times = revisions.map(|revisions| revisions.times());
    times.into_iter().flatten().collect()
}

/// Runs the job with a trace of its events; rows are discarded.
pub fn trace_events(job: &Job) -> Result<Outcome, RunError> {
    run(
        job,
        Outputs::discarded(&job.plan),
        Options {
            trace: true,
            ..Options::default()
        },
    )
}

/// The fates of all events, or of those that match the condition `filter`, in order of input, file and line.
pub fn why(job: &Job, filter: Option<&str>) -> Result<Vec<Fate>, RunError> {
    let outcome = trace_events(job)?;
    let chosen = filter
        .map(|filter| matching(job, &outcome.files, filter))
        .transpose()?;
    let mut fates = fates(job, &outcome);
    fates.sort_by_key(|(origin, _)| *origin);
    Ok(fates
        .into_iter()
        .filter(|(origin, _)| chosen.as_ref().is_none_or(|chosen| chosen.contains(origin)))
        .map(|(_, fate)| fate)
        .collect())
}

fn fates(job: &Job, outcome: &Outcome) -> Vec<(u64, Fate)> {
    let Some(trace) = &outcome.trace else {
        return Vec::new();
    };
    let mut windows = WindowsOfEvents::new();
    for entry in &trace.windows {
        windows
            .entry(entry.origin)
            .or_default()
            .insert((entry.start, entry.end));
    }
    let revisions = TracedRevisions::new(job, outcome, &windows);
    let first_revisions = |input: usize, event: &TracedEvent, windows: &BTreeSet<WindowBounds>| {
        let first = (revisions.iter()).flat_map(|revisions| revisions.first(input, event, windows));
        first
            .map(|(output, time)| FirstRevision {
                output: output.to_owned(),
                time: text(time),
            })
            .collect()
    };
    let mut partitions: HashMap<usize, usize> = HashMap::new();
    for event in &trace.events {
        let most = partitions
            .entry(outcome.files[origin_file(event.origin)].input)
            .or_default();
        *most = (*most).max(event.partition);
    }
    let no_windows = BTreeSet::new();
    let judged = trace.events.iter().map(|event| {
        let file = &outcome.files[origin_file(event.origin)];
        let several = partitions.get(&file.input).is_some_and(|most| *most > 0);
        let windows = windows.get(&event.origin).unwrap_or(&no_windows);
        let fate = Fate {
            revisions: first_revisions(file.input, event, windows),
            partition: several.then_some(event.partition),
            substream: event.key.clone(),
            arrival: event.judged.arrival.map(text),
            event_time: Some(text(event.judged.event_time)),
            verdict: event.judged.verdict.name().into(),
            watermark: Some(event.judged.watermark_before)
                .filter(|met| *met > Instant::BEFORE_ALL)
                .map(text),
            timestamp: event.judged.timestamp.map(text),
            windows: windows
                .iter()
                .map(|(start, end)| WindowSpan {
                    start: text(*start),
                    end: text(*end),
                })
                .collect(),
            ..unread(job, file, event.origin)
        };
        (event.origin, fate)
    });
    let lost = trace.lost.iter().map(|lost| {
        let fate = Fate {
            verdict: format!("lost: {}", lost.kind.name()),
            reason: Some(lost.reason.clone()),
            ..unread(job, &outcome.files[origin_file(lost.origin)], lost.origin)
        };
        (lost.origin, fate)
    });
    judged.chain(lost).collect()
}

fn unread(job: &Job, file: &InputFile, origin: u64) -> Fate {
    Fate {
        input: job.plan.inputs[file.input].name.clone(),
        file: file.path.display().to_string(),
        line: origin_line(origin),
        partition: None,
        substream: None,
        arrival: None,
        event_time: None,
        verdict: String::new(),
        watermark: None,
        timestamp: None,
        windows: Vec::new(),
        revisions: Vec::new(),
        reason: None,
    }
}

fn text(time: Instant) -> String {
    crate::report::short_time(time)
}

/// The origins of the events for which the condition holds.
fn matching(job: &Job, files: &[InputFile], filter: &str) -> Result<HashSet<u64>, RunError> {
    let condition = EventCondition::compile(filter, "--where")?;
    let mut chosen = HashSet::new();
    for (number, file) in files.iter().enumerate() {
        let (input, _) = InputPlan::of(job, file.input);
        let mut source = input.format.open(&file.path, condition.fields(), false)?;
        while let Some(decoded) = source.next_batch()? {
            let chunk = Chunk::new(vec![0; decoded.rows].into(), decoded.columns);
            let origin = |row: usize| crate::event_trace::origin(number, decoded.lines[row]);
            chosen.extend(condition.test(&chunk).into_iter().map(origin));
        }
    }
    Ok(chosen)
}
