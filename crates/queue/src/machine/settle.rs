//! What a receiver may do with a message it has locked, and what may be done to dead letters.

use std::fmt;
use std::str::FromStr;

use super::{Event, Gone, Machine, Part, Refusal, millis};
use crate::message::{Message, Properties, State, Until};

/// Names a message and the lock on it. A message that is locked again has another number, so an old
/// token never fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    pub seq: u64,
    pub number: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.seq, self.number)
    }
}

impl FromStr for Token {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Token, Refusal> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let token = text.split_once('-').and_then(|(seq, lock)| {
            let (seq, number) = (number(seq)?, number(lock)?);
            Some(Token { seq, number })
        });
        token.ok_or(Refusal::LockLost)
    }
}

impl Machine {
    pub fn complete(&mut self, token: Token) -> Result<(), Refusal> {
        self.locked(token)?;
        let (seqs, why) = (vec![token.seq], Gone::Completed);
        self.commit(Event::Removed { seqs, why });
        Ok(())
    }

    /// Gives a message back, with other properties if there are any; it goes to where it was.
    pub fn abandon(&mut self, token: Token, properties: Option<Properties>) -> Result<(), Refusal> {
        self.locked(token)?;
        let seq = token.seq;
        self.commit(Event::Released { seq, properties });
        Ok(())
    }

    /// Sets a message aside; from now on it is received by its number only.
    pub fn defer(&mut self, token: Token, properties: Option<Properties>) -> Result<(), Refusal> {
        self.locked(token)?;
        let seq = token.seq;
        self.commit(Event::Deferred { seq, properties });
        Ok(())
    }

    pub fn dead_letter(
        &mut self,
        token: Token,
        reason: String,
        description: String,
        properties: Option<Properties>,
    ) -> Result<(), Refusal> {
        if self.locked(token)?.part() == Part::DeadLetters {
            return Err(Refusal::DeadAlready);
        }
        self.commit(Event::Died {
            seq: token.seq,
            reason,
            description,
            properties,
        });
        Ok(())
    }

    /// The lock starts anew; answers until when. A message of a session lives with the lock of its
    /// session, which is renewed instead.
    pub fn renew(&mut self, token: Token) -> Result<i64, Refusal> {
        let message = self.locked(token)?;
        if let State::Locked(lock) = message.state
            && lock.until == Until::Session
        {
            return Err(Refusal::BySession);
        }
        let until_ms = self.now_ms.saturating_add(millis(self.settings.lock));
        let seqs = vec![token.seq];
        self.commit(Event::Renewed { seqs, until_ms });
        Ok(until_ms)
    }

    /// Makes a dead letter a message again, at the end of the queue and with a count of 0.
    pub fn resubmit(&mut self, seq: u64) -> Result<(), Refusal> {
        let dead = |m: &&Message| m.death.is_some() && !matches!(m.state, State::Locked(_));
        if self.messages.get(&seq).filter(dead).is_none() {
            let what = "a dead letter that nobody has locked";
            return Err(Refusal::NotThere { seq, what });
        }
        self.commit(Event::Revived { seq });
        Ok(())
    }

    /// Removes up to `max` messages that nobody has locked; answers how many.
    pub fn purge(&mut self, part: Part, max: usize) -> usize {
        let loose = |m: &Message| m.part() == part && !matches!(m.state, State::Locked(_));
        let messages = self.messages.iter();
        let messages = messages.filter(|(_, message)| loose(message));
        let seqs: Vec<u64> = messages.take(max).map(|(seq, _)| *seq).collect();
        let count = seqs.len();
        if count > 0 {
            let why = Gone::Purged;
            self.commit(Event::Removed { seqs, why });
        }
        count
    }

    fn locked(&self, token: Token) -> Result<&Message, Refusal> {
        let message = self.messages.get(&token.seq).ok_or(Refusal::LockLost)?;
        match message.state {
            State::Locked(lock) if lock.number == token.number => Ok(message),
            _ => Err(Refusal::LockLost),
        }
    }

    /// Until when a locked message is locked.
    pub(super) fn lock_end(&self, message: &Message) -> Option<i64> {
        let State::Locked(lock) = message.state else {
            return None;
        };
        match lock.until {
            Until::Time(at) => Some(at),
            Until::Session => self.session_end(message.content.session.as_ref()?),
        }
    }
}
