//! A node and its disk: what is durable survives, everything else is lost in a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use highwater_env::random::Random;
use tokio::sync::oneshot;

use super::agents::Agent;
use super::arc;
use super::services::{Mood, Services};
use crate::call::{CallError, Outcome, Prepared};
use crate::core::{Core, Decision, Effect, Input, Role, Round, Started};
use crate::definition::Definition;
use crate::journal::{self, Record};
use crate::machine::{Answer, Event, Instance, Trouble};
use crate::versions::Versions;

type Journal = Vec<(Arc<str>, Vec<u8>)>;

pub struct World {
    pub(super) versions: Versions,
    definition: Definition,
    pub(super) seed: u64,
    pub(super) now_ms: i64,
    pub(super) parts: [Part; 2],
    /// Who undoes, if it is not the second of the parts.
    pub(super) agents: Vec<Agent>,
    pub services: Services,
    history: BTreeMap<Arc<str>, Vec<u8>>,
    /// Who was told that their instance is accepted.
    accepted: BTreeSet<Arc<str>>,
    waiting: Vec<(Arc<str>, oneshot::Receiver<Started>)>,
    started: u64,
    pub(super) mood: Mood,
    crashes: bool,
    /// Instances that were running when their scheduler crashed.
    pub crashed: BTreeSet<Arc<str>>,
}

/// A core with its journal.
pub(super) struct Part {
    pub core: Core,
    journal: Journal,
    /// Appended, but not yet durable.
    pending: Option<Round>,
    calls: Vec<Call>,
    to_finish: Journal,
    to_hand: Journal,
    /// How far a supervisor has read.
    tailed: usize,
}

pub(super) struct Call {
    pub id: Arc<str>,
    pub step: u16,
    pub undo: bool,
    pub work: Prepared,
}

impl Call {
    pub fn ended(self, begun_ms: i64, ended_ms: i64, result: Result<Answer, CallError>) -> Input {
        Input::Outcome {
            id: self.id,
            step: self.step,
            undo: self.undo,
            outcome: Outcome {
                begun_ms,
                ended_ms,
                result,
            },
        }
    }
}

const SCHEDULER: usize = 0;
pub(super) const SUPERVISOR: usize = 1;

impl World {
    pub fn new(definition: Definition, seed: u64, elsewhere: bool) -> World {
        let versions = Versions::default();
        versions.add(definition.clone());
        let part = |role| Part {
            core: Core::new(role, None, Random::seeded(0)),
            journal: Vec::new(),
            pending: None,
            calls: Vec::new(),
            to_finish: Vec::new(),
            to_hand: Vec::new(),
            tailed: 0,
        };
        let mut world = World {
            versions,
            definition,
            seed,
            now_ms: 1_000_000,
            parts: [Role::Scheduler, Role::Supervisor].map(part),
            agents: match elsewhere {
                true => vec![Agent::new(seed), Agent::new(seed + 1)],
                false => Vec::new(),
            },
            services: Services::default(),
            history: BTreeMap::new(),
            accepted: BTreeSet::new(),
            waiting: Vec::new(),
            started: 0,
            mood: Mood { trouble: 25 },
            crashes: true,
            crashed: BTreeSet::new(),
        };
        world.recover(SCHEDULER);
        world.recover(SUPERVISOR);
        world
    }

    pub fn accepted(&self) -> Vec<Arc<str>> {
        self.accepted.iter().cloned().collect()
    }

    /// The instance, wherever it is.
    pub fn where_is(&self, id: &str) -> Option<Instance> {
        if let Some(value) = self.history.get(id) {
            let Ok(Record::Snapshot(instance)) = journal::read(id, value, &self.versions) else {
                panic!("the history of {id} cannot be read");
            };
            return Some(*instance);
        }
        let mut cores = self.parts.iter().map(|part| &part.core);
        cores.find_map(|core| core.get(id).cloned())
    }

    /// Something happens.
    pub fn turn(&mut self, random: &mut Random) {
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
        self.turn_agent(random);
        self.hear();
    }

    /// Nothing goes wrong any more, and everything comes to its end.
    pub fn calm_down(&mut self, random: &mut Random) {
        self.mood = Mood { trouble: 0 };
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
            self.calm_agents(random);
            self.hear();
            if self.is_quiet() {
                let parts = self.parts.iter().map(|part| &part.core);
                let agents = self.agents.iter().map(|agent| &agent.core);
                let timers = parts.chain(agents).filter_map(Core::next_timer);
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
        let offered = &self.parts[SUPERVISOR].core.lending.offered;
        let agents = offered.is_empty() && self.agents.iter().all(Agent::is_quiet);
        agents
            && self.parts.iter_mut().all(|part| {
                part.gather();
                part.pending.is_none()
                    && part.calls.is_empty()
                    && part.to_finish.is_empty()
                    && part.to_hand.is_empty()
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

    /// Those who were answered know that theirs is accepted.
    fn hear(&mut self) {
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
            (SCHEDULER, 0) => Decision::Cancel { note },
            (SCHEDULER, _) => return,
            (_, 0 | 1) => Decision::Retry { note },
            (_, 2) => Decision::Skip { step, note },
            (_, 3) => Decision::Resolve { note },
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

    /// The disk has what was appended, so its effects may be seen.
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

    /// What is durable is known for good.
    fn learn(&mut self, id: &Arc<str>, value: &[u8]) {
        match journal::read(id, value, &self.versions) {
            Ok(Record::Event(
                Event::Succeeded { tried, .. }
                | Event::Failed {
                    tried,
                    trouble: Trouble::Final | Trouble::Refused,
                    ..
                },
            )) => self
                .services
                .settle(id, usize::from(tried.step), tried.undo),
            Ok(Record::Event(Event::Retried { .. })) => self.services.unsettle(id),
            Ok(_) => {}
            Err(error) => panic!("a record of {id} cannot be read: {error}"),
        }
    }

    fn perform(&mut self, part: usize, effect: Effect) {
        let part = &mut self.parts[part];
        match effect {
            Effect::Reply(reply, started) => drop(reply.send(started)),
            Effect::Show(reply, view) => drop(reply.send(view.map(|view| *view))),
            Effect::Lend(reply, lent) => drop(reply.send(lent)),
            Effect::Take(reply, taken) => drop(reply.send(taken)),
            Effect::Call {
                id,
                step,
                undo,
                work,
                ..
            } => part.calls.push(Call {
                id,
                step,
                undo,
                work,
            }),
            Effect::Finish { id, value } => part.to_finish.push((id, value)),
            Effect::HandOver { id, value } => part.to_hand.push((id, value)),
            Effect::Tell { id, notice, parked } => {
                assert!(notice.is_none() && parked.is_some());
                part.core.handle(self.now_ms, Input::Told { id });
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
        for (id, value) in std::mem::take(&mut self.parts[part].to_finish) {
            self.history.insert(Arc::clone(&id), value);
            for other in 0..=part {
                let id = Arc::clone(&id);
                self.parts[other]
                    .core
                    .handle(self.now_ms, Input::Closed { id });
            }
        }
    }

    fn hand_over(&mut self) {
        for (id, value) in std::mem::take(&mut self.parts[SCHEDULER].to_hand) {
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

    /// The journal is cut where a snapshot of everything begins, or where the tail is.
    fn checkpoint(&mut self, part: usize) {
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

    /// Power fails: of what was being written a part is there, of calls under way some were carried out.
    fn crash(&mut self, part: usize, random: &mut Random) {
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
        // What was on its way to the history or to the supervisor may have got there.
        if random.below(2) == 0 {
            for (id, value) in std::mem::take(&mut self.parts[part].to_finish) {
                self.history.insert(id, value);
            }
            let handed = std::mem::take(&mut self.parts[part].to_hand);
            self.parts[SUPERVISOR].journal.extend(handed);
        }
        self.parts[part].to_finish.clear();
        self.parts[part].to_hand.clear();
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

    fn recover(&mut self, part: usize) {
        let role = match part {
            SCHEDULER => Role::Scheduler,
            _ if self.agents.is_empty() => Role::Supervisor,
            _ => Role::Keeper,
        };
        let current = versions_current(&self.versions, &self.definition);
        self.seed += 1;
        let mut core = Core::new(role, Some(current), Random::seeded(self.seed));
        for (id, value) in &self.parts[part].journal {
            let record = journal::read(id, value, &self.versions).unwrap();
            core.replay(id, record, &self.versions).unwrap();
        }
        for id in core.doubtful() {
            if self.history.contains_key(&id) {
                core.forget(&id);
            }
        }
        core.recovered(self.now_ms);
        let part = &mut self.parts[part];
        part.tailed = part.journal.len();
        part.core = core;
    }
}

fn versions_current(
    versions: &Versions,
    definition: &Definition,
) -> (crate::definition::Version, Arc<Definition>) {
    versions.add(definition.clone())
}

impl Part {
    /// One append at a time: what has gathered is appended when the one before is durable.
    fn gather(&mut self) {
        if self.pending.is_none() {
            let round = self.core.take_round();
            self.pending = Some(round).filter(|round| !round.is_empty());
        }
    }
}
