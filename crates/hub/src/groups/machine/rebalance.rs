//! Rebalances: wait for the members to join, then form a generation.

use std::time::Duration;

use highwater_log::GroupError;

use super::{AfterStore, Effect, Elapsed, Group, Phase, Rebalance};

impl Group {
    /// Starts a rebalance, or completes the current one if all members have joined.
    pub(super) fn rebalance(&mut self, now: Elapsed) {
        match self.phase {
            Phase::Preparing(_) => {}
            Phase::Empty => self.await_first_members(now),
            Phase::Completing { .. } | Phase::Stable { .. } => {
                self.refuse_syncs(now);
                self.phase = Phase::Preparing(Rebalance {
                    until: now + self.rebalance_timeout(),
                    initial: None,
                });
            }
        }
        self.complete_if_all_joined(now);
    }

    /// The members of an application tend to start together. A short delay avoids a rebalance for each of them.
    fn await_first_members(&mut self, now: Elapsed) {
        let (timeout, delay) = (self.rebalance_timeout(), self.options.initial_delay);
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

    /// The longest rebalance timeout of a member.
    fn rebalance_timeout(&self) -> Duration {
        let timeouts = self
            .members
            .values()
            .map(|member| member.record.rebalance_timeout);
        timeouts.max().unwrap_or_default()
    }

    pub(super) fn complete_if_all_joined(&mut self, now: Elapsed) {
        let Phase::Preparing(Rebalance { initial: None, .. }) = self.phase else {
            return;
        };
        let joined = self.members.values().all(|member| member.joining.is_some());
        if joined && self.promised.is_empty() {
            self.complete(now);
        }
    }

    /// The time of a rebalance is up.
    pub(super) fn end_rebalance(&mut self, rebalance: Rebalance, now: Elapsed) {
        match rebalance.initial {
            Some((left, true)) if !left.is_zero() => {
                let more = self.options.initial_delay.min(left);
                self.phase = Phase::Preparing(Rebalance {
                    until: now + more,
                    initial: Some((left - more, false)),
                });
            }
            _ => self.complete(now),
        }
    }

    /// Forms the next generation of the members that have joined. A static member stays until its session ends, even
    /// if it has not joined.
    fn complete(&mut self, now: Elapsed) {
        (self.members)
            .retain(|_, member| member.joining.is_some() || member.record.instance.is_some());
        if !self.leader_has_joined() {
            let first = self.first_member(|member| member.joining.is_some());
            match first.map(|member| member.record.id.clone()) {
                Some(first) => self.leader = first,
                None if self.members.is_empty() => return self.become_empty(),
                // Only static members that have not joined; they stay until their sessions end.
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

    fn leader_has_joined(&self) -> bool {
        (self.members.get(&self.leader)).is_some_and(|leader| leader.joining.is_some())
    }

    pub(super) fn become_empty(&mut self) {
        self.generation += 1;
        self.phase = Phase::Empty;
        self.protocol.clear();
        self.leader.clear();
        self.effects.push(Effect::Store(AfterStore::Nothing));
    }

    /// Answers all pending joins with the new generation.
    fn announce(&mut self, now: Elapsed) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let response = self.join_response(&id);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.record.assignment.clear();
            let request_id = member.joining.take();
            member.synced = request_id.is_none();
            if let Some(request_id) = request_id {
                member.knows_id = true;
                member.in_generation = true;
                member.touch(now);
                self.answer_join(request_id, Ok(response));
            }
        }
    }

    /// A snapshot has been stored, or storing it failed.
    pub(crate) fn stored(&mut self, after: AfterStore, stored: Result<(), String>, now: Elapsed) {
        self.deadline_changed = true;
        match after {
            AfterStore::Nothing => {}
            AfterStore::Join(request_id, led_as) => {
                self.complete_return(request_id, led_as, stored, now)
            }
            AfterStore::Assignment(generation) => self.complete_assignment(generation, stored, now),
        }
    }

    fn complete_assignment(&mut self, generation: i32, stored: Result<(), String>, now: Elapsed) {
        let Phase::Completing { until, .. } = self.phase else {
            return;
        };
        if generation != self.generation {
            return;
        }
        match stored {
            Ok(()) => {
                self.phase = Phase::Stable { until };
                self.send_assignments(now);
            }
            Err(reason) => {
                for member in self.members.values_mut() {
                    member.record.assignment.clear();
                    if let Some(request_id) = member.syncing.take() {
                        let answer = Err(GroupError::Storage(reason.clone()));
                        self.effects.push(Effect::Synced(request_id, answer));
                    }
                }
                self.rebalance(now);
            }
        }
    }

    fn send_assignments(&mut self, now: Elapsed) {
        let mut answers = Vec::new();
        for member in self.members.values_mut() {
            if let Some(request_id) = member.syncing.take() {
                member.touch(now);
                answers.push((request_id, member.record.assignment.clone()));
            }
        }
        for (request_id, assignment) in answers {
            let response = self.sync_response(assignment);
            self.answer_sync(request_id, Ok(response));
        }
    }
}
