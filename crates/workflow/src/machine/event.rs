//! What happens to an instance.

use super::{Answer, Millis};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A step, or the undoing of one, succeeded.
    Succeeded { tried: Tried, answer: Answer },
    /// An attempt failed.
    Failed {
        tried: Tried,
        trouble: Trouble,
        /// It may have been carried out all the same.
        in_doubt: bool,
        reason: String,
    },
    /// The deadline of the whole passed.
    Late { at_ms: Millis },
    /// Somebody asked not to go on.
    Cancelled { at_ms: Millis, note: String },
    /// No attempt is under way any more, and what was done is to be undone. Of the steps that have no
    /// outcome those in `doubtful`, a bit each, may have been done all the same.
    Surrendered { at_ms: Millis, doubtful: u64 },
    /// A person asks to try again what could not be undone.
    Retried { at_ms: Millis, note: String },
    /// A person says that a step is not to be undone.
    Skipped {
        step: u16,
        at_ms: Millis,
        note: String,
    },
    /// A person took care of everything that was left to undo.
    Resolved { at_ms: Millis, note: String },
    /// Those who are to know that it is parked have been told, or cannot be.
    Told { at_ms: Millis },
}

/// An attempt that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    pub step: u16,
    pub undo: bool,
    pub begun_ms: Millis,
    pub at_ms: Millis,
}

/// What follows from an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is tried again, not before this time.
    Again { due_ms: Millis },
    /// It is not tried again.
    Final,
    /// A business refusal.
    Refused,
}

impl Event {
    pub fn at_ms(&self) -> Millis {
        match *self {
            Event::Succeeded { tried, .. } | Event::Failed { tried, .. } => tried.at_ms,
            Event::Late { at_ms }
            | Event::Cancelled { at_ms, .. }
            | Event::Surrendered { at_ms, .. }
            | Event::Retried { at_ms, .. }
            | Event::Skipped { at_ms, .. }
            | Event::Resolved { at_ms, .. }
            | Event::Told { at_ms } => at_ms,
        }
    }
}
