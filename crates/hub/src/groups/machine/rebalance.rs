//! Rebalancing: waiting for the members to come, and making a generation of those who did.

use std::time::Duration;

use highwater_log::GroupError;

use super::{AfterStore, Effect, Elapsed, Group, Phase, Rebalance};

impl Group {
    /// Calls the members together, or sees whether those who were called are here now.
    pub(super) fn rebalance(&mut self, now: Elapsed) {
        match self.phase {
            Phase::Preparing(_) => {}
            Phase::Empty => self.gather_first(now),
            Phase::Completing { .. } | Phase::Stable { .. } => {
                self.refuse_syncs(now);
                self.phase = Phase::Preparing(Rebalance {
                    until: now + self.rebalance_timeout(),
                    initial: None,
                });
            }
        }
        self.complete_if_all_are_here(now);
    }

    /// The first members of an application tend to start together. Waiting a moment for the others
    /// spares everybody a rebalance for each of them.
    fn gather_first(&mut self, now: Elapsed) {
        let (timeout, delay) = (self.rebalance_timeout(), self.limits.initial_delay);
        let first = delay.min(timeout);
        self.phase = Phase::Preparing(match delay.is_zero() {
            true => Rebalance {
                until: now + timeout,
                initial: None,
            },
            false => Rebalance {
                until: now + first,
                initial: Some((timeout - first, false)),
            },
        });
    }

    /// The longest that any member asks for.
    fn rebalance_timeout(&self) -> Duration {
        let timeouts = self.members.values().map(|member| member.rebalance_timeout);
        timeouts.max().unwrap_or_default()
    }

    pub(super) fn complete_if_all_are_here(&mut self, now: Elapsed) {
        let Phase::Preparing(Rebalance { initial: None, .. }) = self.phase else {
            return;
        };
        let here = self.members.values().all(|member| member.joining.is_some());
        if here && self.promised.is_empty() {
            self.complete(now);
        }
    }

    /// The time to gather is over.
    pub(super) fn gathering_ends(&mut self, gathering: Rebalance, now: Elapsed) {
        match gathering.initial {
            Some((left, true)) if !left.is_zero() => {
                let more = self.limits.initial_delay.min(left);
                self.phase = Phase::Preparing(Rebalance {
                    until: now + more,
                    initial: Some((left - more, false)),
                });
            }
            _ => self.complete(now),
        }
    }

    /// Makes the next generation of those who are here. A static member keeps its place until its
    /// session ends, whether it came or not.
    fn complete(&mut self, now: Elapsed) {
        (self.members).retain(|_, member| member.joining.is_some() || member.instance.is_some());
        if !self.leader_is_here() {
            let first = self.first_member(|member| member.joining.is_some());
            match first.map(|member| member.id.clone()) {
                Some(first) => self.leader = first,
                None if self.members.is_empty() => return self.become_empty(),
                // Silent static members only; their sessions decide.
                None => {
                    let until = now + self.rebalance_timeout().max(Duration::from_millis(1));
                    let initial = None;
                    self.phase = Phase::Preparing(Rebalance { until, initial });
                    return;
                }
            }
        }
        self.generation += 1;
        self.protocol = self.elect_protocol();
        self.phase = Phase::Completing {
            until: Some(now + self.rebalance_timeout()),
            storing: false,
        };
        self.announce(now);
    }

    fn leader_is_here(&self) -> bool {
        (self.members.get(&self.leader)).is_some_and(|leader| leader.joining.is_some())
    }

    pub(super) fn become_empty(&mut self) {
        self.generation += 1;
        self.phase = Phase::Empty;
        self.protocol.clear();
        self.leader.clear();
        self.effects.push(Effect::Store(AfterStore::Nothing));
    }

    /// Tells everybody who waits about the new generation.
    fn announce(&mut self, now: Elapsed) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.joined(&id);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.assignment.clear();
            let ticket = member.joining.take();
            member.synced = ticket.is_none();
            if let Some(ticket) = ticket {
                member.knows_itself = true;
                member.touch(now);
                self.answer_join(ticket, Ok(joined));
            }
        }
    }

    /// Something asked to be stored is, or could not be.
    pub fn stored(&mut self, after: AfterStore, stored: Result<(), String>, now: Elapsed) {
        self.stirred = true;
        match after {
            AfterStore::Nothing => {}
            AfterStore::Join(ticket, led_as) => self.let_in(ticket, led_as, stored, now),
            AfterStore::Assignment(generation) => self.settle(generation, stored, now),
        }
    }

    fn settle(&mut self, generation: i32, stored: Result<(), String>, now: Elapsed) {
        let Phase::Completing { until, .. } = self.phase else {
            return;
        };
        if generation != self.generation {
            return;
        }
        match stored {
            Ok(()) => {
                self.phase = Phase::Stable { until };
                self.hand_out(now);
            }
            Err(reason) => {
                for member in self.members.values_mut() {
                    member.assignment.clear();
                    if let Some(ticket) = member.syncing.take() {
                        let answer = Err(GroupError::Storage(reason.clone()));
                        self.effects.push(Effect::Synced(ticket, answer));
                    }
                }
                self.rebalance(now);
            }
        }
    }

    fn hand_out(&mut self, now: Elapsed) {
        let mut answers = Vec::new();
        for member in self.members.values_mut() {
            if let Some(ticket) = member.syncing.take() {
                member.touch(now);
                answers.push((ticket, member.assignment.clone()));
            }
        }
        for (ticket, assignment) in answers {
            let synced = self.synced(assignment);
            self.answer_sync(ticket, Ok(synced));
        }
    }
}
