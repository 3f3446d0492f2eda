//! Remote supervisors: they claim, stall, lose answers, are killed and replaced.

use std::sync::Arc;

use highwater_env::random::Random;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::world::{SUPERVISOR, World};
use crate::core::claims::ClaimState;
use crate::core::{
    Claim, ClaimedInstances, Core, Effect, Input, LockLost, Role, Round, StepCall, SupervisorLock,
};
use crate::journal::{self, Record};

type Answer<T> = oneshot::Receiver<Result<T, LockLost>>;

pub(crate) struct RemoteSupervisor {
    pub core: Core,
    lock: Option<SupervisorLock>,
    claiming: Option<Answer<ClaimedInstances>>,
    reporting: Option<(Round, Answer<Vec<Arc<str>>>)>,
    calls: Vec<StepCall>,
}

impl RemoteSupervisor {
    pub(crate) fn new(seed: u64) -> RemoteSupervisor {
        RemoteSupervisor {
            core: Core::new(Role::RemoteSupervisor, None, Random::seeded(seed)),
            lock: None,
            claiming: None,
            reporting: None,
            calls: Vec::new(),
        }
    }

    /// Nothing to report or call; a claim may still wait.
    pub(crate) fn is_quiet(&self) -> bool {
        self.core.round.is_empty() && self.reporting.is_none() && self.calls.is_empty()
    }

    fn perform(&mut self, round: Round, refused: &[Arc<str>]) {
        for id in refused {
            self.core.forget_instance(id);
        }
        for effect in round.effects {
            match effect {
                Effect::Call(call) if !refused.contains(&call.id) => self.calls.push(call),
                Effect::Call(_) => {}
                _ => panic!("an remote only makes calls"),
            }
        }
    }
}

impl World {
    /// A random step of a remote supervisor.
    pub(super) fn turn_remote(&mut self, random: &mut Random) {
        if self.remotes.is_empty() {
            return;
        }
        let number = random.below(self.remotes.len() as u64) as usize;
        match random.below(16) {
            0 => self.lose_remote(number, random),
            1 => self.remotes[number].core.tick(self.now_ms),
            2..=4 => self.claim(number, random.below(200), 100 + random.below(2000), random),
            5..=8 => self.listen(number, random),
            9..=11 => self.report(number),
            _ => self.answer_remote(number, random),
        }
    }

    /// Lets all remote supervisors finish their work without faults.
    pub(super) fn calm_remotes(&mut self, random: &mut Random) {
        const LONG_MS: u64 = 600_000;
        for number in 0..self.remotes.len() {
            if !self.parts[SUPERVISOR].core.claims.available.is_empty() {
                self.claim(number, 0, LONG_MS, random);
            }
            self.remotes[number].core.tick(self.now_ms);
            self.report(number);
            while !self.remotes[number].calls.is_empty() {
                self.answer_remote(number, random);
            }
            self.sync(SUPERVISOR, random);
            self.listen(number, random);
        }
    }

    fn claim(&mut self, number: usize, wait_ms: u64, lasts_ms: u64, random: &mut Random) {
        let remote = &mut self.remotes[number];
        if remote.claiming.is_some() {
            return;
        }
        let claim = Claim {
            lock: remote.lock,
            most: random.below(4) as usize,
            wait_ms,
            lasts_ms,
        };
        let (reply, answer) = oneshot::channel();
        remote.claiming = Some(answer);
        let claim = Input::Claim { claim, reply };
        self.parts[SUPERVISOR].core.handle(self.now_ms, claim);
    }

    fn report(&mut self, number: usize) {
        let remote = &mut self.remotes[number];
        let Some(lock) = remote.lock.filter(|_| remote.reporting.is_none()) else {
            return;
        };
        let round = remote.core.take_round();
        if round.records().len() == 0 {
            return remote.perform(round, &[]);
        }
        let read = |(id, value): (&Arc<str>, &[u8])| match journal::read(id, value, &self.versions)
        {
            Ok(Record::Event(event)) => (Arc::clone(id), event),
            other => panic!("an remote reports events, not {other:?}"),
        };
        let events = round.records().map(read).collect();
        let (reply, answer) = oneshot::channel();
        remote.reporting = Some((round, answer));
        let report = Input::Report {
            lock,
            events,
            reply,
        };
        self.parts[SUPERVISOR].core.handle(self.now_ms, report);
    }

    /// Receives answers, if the dispatcher has sent any.
    fn listen(&mut self, number: usize, random: &mut Random) {
        let remote = &mut self.remotes[number];
        let claimed = remote.claiming.as_mut().map(oneshot::Receiver::try_recv);
        let reported = remote.reporting.as_mut().map(|(_, taken)| taken.try_recv());
        match claimed {
            None | Some(Err(TryRecvError::Empty)) => {}
            Some(Ok(Ok(claimed))) => {
                remote.claiming = None;
                remote.lock = Some(claimed.lock);
                for claimed in claimed.instances {
                    let read = journal::read(&claimed.id, &claimed.snapshot, &self.versions);
                    let Ok(Record::Snapshot(instance)) = read else {
                        panic!("what was claimed cannot be read");
                    };
                    remote.core.handle(self.now_ms, Input::Failed { instance });
                }
            }
            Some(_) => return self.lose_remote(number, random),
        }
        match reported {
            None | Some(Err(TryRecvError::Empty)) => {}
            Some(Ok(Ok(refused))) => {
                if let Some((round, _)) = remote.reporting.take() {
                    remote.perform(round, &refused);
                }
            }
            Some(_) => self.lose_remote(number, random),
        }
    }

    /// It is killed, or drops a doubtful lock; some of its calls in progress were carried out.
    fn lose_remote(&mut self, number: usize, random: &mut Random) {
        while !self.remotes[number].calls.is_empty() && random.below(2) == 0 {
            self.answer_remote(number, random);
        }
        self.seed += 1;
        let lost = std::mem::replace(&mut self.remotes[number], RemoteSupervisor::new(self.seed));
        // It does not always release its lock.
        if let Some(lock) = lost.lock.filter(|_| random.below(2) == 0) {
            let release = Input::ReleaseClaim { lock };
            self.parts[SUPERVISOR].core.handle(self.now_ms, release);
        }
    }

    fn answer_remote(&mut self, number: usize, random: &mut Random) {
        let Some(call) = self.remotes[number].calls.pop() else {
            return;
        };
        let (id, step) = (&call.id, usize::from(call.step));
        let lock = self.remotes[number].lock.map(ClaimState::Claimed);
        let live = self.parts[SUPERVISOR].core.live.get(id);
        let result = if lock.is_some() && live.map(|live| live.claim) == lock {
            (self.services).ask(id, step, call.undo, &call.work, self.mood, random)
        } else {
            // Sent before another supervisor took over, and delivered late.
            self.services.repeat(id, step, random)
        };
        let begun_ms = self.now_ms;
        self.now_ms += random.below(20) as i64;
        let outcome = call.ended(begun_ms, self.now_ms, result);
        self.remotes[number].core.handle(self.now_ms, outcome);
    }
}
