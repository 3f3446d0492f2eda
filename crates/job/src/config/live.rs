//! The settings of a live job: start, checkpoints, the output for late events, and the policy for failed rows.

use highwater_connect::{STATE_KEYS, StateSettings};
use highwater_settings::{FileReader, Section};
use highwater_time::{Duration, Instant};

use super::Output;

/// Settings of a live job.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// The default start; a start request can override it.
    pub start: Start,
    /// The checkpoint interval.
    pub checkpoint_every: Duration,
    /// The side output for late, early and out-of-order events, with their verdicts.
    pub late: Option<String>,
    /// Number of threads for partitions; `None` leaves it to the node.
    pub threads: Option<usize>,
    /// Approximate size of one read from a partition.
    pub fetch_bytes: Option<usize>,
    /// How long a call of a JavaScript function may take by the clock; `None` for the default.
    pub function_timeout: Option<Duration>,
    /// Where checkpoints are; `None` for the data folder of the node.
    pub state: Option<JobStateStore>,
}

/// A store for the checkpoints of a job, from which another machine may resume.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStateStore {
    pub store: StateSettings,
    /// The settings of the node have it, and not the job file.
    pub of_node: bool,
    /// Several instances share the job.
    pub shared: bool,
    /// An instance is removed after this long without a heartbeat.
    pub session_timeout: std::time::Duration,
    /// Over how many combiners the steps after the exchange are spread by key.
    pub combiners: usize,
}

impl JobStateStore {
    /// The state of jobs that say nothing about it: below a folder or URL of the node's settings.
    pub fn of_node(location: String, shared: bool, session_timeout: std::time::Duration) -> Self {
        JobStateStore {
            store: StateSettings::folder(location),
            of_node: true,
            shared,
            session_timeout,
            combiners: 1,
        }
    }
}

/// Kafka's default minimum is 6 s.
const SESSION_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Each stream has a partition of the exchange for each combiner.
const COMBINERS_MAX: u64 = 64;

impl Default for Live {
    fn default() -> Live {
        Live {
            start: Start::Resume,
            checkpoint_every: Duration::from_secs(10),
            late: None,
            threads: None,
            fetch_bytes: None,
            function_timeout: None,
            state: None,
        }
    }
}

/// The time of the first row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Where it last stopped; now at the first start.
    #[default]
    Resume,
    /// The time of the start.
    Now,
    /// At this time, with complete rows from the first on.
    At(Instant),
    /// At the first stored event.
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

/// The policy for rows that an output rejects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Retry without limit, with an alarm.
    #[default]
    Retry,
    /// Drop and count them after some attempts.
    Drop,
    /// Write them to the dead-letter output after some attempts.
    DeadLetter,
}

const ON_FAILURE: &[(&str, OnFailure)] = &[
    ("retry", OnFailure::Retry),
    ("drop", OnFailure::Drop),
    ("dead_letter", OnFailure::DeadLetter),
];

pub(super) fn read_on_failure(reader: &mut FileReader, section: &Section) -> OnFailure {
    let chosen = reader.choice(section, "on_failure", ON_FAILURE, &[]);
    chosen.unwrap_or_default()
}

pub(super) fn read_live(reader: &mut FileReader, top: &Section, outputs: &[Output]) -> Live {
    let mut live = Live::default();
    if let Some(text) = reader.text(top, "start", "now") {
        match (Start::parse(&text), top.entry("start")) {
            (Some(start), _) => live.start = start,
            (None, Some(entry)) => {
                let message = format!("\"{text}\" is no start position");
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
        reader.known_keys(&section, &["threads", "fetch_bytes", "function_timeout"]);
        let mut size = |key| {
            let number = reader.number(&section, key);
            number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        (live.threads, live.fetch_bytes) = (size("threads"), size("fetch_bytes"));
        live.function_timeout = reader.duration(&section, "function_timeout");
        if let (Some(timeout), Some(entry)) =
            (live.function_timeout, section.entry("function_timeout"))
            && timeout < Duration::from_secs(1)
        {
            reader.wrong_value(&entry, "\"function_timeout\" must be at least 1s", "");
        }
    }
    live.state = reader
        .section(top, "state")
        .and_then(|section| read_state(reader, &section));
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

fn read_state(reader: &mut FileReader, section: &Section) -> Option<JobStateStore> {
    let mut keys = vec!["shared", "session_timeout", "combiners"];
    keys.extend(STATE_KEYS);
    reader.known_keys(section, &keys);
    let store = StateSettings::read(reader, section);
    let shared = reader.boolean(section, "shared").unwrap_or(false);
    let timeout = reader.duration(section, "session_timeout").map(|timeout| {
        let micros = u64::try_from(timeout.ticks() / 10).unwrap_or_default();
        std::time::Duration::from_micros(micros)
    });
    let combiners = reader.number(section, "combiners").unwrap_or(1);
    if let Some(entry) = section.entry("combiners")
        && !(1..=COMBINERS_MAX).contains(&combiners)
    {
        let message = format!("\"combiners\" must be from 1 to {COMBINERS_MAX}");
        reader.wrong_value(&entry, &message, "");
    }
    if !shared {
        reader.useless(section, "session_timeout", "it needs shared = true");
        reader.useless(section, "combiners", "it needs shared = true");
    }
    Some(JobStateStore {
        store: store?,
        of_node: false,
        shared,
        session_timeout: timeout.unwrap_or(SESSION_TIMEOUT),
        combiners: combiners.clamp(1, COMBINERS_MAX) as usize,
    })
}
