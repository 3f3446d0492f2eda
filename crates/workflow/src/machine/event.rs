//! The events of an instance.

use super::{Answer, Millis};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// A step or an undo succeeded.
    Succeeded {
        attempt: AttemptSpan,
        answer: Answer,
    },
    /// An attempt failed.
    Failed {
        attempt: AttemptSpan,
        kind: FailureKind,
        /// It may have been carried out anyway.
        in_doubt: bool,
        reason: String,
    },
    /// The deadline of the instance passed.
    DeadlinePassed { at_ms: Millis },
    /// Cancelled on request.
    Cancelled { at_ms: Millis, note: String },
    /// No attempt is in progress any more, and undo begins. `doubtful` has a bit for each step without an outcome
    /// that may have been done.
    UndoStarted { at_ms: Millis, doubtful: u64 },
    /// An operator retries the failed undos.
    Retried { at_ms: Millis, note: String },
    /// An operator skips the undo of a step.
    Skipped {
        step: u16,
        at_ms: Millis,
        note: String,
    },
    /// An operator resolved all remaining undos.
    Resolved { at_ms: Millis, note: String },
    /// Operators were notified that it is parked, or cannot be reached.
    Notified { at_ms: Millis },
}

/// The step and the times of an ended attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptSpan {
    pub step: u16,
    pub undo: bool,
    pub begun_ms: Millis,
    pub at_ms: Millis,
}

/// The consequence of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// It is retried, not before this time.
    Retry { due_ms: Millis },
    /// It is not retried.
    Final,
    /// A business refusal.
    Refused,
}

impl Event {
    pub(crate) fn at_ms(&self) -> Millis {
        match *self {
            Event::Succeeded { attempt, .. } | Event::Failed { attempt, .. } => attempt.at_ms,
            Event::DeadlinePassed { at_ms }
            | Event::Cancelled { at_ms, .. }
            | Event::UndoStarted { at_ms, .. }
            | Event::Retried { at_ms, .. }
            | Event::Skipped { at_ms, .. }
            | Event::Resolved { at_ms, .. }
            | Event::Notified { at_ms } => at_ms,
        }
    }
}
