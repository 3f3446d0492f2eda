//! The decisions of a partition's owner: inputs in, records to append and effects to perform *once those
//! records are durable* out. Nothing is performed here.
//!
//! A [`Core`] is the scheduler of the instances of one partition or, over the hub of failed instances, their
//! supervisor. Both replay a journal into live instances, begin due calls, apply outcomes and forget ended
//! instances; they differ in the phases they handle. With supervisors in other processes there are two cores: a
//! dispatcher beside the journal lets them claim instances (`claims`), and a remote supervisor undoes them.
//! State may run ahead of the disk, effects never do: replies, calls and hand-overs happen after their records
//! are durable. So the owner may append many inputs at once, and a crash loses only effects that were not performed.

mod advance;
mod claims;
mod decide;
mod recover;
mod round;
#[cfg(test)]
mod sim;
mod step_retry;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_env::random::Random;
use tokio::sync::oneshot;

use crate::call::{CallOutcome, CallRequest, PreparedCall, ServicePools};
use crate::definition::{Definition, Version};
use crate::machine::{Event, Instance, Millis, View};
pub use claims::Claim;
use claims::{ClaimState, Claims};
pub(crate) use claims::{ClaimedInstances, LockLost, SupervisorLock};
pub(crate) use round::Round;

/// The role of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs steps and hands over failed instances.
    Scheduler,
    /// Undoes handed-over instances.
    Supervisor,
    /// Keeps handed-over instances and lets remote supervisors claim them.
    Dispatcher,
    /// Undoes claimed instances. Its journal is the dispatcher's.
    RemoteSupervisor,
}

/// An input to a core.
pub(crate) enum Input {
    Start {
        id: Arc<str>,
        input: Bytes,
        reply: Option<oneshot::Sender<StartOutcome>>,
    },
    /// An attempt ended.
    Outcome {
        id: Arc<str>,
        step: u16,
        undo: bool,
        outcome: CallOutcome,
    },
    /// A person's decision.
    Decide {
        id: Arc<str>,
        decision: OperatorCommand,
        reply: oneshot::Sender<Result<View, OperatorCommandError>>,
    },
    /// Operators were notified of a parked instance, or cannot be reached.
    Notified { id: Arc<str> },
    /// The instance is in the history.
    Archived { id: Arc<str> },
    /// The hub of failed instances has it.
    HandedOver { id: Arc<str> },
    /// Handed over by a scheduler, or claimed from a dispatcher.
    Failed { instance: Box<Instance> },
    /// To a dispatcher: a remote supervisor asks for instances.
    Claim {
        claim: Claim,
        reply: oneshot::Sender<Result<ClaimedInstances, LockLost>>,
    },
    /// To a dispatcher: outcomes of undo attempts. Answered with the ids whose claim is lost.
    Report {
        lock: SupervisorLock,
        events: Vec<(Arc<str>, Event)>,
        reply: oneshot::Sender<Result<Vec<Arc<str>>, LockLost>>,
    },
    /// To a dispatcher: a remote supervisor no longer needs its lock.
    ReleaseClaim { lock: SupervisorLock },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    Cancel { note: String },
    Retry { note: String },
    Skip { step: String, note: String },
    Resolve { note: String },
}

/// Why a decision was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorCommandError {
    #[error("there is no such instance in progress here")]
    Unknown,
    #[error("the instance is {0}; this command is not allowed")]
    State(&'static str),
    #[error("there is no step `{0}` that could not be undone")]
    Step(String),
}

/// The answer to a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// It was accepted and would survive a crash.
    New,
    /// An instance with this id exists, in this state.
    Existing(&'static str),
}

/// An action to perform when the records of its round are durable.
pub(crate) enum Effect {
    Reply(Reply),
    Call(StepCall),
    /// Append to the history, then [`Input::Archived`].
    Archive {
        id: Arc<str>,
        value: Vec<u8>,
    },
    /// Append to the hub of failed instances, then [`Input::HandedOver`].
    HandOver {
        id: Arc<str>,
        value: Vec<u8>,
    },
    /// Send the notice to the definition's target. If the instance is parked, notify operators too, then
    /// [`Input::Notified`].
    Notify {
        id: Arc<str>,
        notice: Option<PreparedCall>,
        parked: Option<Box<View>>,
    },
}

/// A reply and its receiver.
pub(crate) enum Reply {
    Start(oneshot::Sender<StartOutcome>, StartOutcome),
    OperatorCommand(
        oneshot::Sender<Result<View, OperatorCommandError>>,
        Result<Box<View>, OperatorCommandError>,
    ),
    Claim(
        oneshot::Sender<Result<ClaimedInstances, LockLost>>,
        Result<ClaimedInstances, LockLost>,
    ),
    Report(
        oneshot::Sender<Result<Vec<Arc<str>>, LockLost>>,
        Result<Vec<Arc<str>>, LockLost>,
    ),
}

impl Reply {
    /// Sends the reply. The receiver may have been dropped.
    pub(crate) fn send(self) {
        match self {
            Reply::Start(reply, outcome) => drop(reply.send(outcome)),
            Reply::OperatorCommand(reply, view) => drop(reply.send(view.map(|view| *view))),
            Reply::Claim(reply, claimed) => drop(reply.send(claimed)),
            Reply::Report(reply, refused) => drop(reply.send(refused)),
        }
    }
}

/// A call for a step or its undo.
pub(crate) struct StepCall {
    pub id: Arc<str>,
    pub step: u16,
    pub undo: bool,
    pub work: PreparedCall,
    pub timeout: std::time::Duration,
}

impl StepCall {
    /// Submits the call; its outcome goes to `deliver`.
    pub(crate) fn submit(self, pools: &ServicePools, deliver: impl FnOnce(Input) + Send + 'static) {
        let StepCall { id, step, undo, .. } = self;
        let done = move |outcome: CallOutcome| {
            deliver(Input::Outcome {
                id,
                step,
                undo,
                outcome,
            });
        };
        pools.submit(CallRequest {
            work: self.work,
            timeout: self.timeout,
            done: Box::new(done),
        });
    }
}

/// The live instances of a partition.
pub(crate) struct Core {
    role: Role,
    live: HashMap<Arc<str>, LiveInstance, FixedState>,
    timers: BTreeSet<(Millis, Arc<str>)>,
    /// The definition of new instances.
    current: Option<(Version, Arc<Definition>)>,
    now_ms: Millis,
    random: Random,
    round: Round,
    claims: Claims,
}

/// An instance that has not ended, or whose hand-over or archiving is not confirmed yet.
struct LiveInstance {
    ownership: Ownership,
    /// Steps with an attempt in progress, one bit each.
    under_way: u64,
    /// When its next timer fires.
    timer_ms: Option<Millis>,
    /// Its archiving or hand-over is in progress.
    leaving: bool,
    claim: ClaimState,
}

enum Ownership {
    /// This core's.
    Own(Box<Instance>),
    /// Handed over to the supervisor.
    HandedOver,
}

impl Core {
    pub(crate) fn new(
        role: Role,
        current: Option<(Version, Arc<Definition>)>,
        random: Random,
    ) -> Core {
        Core {
            role,
            live: HashMap::default(),
            timers: BTreeSet::new(),
            current,
            now_ms: 0,
            random,
            round: Round::default(),
            claims: Claims::default(),
        }
    }

    /// Number of instances, handed-over ones included.
    pub(crate) fn count(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.live.contains_key(id)
    }

    /// An instance of this core.
    pub(crate) fn get(&self, id: &str) -> Option<&Instance> {
        match &self.live.get(id)?.ownership {
            Ownership::Own(instance) => Some(instance),
            Ownership::HandedOver => None,
        }
    }

    /// All instances of this core, in no order.
    pub(crate) fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.live.values().filter_map(|live| match &live.ownership {
            Ownership::Own(instance) => Some(&**instance),
            Ownership::HandedOver => None,
        })
    }

    pub(crate) fn instances_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        let live = self.live.values_mut();
        live.filter_map(|live| match &mut live.ownership {
            Ownership::Own(instance) => Some(&mut **instance),
            Ownership::HandedOver => None,
        })
    }

    /// When the next timer fires.
    pub(crate) fn next_timer(&self) -> Option<Millis> {
        let timers = self.timers.first().map(|(at, _)| *at);
        timers.into_iter().chain(self.claims.next_timer()).min()
    }

    /// Takes the records and effects since the last call.
    pub(crate) fn take_round(&mut self) -> Round {
        std::mem::take(&mut self.round)
    }

    /// Time never goes back, even if the clock does.
    fn advance_clock(&mut self, now_ms: Millis) {
        self.now_ms = self.now_ms.max(now_ms);
    }
}
