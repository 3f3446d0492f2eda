//! The request of the playground, and its limits.

use std::collections::BTreeMap;

use highwater_job::playground::{Playground, PlaygroundEvent, PlaygroundInput};
use highwater_time::{Duration, Instant, TimePolicy, ViolationAction};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::too_large;
use crate::http::error::Error;

/// The whole request.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;
const QUERY_BYTES_MAX: usize = 64 << 10;
const EVENT_BYTES_MAX: usize = 64 << 10;
const EVENTS_MAX: usize = 1_000;
const INPUTS_MAX: usize = 8;
const PARTITIONS_MAX: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaygroundRequest {
    query: String,
    #[serde(default)]
    time: TimeSettings,
    start: Option<String>,
    /// In the order of their names.
    #[serde(default)]
    inputs: BTreeMap<String, InputRequest>,
}

/// As in `[time]` of a job file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeSettings {
    late_arrival: Option<String>,
    out_of_order: Option<String>,
    early_arrival: Option<String>,
    late_events: Option<Action>,
    out_of_order_events: Option<Action>,
    early_events: Option<Action>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Adjust,
    Drop,
}

impl From<Action> for ViolationAction {
    fn from(action: Action) -> ViolationAction {
        match action {
            Action::Adjust => ViolationAction::Adjust,
            Action::Drop => ViolationAction::Drop,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputRequest {
    /// Lines of JSON.
    text: Option<String>,
    events: Option<Vec<EventRequest>>,
    /// The fields of an event of `text` with its arrival time and its partition.
    arrival: Option<String>,
    partition: Option<String>,
    #[serde(default)]
    reference: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventRequest {
    value: Box<RawValue>,
    arrived: Option<String>,
    partition: Option<usize>,
}

/// The request within its limits.
pub(super) struct PreparedRequest {
    pub(super) playground: Playground,
    pub(super) asked: AnsweredRequest,
}

/// The part of a request that its answer refers to.
pub(super) struct AnsweredRequest {
    pub(super) query: String,
    /// Per input of the playground, the line of each event.
    pub(super) lines: Vec<InputLines>,
}

/// The lines that the events of an input are on.
pub(super) struct InputLines {
    pub(super) input: String,
    pub(super) lines: Vec<u64>,
}

/// An event before its arrival and partition are settled.
struct RawEvent {
    line: u64,
    value: Vec<u8>,
    arrived: Option<Instant>,
    partition: usize,
}

impl PlaygroundRequest {
    /// `now` is the arrival of the first event, unless the request says otherwise.
    pub(super) fn prepare(self, now: Instant) -> Result<PreparedRequest, Error> {
        if self.query.len() > QUERY_BYTES_MAX {
            return Err(too_large(format!(
                "the query has {} bytes",
                self.query.len()
            )));
        }
        if self.inputs.len() > INPUTS_MAX {
            return Err(too_large(format!("there are {} inputs", self.inputs.len())));
        }
        let start = self.start.as_deref().map(time).transpose()?.unwrap_or(now);
        let (mut inputs, mut lines, mut count) = (Vec::new(), Vec::new(), 0);
        for (name, input) in self.inputs {
            let is_reference = input.reference;
            let events = input.events(&name)?;
            count += events.len();
            if count > EVENTS_MAX {
                return Err(too_large(format!(
                    "there are more than {EVENTS_MAX} events"
                )));
            }
            lines.push(InputLines {
                input: name.clone(),
                lines: events.iter().map(|event| event.line).collect(),
            });
            inputs.push(PlaygroundInput {
                name,
                is_reference,
                events: with_arrivals(events, start),
            });
        }
        Ok(PreparedRequest {
            asked: AnsweredRequest {
                query: self.query.clone(),
                lines,
            },
            playground: Playground {
                query: self.query,
                time: self.time.policy()?,
                inputs,
            },
        })
    }
}

/// Gives every event an arrival: its own, or a second after the one before it. Arrivals never decrease.
fn with_arrivals(events: Vec<RawEvent>, start: Instant) -> Vec<PlaygroundEvent> {
    let mut last: Option<Instant> = None;
    let events = events.into_iter().map(|event| {
        let next = last.map_or(start, |last| last + Duration::from_secs(1));
        let arrived = event.arrived.unwrap_or(next);
        let arrival = last.map_or(arrived, |last| last.max(arrived));
        last = Some(arrival);
        PlaygroundEvent {
            value: event.value,
            arrival,
            partition: event.partition,
        }
    });
    events.collect()
}

impl InputRequest {
    fn events(self, name: &str) -> Result<Vec<RawEvent>, Error> {
        let events = match (&self.text, self.events) {
            (Some(_), Some(_)) => {
                let message = format!("input `{name}` has both text and events");
                return Err(Error::bad(message, "leave one of them out"));
            }
            (Some(text), None) => {
                let (arrival, partition) = (self.arrival.as_deref(), self.partition.as_deref());
                lines_of(text, arrival, partition)?
            }
            (None, events) => listed(events.unwrap_or_default())?,
        };
        if let Some(long) = events
            .iter()
            .find(|event| event.value.len() > EVENT_BYTES_MAX)
        {
            let (line, bytes) = (long.line, long.value.len());
            let message = format!("event {line} of input `{name}` has {bytes} bytes");
            return Err(too_large(message));
        }
        if events.iter().any(|event| event.partition >= PARTITIONS_MAX) {
            let message = format!("input `{name}` has more than {PARTITIONS_MAX} partitions");
            return Err(too_large(message));
        }
        Ok(events)
    }
}

fn listed(events: Vec<EventRequest>) -> Result<Vec<RawEvent>, Error> {
    let events = events.into_iter().zip(1..).map(|(event, line)| {
        Ok(RawEvent {
            line,
            // The decoder takes an event on one line.
            value: event.value.get().replace(['\n', '\r'], " ").into_bytes(),
            arrived: event.arrived.as_deref().map(time).transpose()?,
            partition: event.partition.unwrap_or(0),
        })
    });
    events.collect()
}

/// The events of lines of JSON. Partitions are numbered in the order of their first events.
fn lines_of(
    text: &str,
    arrival: Option<&str>,
    partition: Option<&str>,
) -> Result<Vec<RawEvent>, Error> {
    let mut partitions: Vec<String> = Vec::new();
    let lines = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty());
    let events = lines.map(|(text, line)| {
        // A line that is not JSON is an event that is lost, as in a hub.
        let parsed = match arrival.or(partition) {
            Some(_) => serde_json::from_str::<Value>(text).unwrap_or_default(),
            None => Value::Null,
        };
        let arrived = arrival.and_then(|name| field(&parsed, name)?.as_str());
        let arrived = arrived.and_then(|text| Instant::parse_iso(text.as_bytes()));
        let partition = partition.map_or(0, |name| {
            let id = field(&parsed, name).unwrap_or(&Value::Null).to_string();
            let known = partitions.iter().position(|known| *known == id);
            known.unwrap_or_else(|| {
                partitions.push(id);
                partitions.len() - 1
            })
        });
        RawEvent {
            line,
            value: text.trim().as_bytes().to_vec(),
            arrived,
            partition,
        }
    });
    Ok(events.collect())
}

/// A field of an event, by its name or one that differs in case.
fn field<'a>(event: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = event.as_object()?;
    let alike = || {
        let mut fields = fields.iter();
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name))
    };
    fields.get(name).or_else(|| alike().map(|(_, value)| value))
}

fn time(text: &str) -> Result<Instant, Error> {
    let wrong = || {
        Error::bad(
            format!("`{text}` is no time"),
            "such as 2026-01-31T10:00:00Z",
        )
    };
    Instant::parse_iso(text.as_bytes()).ok_or_else(wrong)
}

impl TimeSettings {
    fn policy(&self) -> Result<TimePolicy, Error> {
        let default = TimePolicy::default();
        let early = match self.early_arrival.as_deref() {
            Some("off") => None,
            Some(text) => Some(duration(text)?),
            None => default.early_arrival,
        };
        let or = |text: &Option<String>, default| text.as_deref().map_or(Ok(default), duration);
        let action =
            |chosen: Option<Action>, default| chosen.map_or(default, ViolationAction::from);
        Ok(TimePolicy {
            late_arrival: or(&self.late_arrival, default.late_arrival)?,
            out_of_order: or(&self.out_of_order, default.out_of_order)?,
            early_arrival: early,
            late_events: action(self.late_events, default.late_events),
            out_of_order_events: action(self.out_of_order_events, default.out_of_order_events),
            early_events: action(self.early_events, default.early_events),
        })
    }
}

fn duration(text: &str) -> Result<Duration, Error> {
    let parsed = Duration::parse(text).ok();
    parsed
        .filter(|time| *time >= Duration::ZERO)
        .ok_or_else(|| Error::bad(format!("`{text}` is no duration"), "such as 5s, 2m or 1h"))
}
