//! What a receiver asks for, and what it hands in on the way: the round of a worker is one request.

use std::time::Duration;

use crate::machine::{Delivery, Machine, Mode, Most, Part, Refusal, SessionLock, Token};

/// How it went with each of several.
pub type Settled = Vec<Result<(), Refusal>>;

/// What to receive, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct Receive {
    pub part: Part,
    pub most: Most,
    pub mode: Mode,
    pub wait: Duration,
    /// Only from this session.
    pub session: Option<SessionLock>,
}

impl Default for Receive {
    fn default() -> Receive {
        Receive {
            part: Part::Main,
            most: Most::from(1),
            mode: Mode::PeekLock,
            wait: Duration::ZERO,
            session: None,
        }
    }
}

/// What a receiver that comes for more has done with what it had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub complete: Vec<Token>,
    pub abandon: Vec<Token>,
}

impl Done {
    pub(super) fn settle(self, machine: &mut Machine) -> Settled {
        let mut settled = Vec::with_capacity(self.complete.len() + self.abandon.len());
        let complete = self.complete.into_iter();
        settled.extend(complete.map(|token| machine.complete(token)));
        let abandon = self.abandon.into_iter();
        settled.extend(abandon.map(|token| machine.abandon(token, None)));
        settled
    }
}

/// How a request to settle and receive went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Of those to be completed, then of those to be abandoned.
    pub settled: Settled,
    pub received: Result<Vec<Delivery>, Refusal>,
}
