//! A node and its disk: durable state survives, everything else is lost in a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use highwater_env::random::Random;
use tokio::sync::oneshot;

use super::arc;
use super::remote_supervisors::RemoteSupervisor;
use super::services::{Mood, Services};
use crate::call::{CallError, CallOutcome};
use crate::core::{Core, Effect, Input, OperatorCommand, Role, Round, StartOutcome, StepCall};
use crate::definition::Definition;
use crate::journal::{self, Record};
use crate::machine::{Answer, Instance};
use crate::versions::Versions;

type Journal = Vec<(Arc<str>, Vec<u8>)>;

pub(crate) struct World {
    pub(super) versions: Versions,
    pub(super) definition: Definition,
    pub(super) seed: u64,
    pub(super) now_ms: i64,
    pub(super) parts: [Part; 2],
    /// Remote supervisors; if there are none, the second part undoes.
    pub(super) remotes: Vec<RemoteSupervisor>,
    pub services: Services,
    pub(super) history: BTreeMap<Arc<str>, Vec<u8>>,
    /// Instances whose acceptance was answered.
    accepted: BTreeSet<Arc<str>>,
    pub(super) waiting: Vec<(Arc<str>, oneshot::Receiver<StartOutcome>)>,
    started: u64,
    pub(super) mood: Mood,
    crashes: bool,
    /// Instances that were running when their scheduler crashed.
    pub crashed: BTreeSet<Arc<str>>,
}

/// A core with its journal.
pub(super) struct Part {
    pub core: Core,
    pub journal: Journal,
    /// Appended, but not yet durable.
    pub pending: Option<Round>,
    pub calls: Vec<StepCall>,
    pub to_archive: Journal,
    pub to_hand_over: Journal,
    /// The tail's position in a supervisor's journal.
    pub tailed: usize,
}

impl StepCall {
    pub(super) fn ended(
        self,
        begun_ms: i64,
        ended_ms: i64,
        result: Result<Answer, CallError>,
    ) -> Input {
        Input::Outcome {
            id: self.id,
            step: self.step,
            undo: self.undo,
            outcome: CallOutcome {
                begun_ms,
                ended_ms,
                result,
            },
        }
    }
}

pub(super) const SCHEDULER: usize = 0;
pub(super) const SUPERVISOR: usize = 1;

impl World {
    pub(crate) fn new(definition: Definition, seed: u64, elsewhere: bool) -> World {
        let versions = Versions::default();
        versions.add(definition.clone());
        let part = |role| Part {
            core: Core::new(role, None, Random::seeded(0)),
            journal: Vec::new(),
            pending: None,
            calls: Vec::new(),
            to_archive: Vec::new(),
            to_hand_over: Vec::new(),
            tailed: 0,
        };
        let mut world = World {
            versions,
            definition,
            seed,
            now_ms: 1_000_000,
            parts: [Role::Scheduler, Role::Supervisor].map(part),
            remotes: match elsewhere {
                true => vec![RemoteSupervisor::new(seed), RemoteSupervisor::new(seed + 1)],
                false => Vec::new(),
            },
            services: Services::default(),
            history: BTreeMap::new(),
            accepted: BTreeSet::new(),
            waiting: Vec::new(),
            started: 0,
            mood: Mood {
                failure_percent: 25,
            },
            crashes: true,
            crashed: BTreeSet::new(),
        };
        world.recover(SCHEDULER);
        world.recover(SUPERVISOR);
        world
    }

    pub(crate) fn accepted(&self) -> Vec<Arc<str>> {
        self.accepted.iter().cloned().collect()
    }

    /// The instance, wherever it is.
    pub(crate) fn where_is(&self, id: &str) -> Option<Instance> {
        if let Some(value) = self.history.get(id) {
            let Ok(Record::Snapshot(instance)) = journal::read(id, value, &self.versions) else {
                panic!("the history of {id} cannot be read");
            };
            return Some(*instance);
        }
        let mut cores = self.parts.iter().map(|part| &part.core);
        cores.find_map(|core| core.get(id).cloned())
    }

    /// A random step.
    pub(crate) fn turn(&mut self, random: &mut Random) {
        let part = random.below(2) as usize;
        match random.below(20) {
            0 | 1 => self.start(random),
            2 if self.crashes => self.crash(part, random),
            3 => self.decide(random),
            4 => self.checkpoint(part),
            5 => {
                self.now_ms += random.below(400) as i64;
                self.parts[part].core.tick(self.now_ms);
            }
            6 | 7 => self.tail(),
            8 | 9 => self.finish(part),
            10 => self.hand_over(),
            11..=14 => self.sync(part, random),
            _ => self.answer(part, random),
        }
        self.turn_remote(random);
        self.hear();
    }

    /// Stops all faults and runs everything to its end.
    pub(crate) fn calm_down(&mut self, random: &mut Random) {
        self.mood = Mood { failure_percent: 0 };
        self.crashes = false;
        for _ in 0..10_000 {
            let before = self.now_ms;
            for part in [SCHEDULER, SUPERVISOR] {
                self.sync(part, random);
                while !self.parts[part].calls.is_empty() {
                    self.answer(part, random);
                }
                self.finish(part);
            }
            self.hand_over();
            self.tail();
            self.calm_remotes(random);
            self.hear();
            if self.is_quiet() {
                let parts = self.parts.iter().map(|part| &part.core);
                let remotes = self.remotes.iter().map(|agent| &agent.core);
                let timers = parts.chain(remotes).filter_map(Core::next_timer);
                let Some(at_ms) = timers.min() else {
                    return;
                };
                self.now_ms = before.max(at_ms);
                for part in &mut self.parts {
                    part.core.tick(self.now_ms);
                }
            }
        }
        panic!("it never comes to rest");
    }

    fn is_quiet(&mut self) -> bool {
        let offered = &self.parts[SUPERVISOR].core.claims.available;
        let remotes = offered.is_empty() && self.remotes.iter().all(RemoteSupervisor::is_quiet);
        remotes
            && self.parts.iter_mut().all(|part| {
                part.gather();
                part.pending.is_none()
                    && part.calls.is_empty()
                    && part.to_archive.is_empty()
                    && part.to_hand_over.is_empty()
            })
    }

    fn start(&mut self, random: &mut Random) {
        // Sometimes one that was started before.
        let number = match random.below(4) {
            0 if self.started > 0 => random.below(self.started),
            _ => {
                self.started += 1;
                self.started - 1
            }
        };
        let id = arc(&format!("i{number}"));
        if self.history.contains_key(&id) {
            return;
        }
        let input = Bytes::from(format!("{{\"n\":{}}}", random.below(100)));
        let (reply, answer) = oneshot::channel();
        self.waiting.push((Arc::clone(&id), answer));
        let start = Input::Start {
            id,
            input,
            reply: Some(reply),
        };
        self.parts[SCHEDULER].core.handle(self.now_ms, start);
    }

    /// Records answered starts as accepted.
    pub(super) fn hear(&mut self) {
        let accepted = &mut self.accepted;
        self.waiting
            .retain_mut(|(id, answer)| match answer.try_recv() {
                Ok(_) => {
                    accepted.insert(Arc::clone(id));
                    false
                }
                Err(oneshot::error::TryRecvError::Empty) => true,
                Err(oneshot::error::TryRecvError::Closed) => false,
            });
    }

    fn decide(&mut self, random: &mut Random) {
        let part = random.below(2) as usize;
        let ids: Vec<Arc<str>> = (self.parts[part].core.instances())
            .map(|instance| Arc::clone(&instance.id))
            .collect();
        if ids.is_empty() {
            return;
        }
        let id = Arc::clone(&ids[random.below(ids.len() as u64) as usize]);
        let note = "a person".to_owned();
        let step = format!("s{}", random.below(5));
        let decision = match (part, random.below(8)) {
            (SCHEDULER, 0) => OperatorCommand::Cancel { note },
            (SCHEDULER, _) => return,
            (_, 0 | 1) => OperatorCommand::Retry { note },
            (_, 2) => OperatorCommand::Skip { step, note },
            (_, 3) => OperatorCommand::Resolve { note },
            _ => return,
        };
        let (reply, _) = oneshot::channel();
        let input = Input::Decide {
            id,
            decision,
            reply,
        };
        self.parts[part].core.handle(self.now_ms, input);
    }

    pub(super) fn perform(&mut self, part: usize, effect: Effect) {
        let part = &mut self.parts[part];
        match effect {
            Effect::Reply(reply) => reply.send(),
            Effect::Call(call) => part.calls.push(call),
            Effect::Archive { id, value } => part.to_archive.push((id, value)),
            Effect::HandOver { id, value } => part.to_hand_over.push((id, value)),
            Effect::Notify { id, notice, parked } => {
                assert!(notice.is_none() && parked.is_some());
                part.core.handle(self.now_ms, Input::Notified { id });
            }
        }
    }

    fn answer(&mut self, part: usize, random: &mut Random) {
        let Some(call) = self.parts[part].calls.pop() else {
            return;
        };
        let step = usize::from(call.step);
        let asked = &mut self.services;
        let result = asked.ask(&call.id, step, call.undo, &call.work, self.mood, random);
        let begun_ms = self.now_ms;
        self.now_ms += random.below(20) as i64;
        let outcome = call.ended(begun_ms, self.now_ms, result);
        self.parts[part].core.handle(self.now_ms, outcome);
    }

    fn finish(&mut self, part: usize) {
        for (id, value) in std::mem::take(&mut self.parts[part].to_archive) {
            self.history.insert(Arc::clone(&id), value);
            for other in 0..=part {
                let id = Arc::clone(&id);
                self.parts[other]
                    .core
                    .handle(self.now_ms, Input::Archived { id });
            }
        }
    }

    fn hand_over(&mut self) {
        for (id, value) in std::mem::take(&mut self.parts[SCHEDULER].to_hand_over) {
            self.parts[SUPERVISOR]
                .journal
                .push((Arc::clone(&id), value));
            let input = Input::HandedOver { id };
            self.parts[SCHEDULER].core.handle(self.now_ms, input);
        }
    }

    fn tail(&mut self) {
        let supervisor = &mut self.parts[SUPERVISOR];
        let from = std::mem::replace(&mut supervisor.tailed, supervisor.journal.len());
        let read = |(id, value): &(Arc<str>, Vec<u8>)| journal::read(id, value, &self.versions);
        let new: Vec<Record> = supervisor.journal[from..].iter().flat_map(read).collect();
        for record in new {
            if let Record::Failed(instance) = record
                && !self.history.contains_key(&instance.id)
            {
                supervisor
                    .core
                    .handle(self.now_ms, Input::Failed { instance });
            }
        }
    }
}

impl Part {
    /// One append at a time: the next round is taken when the previous one is durable.
    pub(crate) fn gather(&mut self) {
        if self.pending.is_none() {
            let round = self.core.take_round();
            self.pending = Some(round).filter(|round| !round.is_empty());
        }
    }
}
