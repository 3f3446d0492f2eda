//! Settlement of locked messages, and operations on dead letters.

use std::fmt;
use std::str::FromStr;

use super::{Event, Machine, Refusal, RemovalReason, SubQueue, millis};
use crate::message::{LockExpiry, Message, MessageState, Properties};

/// Identifies a message and the lock on it. A message that is locked again has a new lock number, so an old
/// token never matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockToken {
    pub seq: u64,
    pub number: u64,
}

impl fmt::Display for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.seq, self.number)
    }
}

impl FromStr for LockToken {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<LockToken, Refusal> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let token = text.split_once('-').and_then(|(seq, lock)| {
            let (seq, number) = (number(seq)?, number(lock)?);
            Some(LockToken { seq, number })
        });
        token.ok_or(Refusal::LockLost)
    }
}

impl Machine {
    pub(crate) fn complete(&mut self, token: LockToken) -> Result<(), Refusal> {
        let (seqs, why) = (vec![token.seq], RemovalReason::Completed);
        self.settle(token, Event::Removed { seqs, why })
    }

    /// Releases a message to its previous position, optionally with new properties.
    pub(crate) fn abandon(
        &mut self,
        token: LockToken,
        properties: Option<Properties>,
    ) -> Result<(), Refusal> {
        let seq = token.seq;
        self.settle(token, Event::Released { seq, properties })
    }

    /// Releases a message without processing: the delivery does not count.
    pub(crate) fn give_back(&mut self, token: LockToken) -> Result<(), Refusal> {
        let seqs = vec![token.seq];
        self.settle(token, Event::Returned { seqs })
    }

    /// The properties of a locked message.
    pub(crate) fn properties(&self, token: LockToken) -> Result<&Properties, Refusal> {
        Ok(&self.locked(token)?.content.properties)
    }

    /// Defers a message: it is then received by its sequence number only.
    pub(crate) fn defer(
        &mut self,
        token: LockToken,
        properties: Option<Properties>,
    ) -> Result<(), Refusal> {
        let seq = token.seq;
        self.settle(token, Event::Deferred { seq, properties })
    }

    pub(crate) fn dead_letter(
        &mut self,
        token: LockToken,
        reason: String,
        description: String,
        properties: Option<Properties>,
    ) -> Result<(), Refusal> {
        if self.locked(token)?.sub_queue() == SubQueue::DeadLetters {
            return Err(Refusal::AlreadyDeadLettered);
        }
        let seq = token.seq;
        let event = Event::DeadLettered {
            seq,
            reason,
            description,
            properties,
        };
        self.settle(token, event)
    }

    /// Renews the lock and returns its new expiry. The lock of a session's message is renewed with
    /// [`Machine::renew_session`].
    pub(crate) fn renew(&mut self, token: LockToken) -> Result<i64, Refusal> {
        let message = self.locked(token)?;
        if let MessageState::Locked(lock) = message.state
            && lock.until == LockExpiry::Session
        {
            return Err(Refusal::SessionRequired);
        }
        let until_ms = self.now_ms.saturating_add(millis(self.settings.lock));
        let seqs = vec![token.seq];
        self.commit(Event::Renewed { seqs, until_ms });
        Ok(until_ms)
    }

    /// Returns a dead letter to the end of the main queue with a delivery count of 0.
    pub(crate) fn resubmit(&mut self, seq: u64) -> Result<(), Refusal> {
        let dead =
            |m: &&Message| m.dead_letter.is_some() && !matches!(m.state, MessageState::Locked(_));
        if self.messages.get(&seq).filter(dead).is_none() {
            let what = "an unlocked dead letter";
            return Err(Refusal::NoSuchMessage { seq, what });
        }
        self.commit(Event::Resubmitted { seq });
        Ok(())
    }

    /// Removes up to `max` unlocked messages and returns how many.
    pub(crate) fn purge(&mut self, sub_queue: SubQueue, max: usize) -> usize {
        let loose =
            |m: &Message| m.sub_queue() == sub_queue && !matches!(m.state, MessageState::Locked(_));
        let messages = self.messages.iter();
        let messages = messages.filter(|(_, message)| loose(message));
        let seqs: Vec<u64> = messages.take(max).map(|(seq, _)| *seq).collect();
        let count = seqs.len();
        if count > 0 {
            let why = RemovalReason::Purged;
            self.commit(Event::Removed { seqs, why });
        }
        count
    }

    /// Commits the settlement of a message if the token holds its lock.
    fn settle(&mut self, token: LockToken, settlement: Event) -> Result<(), Refusal> {
        self.locked(token)?;
        self.commit(settlement);
        Ok(())
    }

    pub(super) fn locked(&self, token: LockToken) -> Result<&Message, Refusal> {
        if self.reserved.contains(&token.seq) {
            return Err(Refusal::LockLost);
        }
        let message = self.messages.get(&token.seq).ok_or(Refusal::LockLost)?;
        match message.state {
            MessageState::Locked(lock)
                if lock.number == token.number && lock.until != LockExpiry::Forwarded =>
            {
                Ok(message)
            }
            _ => Err(Refusal::LockLost),
        }
    }

    /// The lock's expiry, if the message is locked.
    pub(super) fn lock_end(&self, message: &Message) -> Option<i64> {
        let MessageState::Locked(lock) = message.state else {
            return None;
        };
        match lock.until {
            LockExpiry::Time(at) => Some(at),
            LockExpiry::Session => self.session_end(message.content.session.as_ref()?),
            LockExpiry::Forwarded => None,
        }
    }
}
