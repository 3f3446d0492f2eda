//! The parameters of a receive, and of an exchange: settle and receive in one request.

use std::time::Duration;

use highwater_env::{MemoryBudget, MemoryShare};

use super::waiting::WaitKey;
use crate::machine::{
    Delivery, LockToken, Machine, ReceiveLimit, ReceiveMode, Refusal, SessionLock, SubQueue,
};

/// One result per settled message.
pub(super) type SettleResults = Vec<Result<(), Refusal>>;

/// The limits of a receive, and how long to wait.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    pub sub_queue: SubQueue,
    pub limit: ReceiveLimit,
    pub mode: ReceiveMode,
    pub wait: Duration,
    /// Receives from this session only.
    pub session: Option<SessionLock>,
    /// Lets [`Queue::end_wait`](super::Queue::end_wait) end the wait.
    pub key: Option<WaitKey>,
    /// Lends the bytes of `limit` before messages are received; without them none are, and the receive is refused. A
    /// wait holds no memory.
    pub memory: Option<MemoryBudget>,
}

/// Which deferred messages to receive, all or none.
#[derive(Clone, Debug)]
pub struct DeferredRequest {
    pub sub_queue: SubQueue,
    /// Sequence numbers.
    pub seqs: Vec<u64>,
    pub mode: ReceiveMode,
    pub session: Option<SessionLock>,
    /// Lends the bytes of the messages before they are received.
    pub memory: MemoryBudget,
}

impl Default for ReceiveRequest {
    fn default() -> ReceiveRequest {
        ReceiveRequest {
            sub_queue: SubQueue::Main,
            limit: ReceiveLimit::from(1),
            mode: ReceiveMode::PeekLock,
            wait: Duration::ZERO,
            session: None,
            key: None,
            memory: None,
        }
    }
}

/// The settlements of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettleBatch {
    pub complete: Vec<LockToken>,
    pub abandon: Vec<LockToken>,
}

impl SettleBatch {
    pub(super) fn settle(self, machine: &mut Machine) -> SettleResults {
        let mut settled = Vec::with_capacity(self.complete.len() + self.abandon.len());
        let complete = self.complete.into_iter();
        settled.extend(complete.map(|token| machine.complete(token)));
        let abandon = self.abandon.into_iter();
        settled.extend(abandon.map(|token| machine.abandon(token, None)));
        settled
    }
}

/// The result of an exchange.
#[derive(Debug)]
pub struct SettleAndReceiveResult {
    /// One result per completed, then per abandoned message.
    pub settled: SettleResults,
    pub received: Result<Vec<Delivery>, Refusal>,
    /// The memory of received messages. A single message may be larger than the limit, and so than its memory.
    pub memory: MemoryShare,
}
