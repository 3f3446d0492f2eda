//! What follows from an input.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_flow::retry;
use tokio::sync::oneshot;

use super::{Core, Decision, Effect, Input, Kind, Live, Refused, Role, Started};
use crate::call::{self, CallError, CallErrorKind, Outcome};
use crate::journal;
use crate::machine::{Event, Instance, Millis, Phase, Status, Tried, Trouble, View};

/// A reason that is kept has at most so many characters.
const REASON_CHARS_MAX: usize = 400;

impl Core {
    pub fn handle(&mut self, now_ms: Millis, input: Input) {
        self.pass_to(now_ms);
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
            Input::Told { id } => {
                let at_ms = self.now_ms;
                self.happen(&id, Event::Told { at_ms });
            }
            Input::Closed { id } => {
                if let Some(live) = self.live.remove(&id) {
                    self.forget_timer(&id, live.timer_ms);
                    self.round.put(&id, journal::write_closed);
                }
            }
            Input::HandedOver { id } => {
                if let Some(live) = self.live.get_mut(&id) {
                    *live = Live::handed();
                    self.round.put(&id, journal::write_handed_over);
                }
            }
            Input::Failed { instance } => {
                // The hub of what failed has it already, so there is nothing to append.
                let id = Arc::clone(&instance.id);
                if !self.live.contains_key(&id) {
                    self.live.insert(Arc::clone(&id), Live::own(instance));
                    self.pump(&id);
                }
            }
            Input::Claim { claim, reply } => self.claim(claim, reply),
            Input::Report {
                lock,
                events,
                reply,
            } => self.report(lock, events, reply),
            Input::GiveBack { lock } => self.give_back(lock),
        }
        self.serve_claims();
    }

    /// Lets time pass: deadlines, delays and waits that are over.
    pub fn tick(&mut self, now_ms: Millis) {
        self.pass_to(now_ms);
        while let Some((at_ms, id)) = self.timers.first().cloned()
            && at_ms <= self.now_ms
        {
            self.timers.pop_first();
            if let Some(live) = self.live.get_mut(&id) {
                live.timer_ms = None;
            }
            self.pump(&id);
        }
        self.pass_loans();
    }

    fn start(&mut self, id: Arc<str>, input: Bytes, reply: Option<oneshot::Sender<Started>>) {
        let answer = match (self.live.get(&id), &self.current) {
            (Some(live), _) => Started::Known(live.phase_name()),
            (None, None) => Started::Known("unknown"),
            (None, Some((version, definition))) => {
                let (version, at_ms) = (*version, self.now_ms);
                self.round.put(&id, |out| {
                    journal::write_started(out, version, at_ms, &input);
                });
                let definition = Arc::clone(definition);
                let instance =
                    Instance::started(Arc::clone(&id), definition, version, input, at_ms);
                let live = Live::own(Box::new(instance));
                self.live.insert(Arc::clone(&id), live);
                self.pump(&id);
                Started::New
            }
        };
        if let Some(reply) = reply {
            self.round.effects.push(Effect::Reply(reply, answer));
        }
    }

    fn outcome(&mut self, id: &Arc<str>, step: u16, undo: bool, outcome: Outcome) {
        let Some(live) = self.live.get_mut(id) else {
            return;
        };
        live.under_way &= !(1 << step);
        let Kind::Own(instance) = &live.kind else {
            return;
        };
        let tried = Tried {
            step,
            undo,
            begun_ms: outcome.begun_ms,
            at_ms: outcome.ended_ms,
        };
        let event = match outcome.result {
            Ok(answer) => Event::Succeeded { tried, answer },
            Err(error) => {
                let in_doubt = error.in_doubt || instance.steps[usize::from(step)].in_doubt;
                let random = self.random.next_u64();
                let (trouble, reason) = weigh(instance, &tried, error, random);
                Event::Failed {
                    tried,
                    trouble,
                    in_doubt: in_doubt && !undo,
                    reason,
                }
            }
        };
        self.happen(id, event);
    }

    fn decide(
        &mut self,
        id: Arc<str>,
        decision: Decision,
        reply: oneshot::Sender<Result<View, Refused>>,
    ) {
        let event = self.event_of(&id, decision);
        let shown = event.map(|event| {
            self.happen(&id, event);
            self.get(&id).map(Instance::view)
        });
        let shown = shown.and_then(|view| view.map(Box::new).ok_or(Refused::Unknown));
        self.round.effects.push(Effect::Show(reply, shown));
    }

    fn event_of(&self, id: &str, decision: Decision) -> Result<Event, Refused> {
        let instance = self.get(id).ok_or(match self.has(id) {
            true => Refused::State("with the supervisor"),
            false => Refused::Unknown,
        })?;
        let at_ms = self.now_ms;
        let allowed = match decision {
            Decision::Cancel { .. } => instance.phase == Phase::Running,
            Decision::Resolve { .. } => matches!(instance.phase, Phase::Parked | Phase::Undoing),
            _ => instance.phase == Phase::Parked,
        };
        if !allowed {
            return Err(Refused::State(instance.phase.name()));
        }
        Ok(match decision {
            Decision::Cancel { note } => Event::Cancelled { at_ms, note },
            Decision::Retry { note } => Event::Retried { at_ms, note },
            Decision::Resolve { note } => Event::Resolved { at_ms, note },
            Decision::Skip { step, note } => {
                let number = instance.definition.step_number(&step);
                let parked =
                    |number: &usize| instance.steps[*number].undone.status == Status::Failed;
                let Some(number) = number.filter(parked) else {
                    return Err(Refused::Step(step));
                };
                Event::Skipped {
                    step: number as u16,
                    at_ms,
                    note,
                }
            }
        })
    }

    /// Lets an event happen, and looks at what it leads to.
    pub(super) fn happen(&mut self, id: &Arc<str>, event: Event) {
        if self.journal(id, event) {
            self.pump(id);
        }
    }

    /// Journals an event and folds it in, if the instance is ours.
    pub(super) fn journal(&mut self, id: &Arc<str>, event: Event) -> bool {
        let Some(Live {
            kind: Kind::Own(instance),
            ..
        }) = self.live.get_mut(id)
        else {
            return false;
        };
        self.round.event(id, &event);
        instance.apply(event);
        true
    }

    pub(super) fn is_ours(role: Role, phase: Phase) -> bool {
        match phase {
            Phase::Running | Phase::Failing => role == Role::Scheduler,
            Phase::Undoing | Phase::Parked => role != Role::Scheduler,
            Phase::Ended(_) => true,
        }
    }
}

/// Whether a failed attempt is made again, and what is said of it.
fn weigh(instance: &Instance, tried: &Tried, error: CallError, random: u64) -> (Trouble, String) {
    let Tried { undo, at_ms, .. } = *tried;
    let number = usize::from(tried.step);
    let progress = instance.progress(number, undo);
    let shortened: String = error.reason.chars().take(REASON_CHARS_MAX).collect();
    let retry_after = match error.kind {
        CallErrorKind::Permanent => return (Trouble::Final, shortened),
        CallErrorKind::Refused => return (Trouble::Refused, shortened),
        CallErrorKind::Transient { retry_after } => retry_after,
    };
    let Some(work) = call::work(instance, number, undo) else {
        return (Trouble::Final, shortened);
    };
    let first_ms = match progress.tries {
        0 => tried.begun_ms,
        _ => progress.begun_ms,
    };
    let since = Duration::from_millis(u64::try_from(at_ms - first_ms).unwrap_or(0));
    let tries = progress.tries + 1;
    match work.retry.policy().next(tries, since, retry_after, random) {
        retry::Retry::After(delay) => {
            let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
            let due_ms = at_ms.saturating_add(delay_ms);
            (Trouble::Again { due_ms }, shortened)
        }
        retry::Retry::GiveUp(why) => (Trouble::Final, format!("{shortened} ({why})")),
    }
}
