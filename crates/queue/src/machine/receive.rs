//! Receive operations: peek-lock, receive-and-delete, deferred, and peek.

use std::collections::BTreeSet;

use super::{Event, LockToken, Machine, Refusal, RemovalReason, SessionLock, SubQueue, millis};
use crate::message::{LockExpiry, Message, MessageState};

/// The mode of a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveMode {
    /// It is locked until it is settled or the lock expires.
    #[default]
    PeekLock,
    /// It is removed at once, even if the receiver fails.
    ReceiveAndDelete,
}

/// How much to receive. At least one message is returned if any is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveLimit {
    pub count: usize,
    pub bytes: usize,
}

impl From<usize> for ReceiveLimit {
    fn from(count: usize) -> ReceiveLimit {
        let bytes = usize::MAX;
        ReceiveLimit { count, bytes }
    }
}

impl ReceiveLimit {
    /// The first items within the limit.
    pub(super) fn take<T>(
        self,
        items: impl Iterator<Item = T>,
        size: impl Fn(&T) -> usize,
    ) -> impl Iterator<Item = T> {
        let mut left = self.bytes;
        let fits = move |(at, item): &(usize, T)| {
            let size = size(item);
            let fits = *at == 0 || size <= left;
            left = left.saturating_sub(size);
            fits
        };
        let items = items.take(self.count).enumerate().take_while(fits);
        items.map(|(_, item)| item)
    }
}

/// One message delivered to one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub seq: u64,
    pub message: Message,
    /// Settlement token and expiry (ms). `None` after receive-and-delete.
    pub lock: Option<(LockToken, i64)>,
}

/// A message returned by `peek`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekedMessage {
    pub seq: u64,
    pub message: Message,
}

impl Machine {
    /// Receives the oldest ready messages.
    pub(crate) fn receive(
        &mut self,
        sub_queue: SubQueue,
        limit: impl Into<ReceiveLimit>,
        mode: ReceiveMode,
    ) -> Result<Vec<Delivery>, Refusal> {
        if let (SubQueue::Main, Some(target)) = (sub_queue, &self.settings.forward_to) {
            return Err(Refusal::Forwards(target.clone()));
        }
        if sub_queue == SubQueue::Main && self.settings.sessions {
            return Err(Refusal::SessionRequired);
        }
        let seqs = self.first_ready(sub_queue, limit.into());
        Ok(self.deliver(seqs, mode, self.until()))
    }

    /// Whether [`Machine::receive`] would return a message.
    pub(crate) fn has_ready(&self, sub_queue: SubQueue) -> bool {
        match sub_queue {
            SubQueue::Main => !self.ready.is_empty(),
            SubQueue::DeadLetters => !self.dead_ready.is_empty(),
        }
    }

    /// Receives the next messages of a session, in order.
    pub(crate) fn receive_in_session(
        &mut self,
        lock: &SessionLock,
        limit: impl Into<ReceiveLimit>,
        mode: ReceiveMode,
    ) -> Result<Vec<Delivery>, Refusal> {
        let session = self.locked_session(lock)?;
        let seqs = self.first(&session.ready, limit.into());
        Ok(self.deliver(seqs, mode, LockExpiry::Session))
    }

    /// The size of these messages, as far as they exist.
    pub(crate) fn size_of(&self, seqs: &[u64]) -> usize {
        let messages = seqs.iter().filter_map(|seq| self.messages.get(seq));
        messages.map(|message| message.content.size()).sum()
    }

    /// Receives deferred messages by sequence number, all or none.
    pub(crate) fn receive_deferred(
        &mut self,
        sub_queue: SubQueue,
        seqs: Vec<u64>,
        mode: ReceiveMode,
        lock: Option<&SessionLock>,
    ) -> Result<Vec<Delivery>, Refusal> {
        let by_session = self.settings.sessions && sub_queue == SubQueue::Main;
        let until = match (by_session, lock) {
            (true, None) => return Err(Refusal::SessionRequired),
            (true, Some(lock)) => {
                self.locked_session(lock)?;
                LockExpiry::Session
            }
            (false, _) => self.until(),
        };
        let mut seen = BTreeSet::new();
        for &seq in &seqs {
            let mine = |message: &&Message| {
                let session = lock.filter(|_| by_session).map(|lock| &lock.session);
                message.state == MessageState::Deferred
                    && message.sub_queue() == sub_queue
                    && session.is_none_or(|name| message.content.session.as_ref() == Some(name))
            };
            if self.messages.get(&seq).filter(mine).is_none() || !seen.insert(seq) {
                let what = "deferred";
                return Err(Refusal::NoSuchMessage { seq, what });
            }
        }
        Ok(self.deliver(seqs, mode, until))
    }

    /// The messages from sequence number `from`, in any state, of one session or all.
    pub(crate) fn peek(
        &self,
        sub_queue: SubQueue,
        session: Option<&str>,
        from: u64,
        limit: impl Into<ReceiveLimit>,
    ) -> Vec<PeekedMessage> {
        let size = |(_, message): &(&u64, &Message)| message.content.size();
        let messages = self.messages.range(from..);
        let messages = messages.filter(|(_, message)| {
            let of = message.content.session.as_deref();
            message.sub_queue() == sub_queue && (session.is_none() || session == of)
        });
        let peeked = limit.into().take(messages, size);
        let peeked = peeked.map(|(seq, message)| PeekedMessage {
            seq: *seq,
            message: message.clone(),
        });
        peeked.collect()
    }

    /// The oldest messages that are ready, outside of sessions.
    pub(super) fn first_ready(&self, sub_queue: SubQueue, limit: ReceiveLimit) -> Vec<u64> {
        match sub_queue {
            SubQueue::Main => self.first(&self.ready, limit),
            SubQueue::DeadLetters => self.first(&self.dead_ready, limit),
        }
    }

    fn first(&self, ready: &BTreeSet<(i64, u64)>, limit: ReceiveLimit) -> Vec<u64> {
        let size = |seq: &u64| self.messages.get(seq).map_or(0, |it| it.content.size());
        let ready = ready.iter().map(|(_, seq)| *seq);
        limit.take(ready, size).collect()
    }

    fn until(&self) -> LockExpiry {
        LockExpiry::Time(self.now_ms.saturating_add(millis(self.settings.lock)))
    }

    fn deliver(&mut self, seqs: Vec<u64>, mode: ReceiveMode, until: LockExpiry) -> Vec<Delivery> {
        if seqs.is_empty() {
            return Vec::new();
        }
        if mode == ReceiveMode::ReceiveAndDelete {
            let removed_delivery = seqs
                .iter()
                .filter_map(|seq| self.removed_delivery(*seq))
                .collect();
            let why = RemovalReason::ReceivedAndDeleted;
            self.commit(Event::Removed { seqs, why });
            return removed_delivery;
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
            let lock = Some((LockToken { seq, number }, self.lock_end(&message)?));
            Some(Delivery { seq, message, lock })
        });
        locked.collect()
    }

    fn removed_delivery(&self, seq: u64) -> Option<Delivery> {
        let mut message = self.messages.get(&seq)?.clone();
        message.deliveries += 1;
        let lock = None;
        Some(Delivery { seq, message, lock })
    }
}

impl Message {
    pub fn sub_queue(&self) -> SubQueue {
        match self.dead_letter {
            None => SubQueue::Main,
            Some(_) => SubQueue::DeadLetters,
        }
    }
}
