//! One instance of a workflow as a pure state machine: events fold into an [`Instance`], and an
//! instance says what is to be done next. No clock, no I/O.
//!
//! Only what happened outside is an event: an answer came, an attempt failed, a person decided, a
//! deadline passed. Everything that follows from it (which steps are passed over, which are next,
//! whether the instance has failed, what is to be undone) is computed by the fold, so the journal is
//! short and a replay cannot disagree with the run it replays.
//!
//! Two rules carry the rest:
//!
//! - **A step whose outcome is known is never begun again.** [`Instance::tasks`] names only steps that are
//!   [`Status::Ready`], and an outcome ends that.
//! - **What may have been done is undone.** A step that succeeded, and one that is *in doubt*: an attempt
//!   was or may have been sent, and no answer says that it was not carried out. A time-out leaves a step
//!   in doubt, a refused connection does not. Compensations run from the last step to the first.

mod event;
mod fold;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use bytes::Bytes;

pub use event::{Event, Tried, Trouble};
pub use view::{AttemptView, StepView, Times, UndoView, View};

use crate::definition::{Definition, Version};
use crate::expr::{Answers, Scope};

/// Milliseconds since 1970.
pub type Millis = i64;

/// One run of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    pub id: Arc<str>,
    pub definition: Arc<Definition>,
    pub version: Version,
    pub input: Bytes,
    pub started_ms: Millis,
    /// Of the last event.
    pub changed_ms: Millis,
    pub phase: Phase,
    pub steps: Box<[StepState]>,
    /// The first step of the stage under way.
    pub(crate) stage: u16,
    /// Why it is not to be completed, once that is so.
    pub cause: Option<Box<Cause>>,
    /// Attempts that failed: the first and the last ones, if there were many.
    pub attempts: Vec<Attempt>,
    /// What a person said when they decided.
    pub notes: Vec<Note>,
    /// Those who are to know that it is parked have been told.
    pub told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Steps are being done.
    Running,
    /// It will not be completed; attempts that are under way are waited for.
    Failing,
    /// Steps are being undone.
    Undoing,
    /// A step could not be undone; a person has to decide.
    Parked,
    Ended(End),
}

/// How an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Completed,
    /// A service or a condition said no; what had been done is undone.
    Refused,
    /// A step failed for good or the deadline passed; what had been done is undone.
    Failed,
    /// Somebody asked for it; what had been done is undone.
    Cancelled,
    /// A person took care of what could not be undone.
    Resolved,
}

/// Why an instance is not to be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub end: End,
    /// The step that is to blame, if one is.
    pub step: Option<u16>,
    pub reason: String,
    pub at_ms: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub at_ms: Millis,
    pub text: String,
}

/// One attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub step: u16,
    pub undo: bool,
    /// From 1.
    pub number: u32,
    pub begun_ms: Millis,
    pub ended_ms: Millis,
    pub reason: String,
}

/// A step or the undoing of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepState {
    pub done: Progress,
    pub undone: Progress,
    /// An attempt may have been carried out though nobody said so.
    pub in_doubt: bool,
}

/// How far something has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub status: Status,
    /// Attempts that have ended.
    pub tries: u32,
    /// When the first of them began, and the last ended.
    pub begun_ms: Millis,
    pub ended_ms: Millis,
    /// Not to be begun earlier.
    pub due_ms: Millis,
    pub answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Its turn has not come.
    #[default]
    Waiting,
    /// To be begun, or under way.
    Ready,
    Succeeded,
    /// A condition said that it is not needed.
    Passed,
    Failed,
    /// A person said that it is not to be undone, or took care of it.
    Skipped,
}

/// What a service answered, or a function returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Bytes,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub step: u16,
    pub undo: bool,
    pub due_ms: Millis,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

impl Instance {
    /// What is to be done, now or at its time. Steps of a group come together; undoing goes one by one,
    /// from the last step to the first.
    pub fn tasks(&self) -> impl Iterator<Item = Task> + '_ {
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

    pub fn progress(&self, step: usize, undo: bool) -> &Progress {
        match undo {
            false => &self.steps[step].done,
            true => &self.steps[step].undone,
        }
    }

    /// When the deadline of the whole passes, as long as it matters.
    pub fn deadline_ms(&self) -> Option<Millis> {
        let deadline = self.definition.deadline?;
        let at = (self.started_ms).saturating_add(i64::try_from(deadline.as_millis()).ok()?);
        (self.phase == Phase::Running).then_some(at)
    }

    pub fn scope(&self) -> Scope<'_> {
        Scope::new(&self.definition.name, &self.id, &self.input, self)
    }

    pub fn end(&self) -> Option<End> {
        match self.phase {
            Phase::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// What every call for a step carries, whoever makes it and however often.
    pub fn idempotency_key(&self, step: usize, undo: bool) -> String {
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
    pub fn name(self) -> &'static str {
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
    pub const ALL: [End; 5] = [
        End::Completed,
        End::Refused,
        End::Failed,
        End::Cancelled,
        End::Resolved,
    ];

    pub fn name(self) -> &'static str {
        match self {
            End::Completed => "completed",
            End::Refused => "refused",
            End::Failed => "failed",
            End::Cancelled => "cancelled",
            End::Resolved => "resolved",
        }
    }
}
