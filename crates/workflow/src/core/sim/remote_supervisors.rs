//! Supervisors in other processes: they claim, fall silent, lose answers, are killed and come back as others.

use std::sync::Arc;

use highwater_env::random::Random;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::world::{Call, SUPERVISOR, World};
use crate::core::lend::With;
use crate::core::{Claim, Core, Effect, Input, Lent, Lock, LockLost, Role, Round};
use crate::journal::{self, Record};

type Answer<T> = oneshot::Receiver<Result<T, LockLost>>;

pub struct Agent {
    pub core: Core,
    lock: Option<Lock>,
    claiming: Option<Answer<Lent>>,
    reporting: Option<(Round, Answer<Vec<Arc<str>>>)>,
    calls: Vec<Call>,
}

impl Agent {
    pub fn new(seed: u64) -> Agent {
        Agent {
            core: Core::new(Role::Agent, None, Random::seeded(seed)),
            lock: None,
            claiming: None,
            reporting: None,
            calls: Vec::new(),
        }
    }

    /// Nothing is to be said or done; a claim may wait for what never comes.
    pub fn is_quiet(&self) -> bool {
        self.core.round.is_empty() && self.reporting.is_none() && self.calls.is_empty()
    }

    fn perform(&mut self, round: Round, refused: &[Arc<str>]) {
        for id in refused {
            self.core.let_go(id);
        }
        for effect in round.effects {
            match effect {
                Effect::Call {
                    id,
                    step,
                    undo,
                    work,
                    ..
                } if !refused.contains(&id) => self.calls.push(Call {
                    id,
                    step,
                    undo,
                    work,
                }),
                Effect::Call { .. } => {}
                _ => panic!("an agent only makes calls"),
            }
        }
    }
}

impl World {
    /// Something happens to a supervisor elsewhere.
    pub(super) fn turn_agent(&mut self, random: &mut Random) {
        if self.agents.is_empty() {
            return;
        }
        let number = random.below(self.agents.len() as u64) as usize;
        match random.below(16) {
            0 => self.lose_agent(number, random),
            1 => self.agents[number].core.tick(self.now_ms),
            2..=4 => self.claim(number, random.below(200), 100 + random.below(2000), random),
            5..=8 => self.listen(number, random),
            9..=11 => self.report(number),
            _ => self.answer_agent(number, random),
        }
    }

    /// Supervisors do what there is to do, and are not disturbed.
    pub(super) fn calm_agents(&mut self, random: &mut Random) {
        const LONG_MS: u64 = 600_000;
        for number in 0..self.agents.len() {
            if !self.parts[SUPERVISOR].core.lending.offered.is_empty() {
                self.claim(number, 0, LONG_MS, random);
            }
            self.agents[number].core.tick(self.now_ms);
            self.report(number);
            while !self.agents[number].calls.is_empty() {
                self.answer_agent(number, random);
            }
            self.sync(SUPERVISOR, random);
            self.listen(number, random);
        }
    }

    fn claim(&mut self, number: usize, wait_ms: u64, lasts_ms: u64, random: &mut Random) {
        let agent = &mut self.agents[number];
        if agent.claiming.is_some() {
            return;
        }
        let claim = Claim {
            lock: agent.lock,
            most: random.below(4) as usize,
            wait_ms,
            lasts_ms,
        };
        let (reply, answer) = oneshot::channel();
        agent.claiming = Some(answer);
        let claim = Input::Claim { claim, reply };
        self.parts[SUPERVISOR].core.handle(self.now_ms, claim);
    }

    fn report(&mut self, number: usize) {
        let agent = &mut self.agents[number];
        let Some(lock) = agent.lock.filter(|_| agent.reporting.is_none()) else {
            return;
        };
        let round = agent.core.take_round();
        if round.records().len() == 0 {
            return agent.perform(round, &[]);
        }
        let read = |(id, value): (&Arc<str>, &[u8])| match journal::read(id, value, &self.versions)
        {
            Ok(Record::Event(event)) => (Arc::clone(id), event),
            other => panic!("an agent reports events, not {other:?}"),
        };
        let events = round.records().map(read).collect();
        let (reply, answer) = oneshot::channel();
        agent.reporting = Some((round, answer));
        let report = Input::Report {
            lock,
            events,
            reply,
        };
        self.parts[SUPERVISOR].core.handle(self.now_ms, report);
    }

    /// Answers come, if the keeper has given any.
    fn listen(&mut self, number: usize, random: &mut Random) {
        let agent = &mut self.agents[number];
        let claimed = agent.claiming.as_mut().map(oneshot::Receiver::try_recv);
        let reported = agent.reporting.as_mut().map(|(_, taken)| taken.try_recv());
        match claimed {
            None | Some(Err(TryRecvError::Empty)) => {}
            Some(Ok(Ok(lent))) => {
                agent.claiming = None;
                agent.lock = Some(lent.lock);
                for lent in lent.instances {
                    let read = journal::read(&lent.id, &lent.snapshot, &self.versions);
                    let Ok(Record::Snapshot(instance)) = read else {
                        panic!("what was lent cannot be read");
                    };
                    agent.core.handle(self.now_ms, Input::Failed { instance });
                }
            }
            Some(_) => return self.lose_agent(number, random),
        }
        match reported {
            None | Some(Err(TryRecvError::Empty)) => {}
            Some(Ok(Ok(refused))) => {
                if let Some((round, _)) = agent.reporting.take() {
                    agent.perform(round, &refused);
                }
            }
            Some(_) => self.lose_agent(number, random),
        }
    }

    /// It is killed, or gives up on a lock it cannot be sure of; of the calls under way some were carried out.
    fn lose_agent(&mut self, number: usize, random: &mut Random) {
        while !self.agents[number].calls.is_empty() && random.below(2) == 0 {
            self.answer_agent(number, random);
        }
        self.seed += 1;
        let lost = std::mem::replace(&mut self.agents[number], Agent::new(self.seed));
        // Not always is there time for a farewell.
        if let Some(lock) = lost.lock.filter(|_| random.below(2) == 0) {
            let farewell = Input::GiveBack { lock };
            self.parts[SUPERVISOR].core.handle(self.now_ms, farewell);
        }
    }

    fn answer_agent(&mut self, number: usize, random: &mut Random) {
        let Some(call) = self.agents[number].calls.pop() else {
            return;
        };
        let (id, step) = (&call.id, usize::from(call.step));
        let lock = self.agents[number].lock.map(With::Lent);
        let live = self.parts[SUPERVISOR].core.live.get(id);
        let result = if lock.is_some() && live.map(|live| live.with) == lock {
            (self.services).ask(id, step, call.undo, &call.work, self.mood, random)
        } else {
            // It went out before somebody else took over, and came late.
            self.services.repeat(id, step, random)
        };
        let begun_ms = self.now_ms;
        self.now_ms += random.below(20) as i64;
        let outcome = call.ended(begun_ms, self.now_ms, result);
        self.agents[number].core.handle(self.now_ms, outcome);
    }
}
