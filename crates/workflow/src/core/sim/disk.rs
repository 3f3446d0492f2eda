//! The durable state of the simulation, and the rest as a crash may leave it.

use std::sync::Arc;

use highwater_env::random::Random;

use super::world::{SCHEDULER, SUPERVISOR, World};
use crate::core::{Core, Role, Round};
use crate::journal::{self, Record};
use crate::machine::{Event, FailureKind};

impl World {
    /// Makes the pending round durable and performs its effects.
    pub(super) fn sync(&mut self, part: usize, random: &mut Random) {
        self.parts[part].gather();
        let Some(round) = self.parts[part].pending.take() else {
            return;
        };
        let count = round.records().len();
        self.persist(part, &round, count);
        for effect in round.effects {
            self.perform(part, effect);
        }
        self.parts[part].calls.sort_by_key(|_| random.next_u64());
    }

    fn persist(&mut self, part: usize, round: &Round, count: usize) {
        for (id, value) in round.records().take(count) {
            self.learn(id, value);
            self.parts[part]
                .journal
                .push((Arc::clone(id), value.to_vec()));
        }
    }

    /// Durable outcomes are final.
    fn learn(&mut self, id: &Arc<str>, value: &[u8]) {
        match journal::read(id, value, &self.versions) {
            Ok(Record::Event(
                Event::Succeeded { attempt, .. }
                | Event::Failed {
                    attempt,
                    kind: FailureKind::Final | FailureKind::Refused,
                    ..
                },
            )) => self
                .services
                .settle(id, usize::from(attempt.step), attempt.undo),
            Ok(Record::Event(Event::Retried { .. })) => self.services.unsettle(id),
            Ok(_) => {}
            Err(error) => panic!("a record of {id} cannot be read: {error}"),
        }
    }

    /// Writes a snapshot and trims the journal to it, or to the tail's position.
    pub(super) fn checkpoint(&mut self, part: usize) {
        self.parts[part].gather();
        if self.parts[part].pending.is_some() {
            return;
        }
        self.parts[part].core.checkpoint();
        let round = self.parts[part].core.take_round();
        let tailed = match part {
            SUPERVISOR => self.parts[part].tailed,
            _ => usize::MAX,
        };
        let cut = self.parts[part].journal.len().min(tailed);
        let count = round.records().len();
        self.persist(part, &round, count);
        let part = &mut self.parts[part];
        part.journal.drain(..cut);
        part.tailed = part.tailed.saturating_sub(cut);
    }

    /// Power failure: a prefix of the pending round is durable, and some of the calls in progress were carried out.
    pub(super) fn crash(&mut self, part: usize, random: &mut Random) {
        self.parts[part].gather();
        if let Some(round) = self.parts[part].pending.take() {
            let count = random.below(round.records().len() as u64 + 1) as usize;
            self.persist(part, &round, count);
        }
        for call in std::mem::take(&mut self.parts[part].calls) {
            if random.below(2) == 0 {
                let (step, mood) = (usize::from(call.step), self.mood);
                let services = &mut self.services;
                let _ = services.ask(&call.id, step, call.undo, &call.work, mood, random);
            }
        }
        // Archiving and hand-overs in progress may have succeeded.
        if random.below(2) == 0 {
            for (id, value) in std::mem::take(&mut self.parts[part].to_archive) {
                self.history.insert(id, value);
            }
            let handed = std::mem::take(&mut self.parts[part].to_hand_over);
            self.parts[SUPERVISOR].journal.extend(handed);
        }
        self.parts[part].to_archive.clear();
        self.parts[part].to_hand_over.clear();
        if part == SCHEDULER {
            let running = self.parts[part].core.instances();
            let ids = running.map(|instance| Arc::clone(&instance.id));
            self.crashed.extend(ids);
            self.hear();
            self.waiting.clear();
        }
        self.now_ms += random.below(100) as i64;
        self.recover(part);
    }

    pub(super) fn recover(&mut self, part: usize) {
        let role = match part {
            SCHEDULER => Role::Scheduler,
            _ if self.remotes.is_empty() => Role::Supervisor,
            _ => Role::Dispatcher,
        };
        let current = self.versions.add(self.definition.clone());
        self.seed += 1;
        let mut core = Core::new(role, Some(current), Random::seeded(self.seed));
        for (id, value) in &self.parts[part].journal {
            let record = journal::read(id, value, &self.versions).unwrap();
            core.replay(id, record, &self.versions).unwrap();
        }
        for id in core.possibly_archived() {
            if self.history.contains_key(&id) {
                core.mark_archived(&id);
            }
        }
        core.recovered(self.now_ms);
        let part = &mut self.parts[part];
        part.tailed = part.journal.len();
        part.core = core;
    }
}
