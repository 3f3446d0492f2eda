//! What a partition's owner decides, without doing any of it: inputs come in, records to append and
//! effects to carry out *once those records are durable* come out.
//!
//! A [`Core`] is the scheduler of the instances of one partition or, over the hub of what failed, their
//! supervisor. Both replay a journal into live instances, begin what is due, fold in outcomes and let go
//! of what has ended; they differ in which phases are theirs. A supervisor in another process is two cores:
//! a keeper beside the journal lends instances out (`lend`), and an agent over there undoes them. State runs
//! ahead of the disk, effects never do: whoever is told, called or handed something is told after the fact is safe. So the owner may
//! gather many inputs into one append, and a crash loses only what nobody was told of.

mod decide;
mod launch;
mod lend;
mod recover;
mod round;
#[cfg(test)]
mod sim;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_env::random::Random;
use tokio::sync::oneshot;

use crate::call::{Outcome, Prepared};
use crate::definition::{Definition, Version};
use crate::machine::{Event, Instance, Millis, View};
pub use lend::{Claim, Lent, Lock, LockLost};
use lend::{Lending, With};
pub use round::Round;

/// Whose part a core plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Does steps, and hands over what failed.
    Scheduler,
    /// Undoes what was handed over.
    Supervisor,
    /// Keeps what was handed over, and lends it to agents.
    Keeper,
    /// Undoes what a keeper lent it; its journal is with the keeper.
    Agent,
}

/// Something that happened.
pub enum Input {
    Start {
        id: Arc<str>,
        input: Bytes,
        reply: Option<oneshot::Sender<Started>>,
    },
    /// An attempt ended.
    Outcome {
        id: Arc<str>,
        step: u16,
        undo: bool,
        outcome: Outcome,
    },
    /// A person's decision.
    Decide {
        id: Arc<str>,
        decision: Decision,
        reply: oneshot::Sender<Result<View, Refused>>,
    },
    /// Those who are to know that it is parked have been told, or cannot be.
    Told { id: Arc<str> },
    /// It stands in the history.
    Closed { id: Arc<str> },
    /// The supervisor's hub has it.
    HandedOver { id: Arc<str> },
    /// Handed over by a scheduler, or lent by a keeper.
    Failed { instance: Box<Instance> },
    /// To a keeper: somebody would undo something.
    Claim {
        claim: Claim,
        reply: oneshot::Sender<Result<Lent, LockLost>>,
    },
    /// To a keeper: how undoing went. Answered with the ids that are not the reporter's any more.
    Report {
        lock: Lock,
        events: Vec<(Arc<str>, Event)>,
        reply: oneshot::Sender<Result<Vec<Arc<str>>, LockLost>>,
    },
    /// To a keeper: whoever has this lock needs it no more.
    GiveBack { lock: Lock },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Cancel { note: String },
    Retry { note: String },
    Skip { step: String, note: String },
    Resolve { note: String },
}

/// Why a decision was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("there is no such instance under way here")]
    Unknown,
    #[error("it is {0}, so that cannot be done")]
    State(&'static str),
    #[error("there is no step `{0}` that could not be undone")]
    Step(String),
}

/// The answer to a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// It was accepted, and would survive a crash.
    New,
    /// There is one with this id; what it is.
    Known(&'static str),
}

/// Something to be done when the records of its round are durable.
pub enum Effect {
    Reply(oneshot::Sender<Started>, Started),
    Show(
        oneshot::Sender<Result<View, Refused>>,
        Result<Box<View>, Refused>,
    ),
    Lend(
        oneshot::Sender<Result<Lent, LockLost>>,
        Result<Lent, LockLost>,
    ),
    Take(
        oneshot::Sender<Result<Vec<Arc<str>>, LockLost>>,
        Result<Vec<Arc<str>>, LockLost>,
    ),
    Call {
        id: Arc<str>,
        step: u16,
        undo: bool,
        work: Prepared,
        timeout: std::time::Duration,
    },
    /// To the history, then [`Input::Closed`].
    Finish {
        id: Arc<str>,
        value: Vec<u8>,
    },
    /// To the hub of what failed, then [`Input::HandedOver`].
    HandOver {
        id: Arc<str>,
        value: Vec<u8>,
    },
    /// Whoever the definition names is sent the notice. If the instance is parked, people are told as well, and then comes
    /// [`Input::Told`].
    Tell {
        id: Arc<str>,
        notice: Option<Prepared>,
        parked: Option<Box<View>>,
    },
}

/// The live instances of a partition.
pub struct Core {
    role: Role,
    live: HashMap<Arc<str>, Live, FixedState>,
    timers: BTreeSet<(Millis, Arc<str>)>,
    /// On which new instances run.
    current: Option<(Version, Arc<Definition>)>,
    now_ms: Millis,
    random: Random,
    round: Round,
    lending: Lending,
}

/// An instance that has not ended, or is not yet known to stand elsewhere.
struct Live {
    kind: Kind,
    /// Steps that are being tried.
    under_way: u64,
    /// The next time at which something is due.
    timer_ms: Option<Millis>,
    /// It is on its way to the history or to the supervisor.
    leaving: bool,
    with: With,
}

enum Kind {
    /// Ours.
    Own(Box<Instance>),
    /// The supervisor's.
    Handed,
}

impl Core {
    pub fn new(role: Role, current: Option<(Version, Arc<Definition>)>, random: Random) -> Core {
        Core {
            role,
            live: HashMap::default(),
            timers: BTreeSet::new(),
            current,
            now_ms: 0,
            random,
            round: Round::default(),
            lending: Lending::default(),
        }
    }

    /// How many there are, those with the supervisor included.
    pub fn count(&self) -> usize {
        self.live.len()
    }

    pub fn has(&self, id: &str) -> bool {
        self.live.contains_key(id)
    }

    /// An instance that is ours.
    pub fn get(&self, id: &str) -> Option<&Instance> {
        match &self.live.get(id)?.kind {
            Kind::Own(instance) => Some(instance),
            Kind::Handed => None,
        }
    }

    /// All instances that are ours, in no order.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.live.values().filter_map(|live| match &live.kind {
            Kind::Own(instance) => Some(&**instance),
            Kind::Handed => None,
        })
    }

    /// When something is due next.
    pub fn next_timer(&self) -> Option<Millis> {
        let timers = self.timers.first().map(|(at, _)| *at);
        timers.into_iter().chain(self.lending.next_timer()).min()
    }

    /// What has gathered since the last time.
    pub fn take_round(&mut self) -> Round {
        std::mem::take(&mut self.round)
    }

    /// Time does not go back, whatever the clock does.
    fn pass_to(&mut self, now_ms: Millis) {
        self.now_ms = self.now_ms.max(now_ms);
    }
}
