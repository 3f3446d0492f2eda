//! Messages out: under a lock, for good, or only to look at.

use std::collections::BTreeSet;

use super::{Event, Gone, Machine, Part, Refusal, SessionLock, Token, millis};
use crate::message::{Message, State, Until};

/// What happens to a message that is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is locked until it is settled or the lock runs out.
    #[default]
    PeekLock,
    /// It is gone, whatever becomes of its receiver.
    ReceiveAndDelete,
}

/// How much to receive. There is always one message, if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    pub count: usize,
    pub bytes: usize,
}

impl From<usize> for Most {
    fn from(count: usize) -> Most {
        let bytes = usize::MAX;
        Most { count, bytes }
    }
}

/// One message handed to one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub seq: u64,
    pub message: Message,
    /// To settle it with; none if it is gone already.
    pub lock: Option<(Token, i64)>,
}

/// A message that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeked {
    pub seq: u64,
    pub message: Message,
}

impl Machine {
    /// The messages that wait the longest.
    pub fn receive(
        &mut self,
        part: Part,
        most: impl Into<Most>,
        mode: Mode,
    ) -> Result<Vec<Delivery>, Refusal> {
        let ready = match part {
            Part::Main if self.settings.sessions => return Err(Refusal::BySession),
            Part::Main => &self.ready,
            Part::DeadLetters => &self.dead_ready,
        };
        let seqs = self.first(ready, most.into());
        Ok(self.deliver(seqs, mode, self.until()))
    }

    /// Whether [`Machine::receive`] would find something.
    pub fn has_ready(&self, part: Part) -> bool {
        match part {
            Part::Main => !self.ready.is_empty(),
            Part::DeadLetters => !self.dead_ready.is_empty(),
        }
    }

    /// The next messages of a session, in order.
    pub fn receive_in_session(
        &mut self,
        lock: &SessionLock,
        most: impl Into<Most>,
        mode: Mode,
    ) -> Result<Vec<Delivery>, Refusal> {
        let session = self.held_session(lock)?;
        let seqs = self.first(&session.ready, most.into());
        Ok(self.deliver(seqs, mode, Until::Session))
    }

    /// Messages that were set aside; all of them or none.
    pub fn receive_deferred(
        &mut self,
        part: Part,
        seqs: Vec<u64>,
        mode: Mode,
        lock: Option<&SessionLock>,
    ) -> Result<Vec<Delivery>, Refusal> {
        let by_session = self.settings.sessions && part == Part::Main;
        let until = match (by_session, lock) {
            (true, None) => return Err(Refusal::BySession),
            (true, Some(lock)) => {
                self.held_session(lock)?;
                Until::Session
            }
            (false, _) => self.until(),
        };
        let mut seen = BTreeSet::new();
        for &seq in &seqs {
            let mine = |message: &&Message| {
                let session = lock.filter(|_| by_session).map(|lock| &lock.session);
                message.state == State::Deferred
                    && message.part() == part
                    && session.is_none_or(|name| message.content.session.as_ref() == Some(name))
            };
            if self.messages.get(&seq).filter(mine).is_none() || !seen.insert(seq) {
                let what = "deferred";
                return Err(Refusal::NotThere { seq, what });
            }
        }
        Ok(self.deliver(seqs, mode, until))
    }

    /// Up to `max` messages from number `from` on, whatever their state.
    pub fn peek(&self, part: Part, from: u64, max: usize) -> Vec<Peeked> {
        let messages = self.messages.range(from..);
        let messages = messages.filter(|(_, message)| message.part() == part);
        let peeked = messages.take(max).map(|(seq, message)| Peeked {
            seq: *seq,
            message: message.clone(),
        });
        peeked.collect()
    }

    fn first(&self, ready: &BTreeSet<(i64, u64)>, most: Most) -> Vec<u64> {
        let mut left = most.bytes;
        let fits = |&(at, seq): &(usize, u64)| {
            let size = self.messages.get(&seq).map_or(0, |it| it.content.size());
            let fits = at == 0 || size <= left;
            left = left.saturating_sub(size);
            fits
        };
        let ready = ready.iter().take(most.count).map(|(_, seq)| *seq);
        let ready = ready.enumerate().take_while(fits);
        ready.map(|(_, seq)| seq).collect()
    }

    fn until(&self) -> Until {
        Until::Time(self.now_ms.saturating_add(millis(self.settings.lock)))
    }

    fn deliver(&mut self, seqs: Vec<u64>, mode: Mode, until: Until) -> Vec<Delivery> {
        if seqs.is_empty() {
            return Vec::new();
        }
        if mode == Mode::ReceiveAndDelete {
            let gone = seqs.iter().filter_map(|seq| self.gone(*seq)).collect();
            let why = Gone::ReceivedAndDeleted;
            self.commit(Event::Removed { seqs, why });
            return gone;
        }
        let first_lock = self.next_lock;
        let numbered = (first_lock..).zip(seqs.clone());
        self.commit(Event::Delivered {
            seqs,
            first_lock,
            until,
        });
        let locked = numbered.filter_map(|(number, seq)| {
            let message = self.messages.get(&seq)?.clone();
            let lock = Some((Token { seq, number }, self.lock_end(&message)?));
            Some(Delivery { seq, message, lock })
        });
        locked.collect()
    }

    fn gone(&self, seq: u64) -> Option<Delivery> {
        let mut message = self.messages.get(&seq)?.clone();
        message.deliveries += 1;
        let lock = None;
        Some(Delivery { seq, message, lock })
    }
}

impl Message {
    pub fn part(&self) -> Part {
        match self.death {
            None => Part::Main,
            Some(_) => Part::DeadLetters,
        }
    }
}
