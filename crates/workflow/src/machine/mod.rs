//! One instance of a workflow as a pure state machine: events fold into an [`Instance`], and an instance decides its
//! next actions. No clock, no I/O.
//!
//! Only external facts are events: an answer arrived, an attempt failed, an operator decided, a deadline passed.
//! The fold computes the consequences (skipped steps, next steps, failure, compensations), so the journal is short and
//! a replay cannot disagree with the original run.
//!
//! Two rules imply the rest:
//!
//! - **A step whose outcome is known is never begun again.** [`Instance::tasks`] returns only steps that are
//!   [`Status::Ready`], and an outcome ends that.
//! - **A step that may have been done is undone.** That is a step that succeeded, or one *in doubt*: an attempt was or
//!   may have been sent, and no answer proves that it was not carried out. A time-out leaves a step in doubt, a refused
//!   connection does not. Compensations run from the last step to the first.

mod event;
mod fold;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use bytes::Bytes;

pub(crate) use event::{AttemptSpan, Event, FailureKind};
pub use view::View;
pub(crate) use view::{AttemptView, Times};

use crate::definition::{Definition, Version};
use crate::expr::{Answers, Scope};

/// Milliseconds since 1970.
pub(crate) type Millis = i64;

/// One run of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instance {
    pub id: Arc<str>,
    pub definition: Arc<Definition>,
    pub version: Version,
    pub input: Bytes,
    pub started_ms: Millis,
    /// Time of the last event.
    pub changed_ms: Millis,
    pub phase: Phase,
    pub steps: Box<[StepState]>,
    /// The first step of the current stage.
    pub(crate) stage: u16,
    /// Why it will not complete, if it has failed.
    pub cause: Option<Box<Cause>>,
    /// Failed attempts: the first and the last ones, if there were many.
    pub attempts: Vec<Attempt>,
    /// Notes of operators on their decisions.
    pub notes: Vec<Note>,
    /// Operators were notified that it is parked.
    pub notified: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Steps are executed.
    Running,
    /// It will not complete. Attempts in progress are awaited.
    Failing,
    /// Steps are being undone.
    Undoing,
    /// A step could not be undone; an operator has to decide.
    Parked,
    Ended(End),
}

/// How an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Completed,
    /// A service or a condition refused; completed steps are undone.
    Refused,
    /// A step failed for good or the deadline passed; completed steps are undone.
    Failed,
    /// Cancelled on request; completed steps are undone.
    Cancelled,
    /// An operator resolved the steps that could not be undone.
    Resolved,
}

/// Why an instance will not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub end: End,
    /// The failed step, if one caused it.
    pub step: Option<u16>,
    pub reason: String,
    pub at_ms: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub at_ms: Millis,
    pub text: String,
}

/// One attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub step: u16,
    pub undo: bool,
    /// From 1.
    pub number: u32,
    pub begun_ms: Millis,
    pub ended_ms: Millis,
    pub reason: String,
}

/// The state of a step and of its undo.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepState {
    pub done: Progress,
    pub undone: Progress,
    /// An attempt may have been carried out without an answer.
    pub in_doubt: bool,
}

/// Progress of a step or of an undo.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    pub status: Status,
    /// Ended attempts.
    pub tries: u32,
    /// When the first attempt began and the last one ended.
    pub begun_ms: Millis,
    pub ended_ms: Millis,
    /// Earliest start of the next attempt.
    pub due_ms: Millis,
    pub answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// Not yet due in the order of steps.
    #[default]
    Waiting,
    /// Ready to begin, or in progress.
    Ready,
    Succeeded,
    /// Not needed, by its condition.
    Passed,
    Failed,
    /// An operator skipped or resolved it.
    Skipped,
}

/// The answer of a service, or the result of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Bytes,
}

/// An attempt to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub step: u16,
    pub undo: bool,
    pub due_ms: Millis,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

impl Instance {
    /// The attempts to begin, now or at their due time. Steps of a group run in parallel; undo runs one step at a
    /// time, from the last to the first.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = Task> + '_ {
        let doing = self.phase == Phase::Running;
        let undoing = self.phase == Phase::Undoing;
        let ready = |progress: &Progress| progress.status == Status::Ready;
        let to_do = self
            .stage_steps()
            .filter(move |step| doing && ready(&self.steps[*step].done));
        let to_undo = (0..self.steps.len()).rev();
        let to_undo = to_undo.filter(move |step| undoing && ready(&self.steps[*step].undone));
        let tasks = to_do.map(|step| (step, false));
        tasks
            .chain(to_undo.take(1).map(|step| (step, true)))
            .map(|(step, undo)| self.task(step, undo))
    }

    fn task(&self, step: usize, undo: bool) -> Task {
        let progress = self.progress(step, undo);
        Task {
            step: step as u16,
            undo,
            due_ms: progress.due_ms,
            attempt: progress.tries + 1,
        }
    }

    fn stage_steps(&self) -> std::ops::Range<usize> {
        match usize::from(self.stage) {
            stage if stage < self.steps.len() => self.definition.stage(stage),
            end => end..end,
        }
    }

    pub(crate) fn progress(&self, step: usize, undo: bool) -> &Progress {
        match undo {
            false => &self.steps[step].done,
            true => &self.steps[step].undone,
        }
    }

    /// The deadline of the instance while it is running.
    pub(crate) fn deadline_ms(&self) -> Option<Millis> {
        let deadline = self.definition.deadline?;
        let at = (self.started_ms).saturating_add(i64::try_from(deadline.as_millis()).ok()?);
        (self.phase == Phase::Running).then_some(at)
    }

    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope::new(&self.definition.name, &self.id, &self.input, self)
    }

    pub(crate) fn end(&self) -> Option<End> {
        match self.phase {
            Phase::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// The idempotency key of every call for a step, on every attempt.
    pub(crate) fn idempotency_key(&self, step: usize, undo: bool) -> String {
        let suffix = if undo { "/undo" } else { "" };
        let step = &self.definition.steps[step].name;
        format!("{}/{}/{step}{suffix}", self.definition.name, self.id)
    }
}

impl Answers for Instance {
    fn answer(&self, step: &str) -> Option<(u16, &[u8])> {
        let number = self.definition.step_number(step)?;
        let answer = self.steps[number].done.answer.as_ref()?;
        Some((answer.status, &answer.body))
    }
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Running => "running",
            Phase::Failing => "failing",
            Phase::Undoing => "undoing",
            Phase::Parked => "parked",
            Phase::Ended(end) => end.name(),
        }
    }
}

impl End {
    pub(crate) const ALL: [End; 5] = [
        End::Completed,
        End::Refused,
        End::Failed,
        End::Cancelled,
        End::Resolved,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            End::Completed => "completed",
            End::Refused => "refused",
            End::Failed => "failed",
            End::Cancelled => "cancelled",
            End::Resolved => "resolved",
        }
    }
}
