//! What a keeper lends to supervisors in other processes: instances that are to be undone, each to one of them at a
//! time, under a lock that runs out.
//!
//! Locks are in no journal. Whoever has one shows it with every report, and what is reported under a lock that is gone
//! changes nothing; so a supervisor may die, fall asleep or talk to a keeper that forgot everything, and all that comes of
//! it are calls that are made twice, with the same key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{Core, Effect, Kind};
use crate::definition::Version;
use crate::journal;
use crate::machine::{Event, Millis};

/// The right to undo what was lent under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Lock(pub u64);

impl From<Lock> for String {
    fn from(Lock(number): Lock) -> String {
        format!("{number:016x}")
    }
}

impl TryFrom<String> for Lock {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Lock, std::num::ParseIntError> {
        u64::from_str_radix(&text, 16).map(Lock)
    }
}

/// A supervisor asks for work; asking makes its lock last longer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// None at first.
    #[serde(default)]
    pub lock: Option<Lock>,
    /// Instances that it can take; none, if only the lock is to last.
    pub most: usize,
    /// How long to wait for the first of them.
    pub wait_ms: u64,
    /// How long the lock lasts from now on.
    pub lasts_ms: u64,
}

/// What a supervisor gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lent {
    pub lock: Lock,
    pub instances: Vec<LentInstance>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentInstance {
    pub id: Arc<str>,
    pub version: Version,
    /// As in a journal.
    pub snapshot: Vec<u8>,
}

/// The lock ran out, or is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lock has run out: claim again without one")]
pub struct LockLost;

/// One answer to a claim holds about so many bytes of instances at most.
const LENT_BYTES_MAX: usize = 4 << 20;

/// What is asked for beyond these is cut down to them.
const LASTS_MS_MIN: Millis = 100;
const LASTS_MS_MAX: Millis = 600_000;
const WAIT_MS_MAX: Millis = 60_000;

/// Who has what.
#[derive(Default)]
pub(super) struct Lending {
    /// To be undone and with nobody, in the order in which they came. One may have been decided about since.
    pub(super) offered: VecDeque<Arc<str>>,
    loans: BTreeMap<Lock, Loan>,
    waiting: VecDeque<Waiting>,
}

struct Loan {
    until_ms: Millis,
    lasts_ms: Millis,
    ids: BTreeSet<Arc<str>>,
}

struct Waiting {
    lock: Lock,
    most: usize,
    until_ms: Millis,
    reply: oneshot::Sender<Result<Lent, LockLost>>,
}

/// With whom an instance of a keeper is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum With {
    #[default]
    Nobody,
    /// Nobody, and it is to be had.
    Offered,
    Lent(Lock),
}

impl Lending {
    pub(super) fn next_timer(&self) -> Option<Millis> {
        let loans = self.loans.values().map(|loan| loan.until_ms);
        let waiting = self.waiting.iter().map(|waiting| waiting.until_ms);
        loans.chain(waiting).min()
    }

    fn is_asked(&self) -> bool {
        !self.waiting.is_empty() && !self.offered.is_empty()
    }
}

impl Core {
    pub(super) fn claim(&mut self, claim: Claim, reply: oneshot::Sender<Result<Lent, LockLost>>) {
        let lasts_ms = millis(claim.lasts_ms, LASTS_MS_MAX).max(LASTS_MS_MIN);
        let lock = match claim.lock {
            None => Lock(self.random.next_u64()),
            Some(lock) if self.lending.loans.contains_key(&lock) => lock,
            Some(_) => return self.effect(Effect::Lend(reply, Err(LockLost))),
        };
        let loan = self.lending.loans.entry(lock).or_insert(Loan {
            until_ms: 0,
            lasts_ms,
            ids: BTreeSet::new(),
        });
        loan.lasts_ms = lasts_ms;
        loan.until_ms = self.now_ms + lasts_ms;
        self.lending.waiting.push_back(Waiting {
            lock,
            most: claim.most,
            until_ms: self.now_ms + millis(claim.wait_ms, WAIT_MS_MAX),
            reply,
        });
        self.answer_claims();
    }

    /// Takes what a supervisor says of its instances. Answers with those that are no longer its own.
    pub(super) fn report(
        &mut self,
        lock: Lock,
        events: Vec<(Arc<str>, Event)>,
        reply: oneshot::Sender<Result<Vec<Arc<str>>, LockLost>>,
    ) {
        let Some(loan) = self.lending.loans.get_mut(&lock) else {
            return self.effect(Effect::Take(reply, Err(LockLost)));
        };
        loan.until_ms = self.now_ms + loan.lasts_ms;
        let mut refused = Vec::new();
        for (id, event) in events {
            let with = self.live.get(&id).map(|live| live.with);
            if with == Some(With::Lent(lock)) && is_undoing(&event) {
                self.happen(&id, event);
            } else {
                refused.push(id);
            }
        }
        self.effect(Effect::Take(reply, Ok(refused)));
    }

    /// What was lent under a lock is to be had again.
    pub(super) fn give_back(&mut self, lock: Lock) {
        let Some(loan) = self.lending.loans.remove(&lock) else {
            return;
        };
        for id in loan.ids {
            if let Some(live) = self.live.get_mut(&id) {
                live.with = With::Nobody;
            }
            self.pump(&id);
        }
    }

    /// An instance that is to be undone waits for a supervisor.
    pub(super) fn offer(&mut self, id: &Arc<str>) {
        if let Some(live) = self.live.get_mut(id)
            && live.with == With::Nobody
        {
            live.with = With::Offered;
            self.lending.offered.push_back(Arc::clone(id));
        }
    }

    /// It is not to be undone for now, or ever: whoever has it will be told when they report.
    pub(super) fn withdraw(&mut self, id: &Arc<str>) {
        let Some(live) = self.live.get_mut(id) else {
            return;
        };
        if let With::Lent(lock) = std::mem::take(&mut live.with)
            && let Some(loan) = self.lending.loans.get_mut(&lock)
        {
            loan.ids.remove(id);
        }
    }

    /// Lets locks run out.
    pub(super) fn pass_loans(&mut self) {
        let now_ms = self.now_ms;
        let over = (self.lending.loans.iter()).filter(|(_, loan)| loan.until_ms <= now_ms);
        let over: Vec<Lock> = over.map(|(lock, _)| *lock).collect();
        for lock in over {
            self.give_back(lock);
        }
        self.answer_claims();
    }

    /// Answers those who ask, as soon as there is something for them or they have waited long enough.
    fn answer_claims(&mut self) {
        for waiting in std::mem::take(&mut self.lending.waiting) {
            if waiting.reply.is_closed() {
                continue;
            }
            if !self.lending.loans.contains_key(&waiting.lock) {
                self.effect(Effect::Lend(waiting.reply, Err(LockLost)));
                continue;
            }
            let instances = self.lend(waiting.lock, waiting.most);
            let is_over = waiting.most == 0 || waiting.until_ms <= self.now_ms;
            if instances.is_empty() && !is_over {
                self.lending.waiting.push_back(waiting);
            } else {
                let lock = waiting.lock;
                let lent = Lent { lock, instances };
                self.effect(Effect::Lend(waiting.reply, Ok(lent)));
            }
        }
    }

    /// What has come to be offered goes to those who wait for it.
    pub(super) fn serve_claims(&mut self) {
        if self.lending.is_asked() {
            self.answer_claims();
        }
    }

    fn lend(&mut self, lock: Lock, most: usize) -> Vec<LentInstance> {
        let (mut lent, mut bytes) = (Vec::new(), 0);
        while lent.len() < most
            && bytes < LENT_BYTES_MAX
            && let Some(id) = self.lending.offered.pop_front()
        {
            let Some(live) = self.live.get_mut(&id) else {
                continue;
            };
            let (With::Offered, Kind::Own(instance)) = (live.with, &live.kind) else {
                continue;
            };
            live.with = With::Lent(lock);
            let mut snapshot = Vec::with_capacity(256 + instance.input.len());
            journal::write_snapshot(&mut snapshot, instance);
            bytes += snapshot.len();
            lent.push(LentInstance {
                id: Arc::clone(&id),
                version: instance.version,
                snapshot,
            });
            if let Some(loan) = self.lending.loans.get_mut(&lock) {
                loan.ids.insert(id);
            }
        }
        lent
    }

    fn effect(&mut self, effect: Effect) {
        self.round.effects.push(effect);
    }

    /// An agent has nothing more to do with it.
    pub fn let_go(&mut self, id: &Arc<str>) {
        if let Some(live) = self.live.remove(id) {
            self.forget_timer(id, live.timer_ms);
        }
    }
}

/// What a supervisor may say: how undoing went, and nothing else.
fn is_undoing(event: &Event) -> bool {
    match event {
        Event::Succeeded { tried, .. } | Event::Failed { tried, .. } => tried.undo,
        _ => false,
    }
}

fn millis(asked: u64, most: Millis) -> Millis {
    Millis::try_from(asked).map_or(most, |asked| asked.min(most))
}
