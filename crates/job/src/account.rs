//! Counts the events that a stream reads and loses, and writes the dead letters of lost ones.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use highwater_connect::Events;
use highwater_engine::{Column, DataError, Value, ValueRef, eval};
use highwater_time::Instant;

use crate::error_log::{DataErrorSample, ErrorLog};
use crate::event_trace::{EventTrace, LostEvent, origin, origin_line};
use crate::plan::InputPlan;
use crate::report::{InputErrorKind, InputErrorSample, InputReport};
use crate::side_row::{
    EventLocation, FailedRow, QueryText, RejectedEvent, SideRow, StreamLocation, prefix,
};

pub(crate) struct Account {
    /// The number of the stream within the job.
    number: usize,
    location: StreamLocation,
    /// The path of the file, or hub and partition.
    name: String,
    pub report: InputReport,
    /// The latest lost event and the reason; only for hubs.
    pub last_error: Option<String>,
    /// Set for a live job.
    pub error_log: Option<Arc<ErrorLog>>,
    /// Set if the run traces events.
    pub trace: Option<EventTrace>,
    /// Lost events become dead letters.
    dead_letters: bool,
    /// The latest events of a file, for the dead letters of failed rows.
    recent: VecDeque<RecentBlock>,
}

struct RecentBlock {
    lines: Vec<u64>,
    events: Column,
}

/// A dead letter of a file has its event only if the event is in one of this many latest blocks.
const RECENT_BLOCKS: usize = 8;

/// An event that cannot be decoded, or has no event time or substream key.
pub(crate) struct Rejection<'a> {
    pub kind: InputErrorKind,
    /// Line or offset.
    pub line: u64,
    pub reason: &'a str,
    pub arrival: Option<Instant>,
    /// The text of an event that could not be decoded; otherwise empty.
    pub text: &'a str,
    /// The decoded event, if it is available.
    pub event: Option<ValueRef<'a>>,
    /// The followed file that the event was read from.
    pub file: Option<&'a str>,
}

impl Account {
    pub(crate) fn new(
        input: &InputPlan,
        number: usize,
        location: StreamLocation,
        name: String,
        trace: bool,
    ) -> Account {
        Account {
            number,
            location,
            name,
            report: InputReport {
                name: input.plan.name.clone(),
                ..InputReport::default()
            },
            last_error: None,
            error_log: None,
            trace: trace.then(EventTrace::default),
            dead_letters: input.dead_letters,
            recent: VecDeque::new(),
        }
    }

    /// The path of the file, or hub and partition.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn location(&self) -> &StreamLocation {
        &self.location
    }

    pub(crate) fn has_dead_letters(&self) -> bool {
        self.dead_letters
    }

    fn is_of_file(&self) -> bool {
        matches!(self.location, StreamLocation::File { .. })
    }

    /// Stores the latest events of a file for dead letters.
    pub(crate) fn remember(&mut self, decoded: &Events, whole: Option<&Column>) {
        let Some(whole) = whole.filter(|_| self.dead_letters && self.is_of_file()) else {
            return;
        };
        self.recent.push_back(RecentBlock {
            lines: decoded.lines.clone(),
            events: whole.clone(),
        });
        if self.recent.len() > RECENT_BLOCKS {
            self.recent.pop_front();
        }
    }

    /// Counts a lost event and appends its dead letter to `out`.
    pub(crate) fn reject(&mut self, rejection: &Rejection<'_>, out: &mut Vec<SideRow>) {
        let Rejection {
            kind, line, reason, ..
        } = *rejection;
        let name = rejection.file.unwrap_or(&self.name);
        let errors = &mut self.report.errors;
        errors.add(kind, rejection.arrival, || InputErrorSample {
            file: name.to_owned(),
            line,
            reason: reason.into(),
            event: shortened(rejection.text).into(),
        });
        if !self.is_of_file() {
            let kind = kind.name();
            self.last_error = Some(format!("{name}@{line}: {kind}: {reason}"));
        }
        if let Some(log) = &self.error_log {
            log.add(DataErrorSample {
                time: rejection.arrival,
                place: format!("{}/{line}", self.name),
                input: Some(self.location.input().to_owned()),
                kind: kind.name(),
                reason: reason.into(),
                event: shortened(rejection.text).into(),
            });
        }
        if self.dead_letters {
            out.extend(SideRow::of_rejected(RejectedEvent {
                location: EventLocation {
                    stream: &self.location,
                    file: rejection.file,
                    offset: Some(line),
                },
                kind,
                reason,
                event: self.rejected_event(rejection),
                arrival: rejection.arrival,
            }));
        }
        if let Some(trace) = &mut self.trace {
            trace.lost.push(LostEvent {
                origin: origin(self.number, line),
                kind,
                reason: reason.into(),
            });
        }
    }

    fn rejected_event(&self, rejection: &Rejection<'_>) -> Value {
        match (rejection.event, rejection.text) {
            (Some(event), _) if !self.is_of_file() => json(event),
            (_, "") if self.is_of_file() => self.recent_event(rejection.line),
            (_, text) => Value::Text(text.into()),
        }
    }

    /// Counts an error of the whole file.
    pub(crate) fn reject_file(
        &mut self,
        kind: InputErrorKind,
        reason: String,
        out: &mut Vec<SideRow>,
    ) {
        if self.dead_letters {
            out.extend(SideRow::of_rejected(RejectedEvent {
                location: EventLocation {
                    stream: &self.location,
                    file: None,
                    offset: None,
                },
                kind,
                reason: &reason,
                event: Value::Null,
                arrival: None,
            }));
        }
        let file = self.name.clone();
        self.report.errors.add(kind, None, || InputErrorSample {
            file,
            line: 0,
            reason,
            event: String::new(),
        });
    }

    /// A row that the query failed on, for the log of data errors.
    pub(crate) fn failed_row_sample(&self, error: &DataError) -> DataErrorSample {
        let place = match error.origin {
            Some(origin) => format!("{}/{}", self.name, origin_line(origin)),
            None => self.name.clone(),
        };
        DataErrorSample {
            input: Some(self.location.input().to_owned()),
            ..DataErrorSample::of_row(error, place)
        }
    }

    /// The dead letter of a row that the query failed on.
    pub(crate) fn failed_row(&self, error: &DataError, query: &QueryText) -> SideRow {
        let line = error.origin.map(origin_line);
        let location = EventLocation {
            stream: &self.location,
            file: None,
            offset: line,
        };
        if !self.is_of_file() {
            return SideRow::of_failed_in_hubs(&FailedRow {
                error,
                query,
                location: line.map(|_| location),
                event: Value::Null,
            });
        }
        let event = line.map_or(Value::Null, |line| self.recent_event(line));
        SideRow::of_failed_in_files(&FailedRow {
            error,
            query,
            location: Some(location),
            event,
        })
    }

    /// The event of that line as JSON; NULL if it is no longer stored.
    fn recent_event(&self, line: u64) -> Value {
        let event = self.recent.iter().rev().find_map(|block| {
            let row = block.lines.binary_search(&line).ok()?;
            Some(json(block.events.get(row)))
        });
        event.unwrap_or(Value::Null)
    }
}

/// The event as JSON: a column of an output has one type, and events have many.
pub(crate) fn json(event: ValueRef<'_>) -> Value {
    let mut json = String::new();
    eval::write_json(event, &mut json);
    Value::Text(json.into())
}

/// The path of a file relative to the job's folder, so that results do not depend on the working directory.
pub(crate) fn shown_file(file: &str, folder: &Path) -> String {
    let path = Path::new(file);
    path.strip_prefix(folder)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// The start of an event, for a report.
fn shortened(text: &str) -> &str {
    const BYTES_MAX: usize = 200;
    prefix(text, BYTES_MAX)
}
