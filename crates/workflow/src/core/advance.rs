//! What an instance leads to: calls that are due, timers for those that are not, and what happens to
//! it when nothing is left to do here.

use std::sync::Arc;

use super::{Core, Effect, Kind, Live, Role, With};
use crate::call;
use crate::definition::Occasion;
use crate::journal;
use crate::machine::{Event, Instance, Millis, Phase, Task, Tried, Trouble};

impl Live {
    pub(super) fn own(instance: Box<Instance>) -> Live {
        Live {
            kind: Kind::Own(instance),
            under_way: 0,
            timer_ms: None,
            leaving: false,
            with: With::Nobody,
        }
    }

    pub(super) fn handed() -> Live {
        Live {
            kind: Kind::Handed,
            under_way: 0,
            timer_ms: None,
            leaving: false,
            with: With::Nobody,
        }
    }

    pub(super) fn phase_name(&self) -> &'static str {
        match &self.kind {
            Kind::Own(instance) => instance.phase.name(),
            Kind::Handed => "undoing",
        }
    }
}

impl Core {
    /// Looks at an instance after something happened to it or its time came.
    pub(super) fn pump(&mut self, id: &Arc<str>) {
        while let Some(event) = self.pump_once(id) {
            self.journal(id, event);
        }
    }

    /// Begins what is due. Answers with an event that follows at once from the state, if there is one.
    fn pump_once(&mut self, id: &Arc<str>) -> Option<Event> {
        let (now_ms, role) = (self.now_ms, self.role);
        let live = self.live.get_mut(id).filter(|live| !live.leaving)?;
        let Kind::Own(instance) = &live.kind else {
            return None;
        };
        match instance.phase {
            Phase::Running if instance.deadline_ms().is_some_and(|at| at <= now_ms) => {
                return Some(Event::Late { at_ms: now_ms });
            }
            Phase::Failing if live.under_way == 0 => {
                return Some(Event::Surrendered {
                    at_ms: now_ms,
                    doubtful: instance.doubtful(),
                });
            }
            // What becomes of it is the keeper's business.
            Phase::Ended(_) | Phase::Parked if role == Role::Agent => {
                self.let_go(id);
                return None;
            }
            Phase::Ended(_) => {
                live.leaving = true;
                self.leave(id);
                return None;
            }
            phase if !Core::is_ours(role, phase) => {
                live.leaving = true;
                self.hand_over(id);
                return None;
            }
            Phase::Parked => {
                self.tell(id);
                return None;
            }
            Phase::Undoing if role == Role::Keeper => {
                self.offer(id);
                return None;
            }
            _ => {}
        }
        let mut timer_ms = instance.deadline_ms();
        let mut begun = live.under_way;
        let mut wrong = None;
        for task in instance.tasks() {
            if begun & 1 << task.step != 0 {
                continue;
            }
            if task.due_ms > now_ms {
                let earlier = timer_ms.map_or(task.due_ms, |at| at.min(task.due_ms));
                timer_ms = Some(earlier);
                continue;
            }
            match begin(instance, task) {
                Ok(effect) => {
                    begun |= 1 << task.step;
                    self.round.effects.push(effect);
                }
                Err(reason) => {
                    wrong = Some(fault(instance, task, now_ms, reason));
                    break;
                }
            }
        }
        live.under_way = begun;
        self.set_timer(id, timer_ms);
        wrong
    }

    /// It has ended: to the history with it.
    fn leave(&mut self, id: &Arc<str>) {
        self.set_timer(id, None);
        self.withdraw(id);
        let Some(instance) = self.get(id) else {
            return;
        };
        let mut value = Vec::with_capacity(256 + instance.input.len());
        journal::write_snapshot(&mut value, instance);
        let notice = wanted_notice(instance, Occasion::Failed);
        if let Some(notice) = notice {
            self.round.effects.push(Effect::Tell {
                id: Arc::clone(id),
                notice: Some(notice),
                parked: None,
            });
        }
        self.round.effects.push(Effect::Finish {
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

    fn tell(&mut self, id: &Arc<str>) {
        self.set_timer(id, None);
        self.withdraw(id);
        let Some(instance) = self.get(id).filter(|instance| !instance.told) else {
            return;
        };
        let tell = Effect::Tell {
            id: Arc::clone(id),
            notice: wanted_notice(instance, Occasion::Parked),
            parked: Some(Box::new(instance.view())),
        };
        self.round.effects.push(tell);
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

fn begin(instance: &Instance, task: Task) -> Result<Effect, String> {
    let step = usize::from(task.step);
    let work = call::work(instance, step, task.undo).ok_or("there is no way to undo it")?;
    Ok(Effect::Call {
        id: Arc::clone(&instance.id),
        step: task.step,
        undo: task.undo,
        work: call::render(instance, step, task.undo)?,
        timeout: work.timeout,
    })
}

/// What cannot even be asked for will not be there next time either.
fn fault(instance: &Instance, task: Task, at_ms: Millis, reason: String) -> Event {
    Event::Failed {
        tried: Tried {
            step: task.step,
            undo: task.undo,
            begun_ms: at_ms,
            at_ms,
        },
        trouble: Trouble::Final,
        in_doubt: !task.undo && instance.steps[usize::from(task.step)].in_doubt,
        reason,
    }
}

fn wanted_notice(instance: &Instance, on: Occasion) -> Option<call::Prepared> {
    let wanted = instance.definition.notify.as_ref()?.on.contains(&on);
    let fits = on == Occasion::Parked || instance.cause.is_some();
    (wanted && fits).then(|| call::notice(instance)).flatten()
}
