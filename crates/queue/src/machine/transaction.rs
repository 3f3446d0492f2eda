//! Transactions over several queues: the operations of one queue.
//!
//! A transaction of one queue is one batch of its journal. One of several queues is decided by a record elsewhere
//! (`service/transactions`); each queue first reserves what it will settle, and applies its part when the decision is
//! durable. It remembers which decisions it has applied, in the same batch, so that a repetition after a crash is
//! harmless.

use std::collections::BTreeSet;

use super::{Event, LockToken, Machine, Refusal, RemovalReason, millis};
use crate::message::{LockExpiry, MessageState, NewMessage, Properties};

/// Locks of a transaction that is being decided last at least this long.
const LOCK_MS_MIN: i64 = 30_000;

/// One operation of a transaction, as its decision is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransactionStep {
    Send(NewMessage),
    Complete {
        token: LockToken,
    },
    Abandon {
        token: LockToken,
        properties: Option<Properties>,
    },
    Defer {
        token: LockToken,
        properties: Option<Properties>,
    },
    DeadLetter {
        token: LockToken,
        properties: Option<Properties>,
        reason: String,
        description: String,
    },
}

impl TransactionStep {
    fn token(&self) -> Option<LockToken> {
        match self {
            TransactionStep::Send(_) => None,
            TransactionStep::Complete { token }
            | TransactionStep::Abandon { token, .. }
            | TransactionStep::Defer { token, .. }
            | TransactionStep::DeadLetter { token, .. } => Some(*token),
        }
    }
}

/// The decisions that a queue has applied: all below the floor, and these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AppliedDecisions {
    /// `None` as long as the queue takes part in none. Decisions of an earlier queue of the same name are ignored.
    floor: Option<u64>,
    offsets: BTreeSet<u64>,
}

impl AppliedDecisions {
    pub(super) fn add(&mut self, floor: u64, offsets: &[u64]) {
        if self.floor.is_some_and(|before| before > floor) {
            // The hub of decisions was recreated.
            self.offsets.clear();
        }
        self.floor = Some(floor);
        self.offsets.extend(offsets);
        self.offsets = self.offsets.split_off(&floor);
    }

    pub(super) fn snapshot(&self) -> Option<Event> {
        let offsets = self.offsets.iter().copied().collect();
        self.floor
            .map(|floor| Event::TransactionsApplied { floor, offsets })
    }
}

impl Machine {
    /// Does all steps or none, as one batch.
    pub(crate) fn transact(&mut self, steps: Vec<TransactionStep>) -> Result<(), Refusal> {
        self.check_steps(&steps)?;
        steps.into_iter().for_each(|step| self.run_step(step));
        Ok(())
    }

    /// Checks the steps of a transaction that is about to be decided, and keeps others from settling its messages.
    /// Decisions before `end` are none of this queue, if it takes part in its first.
    pub(crate) fn reserve(&mut self, steps: &[TransactionStep], end: u64) -> Result<(), Refusal> {
        self.check_steps(steps)?;
        if self.applied_decisions.floor.is_none_or(|floor| floor > end) {
            let (floor, offsets) = (end, Vec::new());
            self.commit(Event::TransactionsApplied { floor, offsets });
        }
        for token in steps.iter().filter_map(TransactionStep::token) {
            self.prolong_lock(token);
            self.reserved.insert(token.seq);
        }
        Ok(())
    }

    /// The transaction was not decided.
    pub(crate) fn unreserve(&mut self, steps: &[TransactionStep]) {
        for token in steps.iter().filter_map(TransactionStep::token) {
            self.reserved.remove(&token.seq);
        }
    }

    /// Applies the part of a decision, unless that was done before. All decisions below `floor` are applied everywhere.
    pub(crate) fn apply_decision(&mut self, offset: u64, floor: u64, steps: Vec<TransactionStep>) {
        self.unreserve(&steps);
        let applied = &self.applied_decisions;
        let is_mine = applied.floor.is_some_and(|floor| floor <= offset);
        if !is_mine || applied.offsets.contains(&offset) {
            return;
        }
        for step in steps {
            match step.token() {
                Some(token) if self.is_settled_otherwise(token, &step) => {}
                _ => self.run_step(step),
            }
        }
        let before = self.applied_decisions.floor.unwrap_or_default();
        let (floor, offsets) = (floor.max(before), vec![offset]);
        self.commit(Event::TransactionsApplied { floor, offsets });
    }

    fn check_steps(&self, steps: &[TransactionStep]) -> Result<(), Refusal> {
        let mut settled = BTreeSet::new();
        let mut contents = Vec::new();
        for step in steps {
            if let TransactionStep::Send(new) = step {
                self.check_new(&new.content)?;
                contents.push(&new.content);
            }
            if let Some(token) = step.token() {
                let message = self.locked(token)?;
                if !settled.insert(token.seq) {
                    return Err(Refusal::LockLost);
                }
                if matches!(step, TransactionStep::DeadLetter { .. })
                    && message.dead_letter.is_some()
                {
                    return Err(Refusal::AlreadyDeadLettered);
                }
            }
        }
        self.check_room(contents.into_iter())
    }

    /// A committed completion applies even to a message that is locked again; other operations do not.
    fn is_settled_otherwise(&self, token: LockToken, step: &TransactionStep) -> bool {
        let Some(message) = self.messages.get(&token.seq) else {
            return true;
        };
        match message.state {
            MessageState::Locked(lock) => {
                lock.number != token.number && !matches!(step, TransactionStep::Complete { .. })
            }
            _ => false,
        }
    }

    fn run_step(&mut self, step: TransactionStep) {
        let event = match step {
            TransactionStep::Send(new) => return self.send_or_dead_letter(new),
            TransactionStep::Complete { token } => Event::Removed {
                seqs: vec![token.seq],
                why: RemovalReason::Completed,
            },
            TransactionStep::Abandon { token, properties } => Event::Released {
                seq: token.seq,
                properties,
            },
            TransactionStep::Defer { token, properties } => Event::Deferred {
                seq: token.seq,
                properties,
            },
            TransactionStep::DeadLetter {
                token,
                properties,
                reason,
                description,
            } => Event::DeadLettered {
                seq: token.seq,
                reason,
                description,
                properties,
            },
        };
        self.commit(event);
    }

    /// Renews a lock that could end before the decision is applied.
    fn prolong_lock(&mut self, token: LockToken) {
        let Some(message) = self.messages.get(&token.seq) else {
            return;
        };
        let until = self.lock_end(message);
        let enough_ms = self.now_ms.saturating_add(LOCK_MS_MIN);
        if until.is_none_or(|until| until >= enough_ms) {
            return;
        }
        let until_ms = enough_ms.max(self.now_ms.saturating_add(millis(self.settings.lock)));
        let session = message.content.session.clone();
        let event = match message.state {
            MessageState::Locked(lock) if lock.until == LockExpiry::Session => {
                let number = session.as_ref().and_then(|name| self.session_number(name));
                session
                    .zip(number)
                    .map(|(session, number)| Event::SessionLocked {
                        session,
                        number,
                        until_ms,
                    })
            }
            _ => Some(Event::Renewed {
                seqs: vec![token.seq],
                until_ms,
            }),
        };
        event.into_iter().for_each(|event| self.commit(event));
    }
}
