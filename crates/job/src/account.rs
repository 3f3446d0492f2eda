//! The account of a file: what was read, what was lost and why, and the dead letters of what was lost.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use highwater_connect::{BadEvent, Events};
use highwater_engine::{Column, DataError, eval};
use highwater_time::Instant;

use crate::dead::{Cause, DeadLetter, start_of};
use crate::plan::InputPlan;
use crate::report::{InputReport, Trouble, TroubleKind};
use crate::witness::{LostEvent, Witness, origin, origin_line};

pub(crate) struct Account {
    input: Arc<str>,
    /// The number of the file among all that the job reads.
    number: usize,
    file: Arc<str>,
    /// The file as the job file calls it.
    shown: String,
    pub report: InputReport,
    /// Kept only when somebody asks for the fate of events.
    pub witness: Option<Witness>,
    /// Kept only where lost events have somewhere to go.
    dead: Option<Dead>,
}

/// Dead letters that nobody has taken yet, and the latest events, should the query fail on them.
#[derive(Default)]
struct Dead {
    letters: Vec<DeadLetter>,
    recent: VecDeque<(Vec<u64>, Column)>,
}

/// An event that waits longer than this many blocks for its time is not remembered.
const RECENT_BLOCKS: usize = 8;

impl Account {
    pub fn new(input: &InputPlan, file: &Path, number: usize, witness: bool) -> Account {
        let file = file.display().to_string();
        Account {
            input: input.plan.name.as_str().into(),
            number,
            shown: shown_file(&file, &input.folder),
            file: file.into(),
            report: InputReport {
                name: input.plan.name.clone(),
                ..InputReport::default()
            },
            witness: witness.then(Witness::default),
            dead: input.dead_letters.then(Dead::default),
        }
    }

    pub fn file(&self) -> &Arc<str> {
        &self.file
    }

    /// Keeps the latest events, where their dead letters would hold them.
    pub fn remember(&mut self, decoded: &Events, whole: Option<&Column>) {
        let (Some(dead), Some(whole)) = (&mut self.dead, whole) else {
            return;
        };
        dead.recent
            .push_back((decoded.lines.clone(), whole.clone()));
        if dead.recent.len() > RECENT_BLOCKS {
            dead.recent.pop_front();
        }
    }

    pub fn bad_event(&mut self, bad: &BadEvent) {
        let kind = TroubleKind::of(bad.kind, false);
        self.lose((kind, None), bad.line, &bad.reason, &bad.text);
    }

    pub fn lose(
        &mut self,
        (kind, arrival): (TroubleKind, Option<Instant>),
        line: u64,
        reason: &str,
        sample: &str,
    ) {
        let file = &self.file;
        self.report.troubles.add(kind, arrival, || Trouble {
            file: file.to_string(),
            line,
            reason: reason.into(),
            sample: shortened(sample).into(),
        });
        if let Some(dead) = &mut self.dead {
            let event = match sample {
                "" => event_of(&dead.recent, line),
                text => Some(text.to_owned()),
            };
            dead.letters.push(DeadLetter {
                input: Some(self.input.to_string()),
                cause: Cause::Input(kind),
                reason: reason.into(),
                event,
                file: Some(self.shown.clone()),
                line: Some(line),
                time: None,
            });
        }
        if let Some(witness) = &mut self.witness {
            witness.lost.push(LostEvent {
                origin: origin(self.number, line),
                kind,
                reason: reason.into(),
            });
        }
    }

    pub fn file_trouble(&mut self, kind: TroubleKind, reason: String) {
        if let Some(dead) = &mut self.dead {
            dead.letters.push(DeadLetter {
                input: Some(self.input.to_string()),
                cause: Cause::Input(kind),
                reason: reason.clone(),
                event: None,
                file: Some(self.shown.clone()),
                line: None,
                time: None,
            });
        }
        let file = self.file.to_string();
        self.report.troubles.add(kind, None, || Trouble {
            file,
            line: 0,
            reason,
            sample: String::new(),
        });
    }

    /// The dead letters since the last call; `failed` are rows that the query failed on.
    pub fn take_dead(&mut self, failed: impl Iterator<Item = DataError>) -> Vec<DeadLetter> {
        let Some(dead) = &mut self.dead else {
            return Vec::new();
        };
        for error in failed {
            let line = error.origin.map(origin_line);
            dead.letters.push(DeadLetter {
                input: Some(self.input.to_string()),
                cause: Cause::Query(error.span),
                reason: error.reason,
                event: line.and_then(|line| event_of(&dead.recent, line)),
                file: line.map(|_| self.shown.clone()),
                line,
                time: Some(error.time),
            });
        }
        std::mem::take(&mut dead.letters)
    }
}

/// The event of that line as JSON, if it is still at hand.
fn event_of(recent: &VecDeque<(Vec<u64>, Column)>, line: u64) -> Option<String> {
    recent.iter().rev().find_map(|(lines, events)| {
        let row = lines.binary_search(&line).ok()?;
        let mut text = String::new();
        eval::write_json(events.get(row), &mut text);
        Some(text)
    })
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
    start_of(text, BYTES_MAX)
}
