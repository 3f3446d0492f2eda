//! The account of a stream: how much was read, which events were lost and why, and the dead letters of those.

use std::collections::VecDeque;
use std::path::Path;

use highwater_connect::Events;
use highwater_engine::{Column, DataError, Value, ValueRef, eval};
use highwater_time::Instant;

use crate::plan::InputPlan;
use crate::report::{InputReport, Trouble, TroubleKind};
use crate::side_row::{
    EventLocation, FailedRow, QueryText, RejectedEvent, SideRow, StreamLocation, prefix,
};
use crate::witness::{LostEvent, Witness, origin, origin_line};

pub(crate) struct Account {
    /// The number of the stream among all that the job reads.
    number: usize,
    location: StreamLocation,
    /// The file or partition in full.
    name: String,
    pub report: InputReport,
    /// The latest event that was lost, and why; only of hubs.
    pub last_error: Option<String>,
    /// Only when the fate of events is asked for.
    pub witness: Option<Witness>,
    /// Lost events become dead letters.
    dead_letters: bool,
    /// The latest events of a file, for the dead letters of rows that the query fails on.
    recent: VecDeque<RecentBlock>,
}

struct RecentBlock {
    lines: Vec<u64>,
    events: Column,
}

/// An event that waits longer than this many blocks for its time is not in its dead letter.
const RECENT_BLOCKS: usize = 8;

/// An event that cannot be read, or has no time or key to go by.
pub(crate) struct Rejection<'a> {
    pub kind: TroubleKind,
    /// Line or offset.
    pub line: u64,
    pub reason: &'a str,
    pub arrival: Option<Instant>,
    /// As it was read; empty where it was decoded.
    pub text: &'a str,
    /// As it was decoded, if that is at hand.
    pub event: Option<ValueRef<'a>>,
    /// The file that it was taken from on its way to a hub.
    pub file: Option<&'a str>,
}

impl Account {
    pub fn new(
        input: &InputPlan,
        number: usize,
        location: StreamLocation,
        name: String,
        witness: bool,
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
            witness: witness.then(Witness::default),
            dead_letters: input.dead_letters,
            recent: VecDeque::new(),
        }
    }

    /// The file or partition in full.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn location(&self) -> &StreamLocation {
        &self.location
    }

    pub fn has_dead_letters(&self) -> bool {
        self.dead_letters
    }

    fn is_of_file(&self) -> bool {
        matches!(self.location, StreamLocation::File { .. })
    }

    /// Keeps the latest events of a file for dead letters.
    pub fn remember(&mut self, decoded: &Events, whole: Option<&Column>) {
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

    /// Counts a lost event; its dead letter goes to `out`.
    pub fn reject(&mut self, rejection: &Rejection<'_>, out: &mut Vec<SideRow>) {
        let Rejection {
            kind, line, reason, ..
        } = *rejection;
        let name = rejection.file.unwrap_or(&self.name);
        let troubles = &mut self.report.troubles;
        troubles.add(kind, rejection.arrival, || Trouble {
            file: name.to_owned(),
            line,
            reason: reason.into(),
            sample: shortened(rejection.text).into(),
        });
        if !self.is_of_file() {
            let kind = kind.name();
            self.last_error = Some(format!("{name}@{line}: {kind}: {reason}"));
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
        if let Some(witness) = &mut self.witness {
            witness.lost.push(LostEvent {
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

    /// Counts what is wrong with a whole file.
    pub fn reject_file(&mut self, kind: TroubleKind, reason: String, out: &mut Vec<SideRow>) {
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
        self.report.troubles.add(kind, None, || Trouble {
            file,
            line: 0,
            reason,
            sample: String::new(),
        });
    }

    /// The dead letter of a row that the query failed on.
    pub fn failed_row(&self, error: &DataError, query: &QueryText) -> SideRow {
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

    /// The event of that line as JSON; NULL if it is no longer at hand.
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

/// A file as the job file calls it, so that what is shown does not depend on where it was run.
pub(crate) fn shown_file(file: &str, folder: &Path) -> String {
    let path = Path::new(file);
    path.strip_prefix(folder)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// As much of an event as a person wants to see.
fn shortened(text: &str) -> &str {
    const BYTES_MAX: usize = 200;
    prefix(text, BYTES_MAX)
}
