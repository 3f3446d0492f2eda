//! Applies events to an instance.
//!
//! An event that does not fit the state changes nothing: the journal may hold an event twice, and its writer may
//! have seen an older state.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Answer, Attempt, AttemptSpan, Cause, End, Event, FailureKind, Instance, Millis, Note, Phase,
    Progress, Status, StepState,
};
use crate::definition::{Definition, Version};

/// Failed attempts kept.
const ATTEMPTS_MAX: usize = 16;

/// Notes kept.
const NOTES_MAX: usize = 16;

impl Instance {
    pub(crate) fn started(
        id: Arc<str>,
        definition: Arc<Definition>,
        version: Version,
        input: Bytes,
        at_ms: Millis,
    ) -> Instance {
        let steps = vec![StepState::default(); definition.steps.len()];
        let mut instance = Instance {
            id,
            definition,
            version,
            input,
            started_ms: at_ms,
            changed_ms: at_ms,
            phase: Phase::Running,
            steps: steps.into(),
            stage: 0,
            cause: None,
            attempts: Vec::new(),
            notes: Vec::new(),
            notified: false,
        };
        instance.advance(at_ms);
        instance
    }

    pub(crate) fn apply(&mut self, event: Event) {
        self.changed_ms = self.changed_ms.max(event.at_ms());
        match event {
            Event::Succeeded { attempt, answer } => self.attempt_succeeded(&attempt, answer),
            Event::Failed {
                attempt,
                kind,
                in_doubt,
                reason,
            } => self.attempt_failed(&attempt, kind, in_doubt, reason),
            Event::DeadlinePassed { at_ms } => {
                if self.phase == Phase::Running {
                    let reason = "the deadline passed".to_owned();
                    self.fail(End::Failed, None, reason, at_ms);
                }
            }
            Event::Cancelled { at_ms, note } => {
                if self.phase == Phase::Running {
                    self.fail(End::Cancelled, None, note, at_ms);
                }
            }
            Event::UndoStarted { at_ms, doubtful } => self.start_undo(at_ms, doubtful),
            Event::Retried { at_ms, note } => self.retry_undo(at_ms, note),
            Event::Skipped { step, at_ms, note } => self.skip_undo(usize::from(step), at_ms, note),
            Event::Resolved { at_ms, note } => self.resolve(at_ms, note),
            Event::Notified { .. } => self.notified = true,
        }
    }

    fn attempt_succeeded(&mut self, attempt: &AttemptSpan, answer: Answer) {
        let Some(progress) = self.ready(attempt) else {
            return;
        };
        progress.count(attempt);
        progress.status = Status::Succeeded;
        progress.answer = Some(answer);
        match attempt.undo {
            false => self.succeeded(usize::from(attempt.step), attempt.at_ms),
            true => self.settle_undo(),
        }
    }

    fn attempt_failed(
        &mut self,
        attempt: &AttemptSpan,
        kind: FailureKind,
        in_doubt: bool,
        reason: String,
    ) {
        let Some(progress) = self.ready(attempt) else {
            return;
        };
        progress.count(attempt);
        let number = progress.tries;
        match kind {
            FailureKind::Retry { due_ms } => progress.due_ms = due_ms,
            FailureKind::Final | FailureKind::Refused => progress.status = Status::Failed,
        }
        let AttemptSpan {
            step,
            undo,
            begun_ms,
            at_ms,
        } = *attempt;
        self.keep(Attempt {
            step,
            undo,
            number,
            begun_ms,
            ended_ms: at_ms,
            reason: reason.clone(),
        });
        let end = match kind {
            FailureKind::Retry { .. } => None,
            FailureKind::Final => Some(End::Failed),
            FailureKind::Refused => Some(End::Refused),
        };
        if !undo {
            self.steps[usize::from(step)].in_doubt |= in_doubt;
        }
        match end {
            None => {}
            Some(_) if undo => {
                self.phase = Phase::Parked;
                self.notified = false;
            }
            Some(end) => self.fail(end, Some(step), reason, at_ms),
        }
    }

    /// An operator retries the failed undos.
    fn retry_undo(&mut self, at_ms: Millis, note: String) {
        if self.phase != Phase::Parked {
            return;
        }
        self.note(at_ms, note);
        for step in &mut self.steps {
            if step.undone.status == Status::Failed {
                step.undone.status = Status::Ready;
                step.undone.tries = 0;
                step.undone.due_ms = at_ms;
            }
        }
        self.phase = Phase::Undoing;
    }

    /// An operator skips the failed undo of a step.
    fn skip_undo(&mut self, step: usize, at_ms: Millis, note: String) {
        let failed = |step: &StepState| step.undone.status == Status::Failed;
        if self.phase == Phase::Parked && self.steps.get(step).is_some_and(failed) {
            self.note(at_ms, note);
            self.steps[step].undone.status = Status::Skipped;
            self.phase = Phase::Undoing;
            self.settle_undo();
        }
    }

    /// An operator resolved all remaining undos.
    fn resolve(&mut self, at_ms: Millis, note: String) {
        if !matches!(self.phase, Phase::Parked | Phase::Undoing) {
            return;
        }
        self.note(at_ms, note);
        for step in &mut self.steps {
            if matches!(step.undone.status, Status::Failed | Status::Ready) {
                step.undone.status = Status::Skipped;
            }
        }
        self.phase = Phase::Ended(End::Resolved);
    }

    /// After a crash: attempts that were due may have been sent, so their steps are in doubt.
    pub(crate) fn recovered(&mut self, now_ms: Millis) {
        let begun_until = match (self.phase, &self.cause) {
            (Phase::Running, _) => now_ms,
            (Phase::Failing, Some(cause)) => cause.at_ms,
            _ => return,
        };
        for step in &mut self.steps {
            step.in_doubt |= step.done.status == Status::Ready && step.done.due_ms <= begun_until;
        }
    }

    /// The steps without an outcome that may have been done, one bit each.
    pub(crate) fn doubtful(&self) -> u64 {
        let in_doubt = |step: &StepState| step.in_doubt && step.done.status == Status::Ready;
        let steps = self.steps.iter().enumerate();
        steps.fold(0, |mask, (n, step)| mask | u64::from(in_doubt(step)) << n)
    }

    /// The progress an outcome belongs to, if an outcome is expected.
    fn ready(&mut self, attempt: &AttemptSpan) -> Option<&mut Progress> {
        let expected = match attempt.undo {
            false => matches!(self.phase, Phase::Running | Phase::Failing),
            true => self.phase == Phase::Undoing,
        };
        let step = self.steps.get_mut(usize::from(attempt.step));
        let step = step.filter(|_| expected)?;
        let progress = match attempt.undo {
            false => &mut step.done,
            true => &mut step.undone,
        };
        (progress.status == Status::Ready).then_some(progress)
    }

    fn succeeded(&mut self, step: usize, at_ms: Millis) {
        self.steps[step].in_doubt = false;
        if self.phase != Phase::Running {
            return;
        }
        let definition = Arc::clone(&self.definition);
        let step_definition = &definition.steps[step];
        if let Some(refusal) = &step_definition.refuse_when
            && refusal.when.holds(&self.scope())
        {
            let reason = refusal.reason.clone();
            self.fail(End::Refused, Some(step as u16), reason, at_ms);
            return;
        }
        let finish = step_definition.finish_when.as_ref();
        if finish.is_some_and(|when| when.holds(&self.scope())) {
            self.finish();
            return;
        }
        self.advance(at_ms);
    }

    /// Completes the instance after the current stage. Other steps of the stage finish first.
    fn finish(&mut self) {
        let stage = self.stage_steps();
        for step in &mut self.steps[stage.end..] {
            step.done.status = Status::Passed;
        }
        self.advance(self.changed_ms);
    }

    /// Moves to the next stage, skipping steps that are not needed.
    fn advance(&mut self, at_ms: Millis) {
        let definition = Arc::clone(&self.definition);
        while usize::from(self.stage) < self.steps.len() {
            let stage = self.stage_steps();
            let mut settled = true;
            for step in stage.clone() {
                if self.steps[step].done.status == Status::Waiting {
                    let step_definition = &definition.steps[step];
                    let needed = match &step_definition.when {
                        Some(when) => when.holds(&self.scope()),
                        None => true,
                    };
                    let delay = step_definition.after.unwrap_or_default().as_millis();
                    let progress = &mut self.steps[step].done;
                    progress.status = if needed {
                        Status::Ready
                    } else {
                        Status::Passed
                    };
                    progress.due_ms =
                        at_ms.saturating_add(i64::try_from(delay).unwrap_or(i64::MAX));
                }
                let status = self.steps[step].done.status;
                settled &= matches!(status, Status::Succeeded | Status::Passed);
            }
            if !settled {
                return;
            }
            self.stage = stage.end as u16;
        }
        self.phase = Phase::Ended(End::Completed);
    }

    fn fail(&mut self, end: End, step: Option<u16>, reason: String, at_ms: Millis) {
        self.phase = Phase::Failing;
        if self.cause.is_none() {
            self.cause = Some(Box::new(Cause {
                end,
                step,
                reason,
                at_ms,
            }));
        }
    }

    /// From failing to undoing: marks every step that was or may have been done for undo.
    fn start_undo(&mut self, at_ms: Millis, doubtful: u64) {
        if self.phase != Phase::Failing {
            return;
        }
        let definition = Arc::clone(&self.definition);
        let steps = self.steps.iter_mut().zip(&definition.steps);
        for (number, (step, definition)) in steps.enumerate() {
            let done = &mut step.done;
            step.in_doubt |= doubtful & 1 << number != 0;
            let may_be_done = done.status == Status::Succeeded || step.in_doubt;
            if may_be_done && definition.undo.is_some() {
                step.undone.status = Status::Ready;
                step.undone.due_ms = at_ms;
            }
            if done.status == Status::Ready {
                done.status = Status::Failed;
            }
        }
        self.phase = Phase::Undoing;
        self.settle_undo();
    }

    /// Ends the instance when nothing is left to undo.
    fn settle_undo(&mut self) {
        let left = |step: &StepState| matches!(step.undone.status, Status::Ready | Status::Failed);
        if self.phase == Phase::Undoing && !self.steps.iter().any(left) {
            let end = self.cause.as_ref().map_or(End::Failed, |cause| cause.end);
            self.phase = Phase::Ended(end);
        }
    }

    fn note(&mut self, at_ms: Millis, text: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(Note { at_ms, text });
        }
    }

    /// Keeps the first and the last attempts.
    fn keep(&mut self, attempt: Attempt) {
        if self.attempts.len() == ATTEMPTS_MAX {
            self.attempts.remove(ATTEMPTS_MAX / 2);
        }
        self.attempts.push(attempt);
    }
}

impl Progress {
    fn count(&mut self, attempt: &AttemptSpan) {
        if self.tries == 0 && self.begun_ms == 0 {
            self.begun_ms = attempt.begun_ms;
        }
        self.tries += 1;
        self.ended_ms = attempt.at_ms;
    }
}
