//! Handles inputs: each becomes records, state changes and effects.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::step_retry::retry_or_give_up;
use super::{
    Core, Effect, Input, LiveInstance, OperatorCommand, OperatorCommandError, Ownership, Reply,
    Role, StartOutcome,
};
use crate::call::CallOutcome;
use crate::journal;
use crate::machine::{AttemptSpan, Event, Instance, Millis, Phase, Status, View};

impl Core {
    pub(crate) fn handle(&mut self, now_ms: Millis, input: Input) {
        self.advance_clock(now_ms);
        match input {
            Input::Start { id, input, reply } => self.start(id, input, reply),
            Input::Outcome {
                id,
                step,
                undo,
                outcome,
            } => self.outcome(&id, step, undo, outcome),
            Input::Decide {
                id,
                decision,
                reply,
            } => self.decide(id, decision, reply),
            Input::Notified { id } => {
                let at_ms = self.now_ms;
                self.record_event(&id, Event::Notified { at_ms });
            }
            Input::Archived { id } => {
                if let Some(live) = self.live.remove(&id) {
                    self.forget_timer(&id, live.timer_ms);
                    self.round.put(&id, journal::write_closed);
                }
            }
            Input::HandedOver { id } => {
                if let Some(live) = self.live.get_mut(&id) {
                    *live = LiveInstance::handed_over();
                    self.round.put(&id, journal::write_handed_over);
                }
            }
            Input::Failed { instance } => {
                // Already on the hub of failed instances, so no record is appended.
                let id = Arc::clone(&instance.id);
                if !self.live.contains_key(&id) {
                    self.live
                        .insert(Arc::clone(&id), LiveInstance::own(instance));
                    self.advance(&id);
                }
            }
            Input::Claim { claim, reply } => self.claim(claim, reply),
            Input::Report {
                lock,
                events,
                reply,
            } => self.report(lock, events, reply),
            Input::ReleaseClaim { lock } => self.release_claim(lock),
        }
        self.serve_waiting_claims();
    }

    /// Advances the clock: fires timers and expires claims.
    pub(crate) fn tick(&mut self, now_ms: Millis) {
        self.advance_clock(now_ms);
        while let Some((at_ms, id)) = self.timers.first().cloned()
            && at_ms <= self.now_ms
        {
            self.timers.pop_first();
            if let Some(live) = self.live.get_mut(&id) {
                live.timer_ms = None;
            }
            self.advance(&id);
        }
        self.expire_claims();
    }

    fn start(&mut self, id: Arc<str>, input: Bytes, reply: Option<oneshot::Sender<StartOutcome>>) {
        let answer = match (self.live.get(&id), &self.current) {
            (Some(live), _) => StartOutcome::Existing(live.phase_name()),
            (None, None) => StartOutcome::Existing("unknown"),
            (None, Some((version, definition))) => {
                let (version, at_ms) = (*version, self.now_ms);
                self.round.put(&id, |out| {
                    journal::write_started(out, version, at_ms, &input);
                });
                let definition = Arc::clone(definition);
                let instance =
                    Instance::started(Arc::clone(&id), definition, version, input, at_ms);
                let live = LiveInstance::own(Box::new(instance));
                self.live.insert(Arc::clone(&id), live);
                self.advance(&id);
                StartOutcome::New
            }
        };
        if let Some(reply) = reply {
            self.round
                .effects
                .push(Effect::Reply(Reply::Start(reply, answer)));
        }
    }

    fn outcome(&mut self, id: &Arc<str>, step: u16, undo: bool, outcome: CallOutcome) {
        let Some(live) = self.live.get_mut(id) else {
            return;
        };
        live.under_way &= !(1 << step);
        let Ownership::Own(instance) = &live.ownership else {
            return;
        };
        let attempt = AttemptSpan {
            step,
            undo,
            begun_ms: outcome.begun_ms,
            at_ms: outcome.ended_ms,
        };
        let event = match outcome.result {
            Ok(answer) => Event::Succeeded { attempt, answer },
            Err(error) => {
                let in_doubt = error.in_doubt || instance.steps[usize::from(step)].in_doubt;
                let random = self.random.next_u64();
                let (kind, reason) = retry_or_give_up(instance, &attempt, error, random);
                Event::Failed {
                    attempt,
                    kind,
                    in_doubt: in_doubt && !undo,
                    reason,
                }
            }
        };
        self.record_event(id, event);
    }

    fn decide(
        &mut self,
        id: Arc<str>,
        decision: OperatorCommand,
        reply: oneshot::Sender<Result<View, OperatorCommandError>>,
    ) {
        let event = self.decision_event(&id, decision);
        let shown = event.map(|event| {
            self.record_event(&id, event);
            self.get(&id).map(Instance::view)
        });
        let shown = shown.and_then(|view| view.map(Box::new).ok_or(OperatorCommandError::Unknown));
        let reply = Reply::OperatorCommand(reply, shown);
        self.round.effects.push(Effect::Reply(reply));
    }

    fn decision_event(
        &self,
        id: &str,
        decision: OperatorCommand,
    ) -> Result<Event, OperatorCommandError> {
        let instance = self.get(id).ok_or(match self.has(id) {
            true => OperatorCommandError::State("with the supervisor"),
            false => OperatorCommandError::Unknown,
        })?;
        let at_ms = self.now_ms;
        let allowed = match decision {
            OperatorCommand::Cancel { .. } => instance.phase == Phase::Running,
            OperatorCommand::Resolve { .. } => {
                matches!(instance.phase, Phase::Parked | Phase::Undoing)
            }
            _ => instance.phase == Phase::Parked,
        };
        if !allowed {
            return Err(OperatorCommandError::State(instance.phase.name()));
        }
        Ok(match decision {
            OperatorCommand::Cancel { note } => Event::Cancelled { at_ms, note },
            OperatorCommand::Retry { note } => Event::Retried { at_ms, note },
            OperatorCommand::Resolve { note } => Event::Resolved { at_ms, note },
            OperatorCommand::Skip { step, note } => {
                let number = instance.definition.step_number(&step);
                let parked =
                    |number: &usize| instance.steps[*number].undone.status == Status::Failed;
                let Some(number) = number.filter(parked) else {
                    return Err(OperatorCommandError::Step(step));
                };
                Event::Skipped {
                    step: number as u16,
                    at_ms,
                    note,
                }
            }
        })
    }

    /// Journals and applies an event, then begins the work it makes due.
    pub(super) fn record_event(&mut self, id: &Arc<str>, event: Event) {
        if self.journal(id, event) {
            self.advance(id);
        }
    }

    /// Journals and applies an event, if the instance is this core's.
    pub(super) fn journal(&mut self, id: &Arc<str>, event: Event) -> bool {
        let Some(LiveInstance {
            ownership: Ownership::Own(instance),
            ..
        }) = self.live.get_mut(id)
        else {
            return false;
        };
        self.round.event(id, &event);
        instance.apply(event);
        true
    }

    pub(super) fn handles_phase(role: Role, phase: Phase) -> bool {
        match phase {
            Phase::Running | Phase::Failing => role == Role::Scheduler,
            Phase::Undoing | Phase::Parked => role != Role::Scheduler,
            Phase::Ended(_) => true,
        }
    }
}
