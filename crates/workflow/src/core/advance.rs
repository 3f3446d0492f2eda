//! Advances an instance: begins due calls, sets timers, and archives, hands over or parks it when nothing is left
//! to do here.

use std::sync::Arc;

use super::{ClaimState, Core, Effect, LiveInstance, Ownership, Role, StepCall};
use crate::call;
use crate::definition::NotifyEvent;
use crate::journal;
use crate::machine::{AttemptSpan, Event, FailureKind, Instance, Millis, Phase, Task};

impl LiveInstance {
    pub(super) fn own(instance: Box<Instance>) -> LiveInstance {
        LiveInstance {
            ownership: Ownership::Own(instance),
            ..LiveInstance::handed_over()
        }
    }

    pub(super) fn handed_over() -> LiveInstance {
        LiveInstance {
            ownership: Ownership::HandedOver,
            under_way: 0,
            timer_ms: None,
            leaving: false,
            claim: ClaimState::None,
        }
    }

    pub(super) fn phase_name(&self) -> &'static str {
        match &self.ownership {
            Ownership::Own(instance) => instance.phase.name(),
            Ownership::HandedOver => "undoing",
        }
    }
}

impl Core {
    /// Advances an instance after an event or a timer.
    pub(super) fn advance(&mut self, id: &Arc<str>) {
        while let Some(event) = self.advance_once(id) {
            self.journal(id, event);
        }
    }

    /// Begins due calls. Returns an event that follows from the state itself, if any.
    fn advance_once(&mut self, id: &Arc<str>) -> Option<Event> {
        let (now_ms, role) = (self.now_ms, self.role);
        let live = self.live.get_mut(id).filter(|live| !live.leaving)?;
        let Ownership::Own(instance) = &live.ownership else {
            return None;
        };
        match instance.phase {
            Phase::Running if instance.deadline_ms().is_some_and(|at| at <= now_ms) => {
                return Some(Event::DeadlinePassed { at_ms: now_ms });
            }
            Phase::Failing if live.under_way == 0 => {
                return Some(Event::UndoStarted {
                    at_ms: now_ms,
                    doubtful: instance.doubtful(),
                });
            }
            // The dispatcher handles the rest.
            Phase::Ended(_) | Phase::Parked if role == Role::RemoteSupervisor => {
                self.forget_instance(id);
                return None;
            }
            Phase::Ended(_) => {
                live.leaving = true;
                self.archive(id);
                return None;
            }
            phase if !Core::handles_phase(role, phase) => {
                live.leaving = true;
                self.hand_over(id);
                return None;
            }
            Phase::Parked => {
                self.notify_parked(id);
                return None;
            }
            Phase::Undoing if role == Role::Dispatcher => {
                self.make_available(id);
                return None;
            }
            _ => {}
        }
        let mut timer_ms = instance.deadline_ms();
        let mut under_way = live.under_way;
        let mut failure = None;
        for task in instance.tasks() {
            if under_way & 1 << task.step != 0 {
                continue;
            }
            if task.due_ms > now_ms {
                let earlier = timer_ms.map_or(task.due_ms, |at| at.min(task.due_ms));
                timer_ms = Some(earlier);
                continue;
            }
            match prepare_call(instance, task) {
                Ok(effect) => {
                    under_way |= 1 << task.step;
                    self.round.effects.push(effect);
                }
                Err(reason) => {
                    failure = Some(unrenderable(instance, task, now_ms, reason));
                    break;
                }
            }
        }
        live.under_way = under_way;
        self.set_timer(id, timer_ms);
        failure
    }

    /// Archives an ended instance.
    fn archive(&mut self, id: &Arc<str>) {
        self.set_timer(id, None);
        self.withdraw_claim(id);
        let Some(instance) = self.get(id) else {
            return;
        };
        let mut value = Vec::with_capacity(256 + instance.input.len());
        journal::write_snapshot(&mut value, instance);
        let notice = failure_notice(instance, NotifyEvent::Failed);
        if let Some(notice) = notice {
            self.round.effects.push(Effect::Notify {
                id: Arc::clone(id),
                notice: Some(notice),
                parked: None,
            });
        }
        self.round.effects.push(Effect::Archive {
            id: Arc::clone(id),
            value,
        });
    }

    fn hand_over(&mut self, id: &Arc<str>) {
        self.set_timer(id, None);
        let Some(instance) = self.get(id).filter(|_| self.role == Role::Scheduler) else {
            return;
        };
        let mut value = Vec::with_capacity(256 + instance.input.len());
        journal::write_failed(&mut value, instance);
        self.round.effects.push(Effect::HandOver {
            id: Arc::clone(id),
            value,
        });
    }

    fn notify_parked(&mut self, id: &Arc<str>) {
        self.set_timer(id, None);
        self.withdraw_claim(id);
        let Some(instance) = self.get(id).filter(|instance| !instance.notified) else {
            return;
        };
        let notify = Effect::Notify {
            id: Arc::clone(id),
            notice: failure_notice(instance, NotifyEvent::Parked),
            parked: Some(Box::new(instance.view())),
        };
        self.round.effects.push(notify);
    }

    fn set_timer(&mut self, id: &Arc<str>, timer_ms: Option<Millis>) {
        let Some(live) = self.live.get_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut live.timer_ms, timer_ms);
        if before != timer_ms {
            self.forget_timer(id, before);
            if let Some(at_ms) = timer_ms {
                self.timers.insert((at_ms, Arc::clone(id)));
            }
        }
    }

    pub(super) fn forget_timer(&mut self, id: &Arc<str>, timer_ms: Option<Millis>) {
        if let Some(at_ms) = timer_ms {
            self.timers.remove(&(at_ms, Arc::clone(id)));
        }
    }
}

fn prepare_call(instance: &Instance, task: Task) -> Result<Effect, String> {
    let step = usize::from(task.step);
    let work = call::work(instance, step, task.undo).ok_or("there is no way to undo it")?;
    Ok(Effect::Call(StepCall {
        id: Arc::clone(&instance.id),
        step: task.step,
        undo: task.undo,
        work: call::render(instance, step, task.undo)?,
        timeout: work.timeout,
    }))
}

/// The failure of a call that cannot be rendered. Final, because it would fail the same way again.
fn unrenderable(instance: &Instance, task: Task, at_ms: Millis, reason: String) -> Event {
    Event::Failed {
        attempt: AttemptSpan {
            step: task.step,
            undo: task.undo,
            begun_ms: at_ms,
            at_ms,
        },
        kind: FailureKind::Final,
        in_doubt: !task.undo && instance.steps[usize::from(task.step)].in_doubt,
        reason,
    }
}

fn failure_notice(instance: &Instance, on: NotifyEvent) -> Option<call::PreparedCall> {
    let wanted = instance.definition.notify.as_ref()?.on.contains(&on);
    let fits = on == NotifyEvent::Parked || instance.cause.is_some();
    (wanted && fits).then(|| call::notice(instance)).flatten()
}
