//! References of a subscription to the messages of its topic: the topic keeps a body until no subscription refers to
//! it, so a message has one body on disk and in memory however many subscriptions there are.
//!
//! A journal has a reference without the body, and reading it needs the contents of the topic. Some of them may have
//! been deleted: then the rest of the journal removes the message again. Time removes messages without an event, so
//! before the expiry is visible, the journal gets an event from which a replay sees that the time has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Event, Machine, PublishedCopy, millis};
use crate::message::{Content, DeadLetterCause, EXPIRED, Message, MessageState};

/// The contents of a topic's messages by their sequence numbers.
pub(crate) type ContentMap = BTreeMap<u64, Arc<Content>>;

/// A message whose body is in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReferencedMessage {
    /// As read from a journal its body is empty, and if nothing is changed, so is everything but the session.
    pub message: Message,
    /// Something besides the body differs from the topic's message.
    pub is_changed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Reference {
    topic_seq: u64,
    is_changed: bool,
}

#[derive(Debug, Default)]
pub(super) struct References {
    by_seq: BTreeMap<u64, Reference>,
    /// How many messages refer to each message of the topic: actions may have made several copies.
    counts: BTreeMap<u64, u32>,
    /// The size of the bodies.
    bytes: u64,
    /// Messages of the topic that nothing here refers to any more.
    released: Vec<u64>,
    /// A timer removes messages at the moment.
    pub(super) by_time: bool,
    /// A timer has removed a message of `released`, and no event says that its time has passed.
    is_time_unrecorded: bool,
}

impl References {
    fn insert(&mut self, seq: u64, reference: Reference, body_bytes: usize) {
        *self.counts.entry(reference.topic_seq).or_default() += 1;
        self.bytes += body_bytes as u64;
        self.by_seq.insert(seq, reference);
    }

    pub(super) fn remove(&mut self, seq: u64, body_bytes: usize) {
        let Some(Reference { topic_seq, .. }) = self.by_seq.remove(&seq) else {
            return;
        };
        self.bytes -= body_bytes as u64;
        let Some(count) = self.counts.get_mut(&topic_seq) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&topic_seq);
            self.released.push(topic_seq);
            self.is_time_unrecorded |= self.by_time;
        }
    }

    pub(super) fn set_changed(&mut self, seq: u64) {
        if let Some(reference) = self.by_seq.get_mut(&seq) {
            reference.is_changed = true;
        }
    }

    pub(super) fn forget_released(&mut self) {
        self.released = Vec::new();
        self.is_time_unrecorded = false;
    }

    #[cfg(test)]
    pub(super) fn equals(&self, other: &References) -> bool {
        self.by_seq == other.by_seq && self.counts == other.counts && self.bytes == other.bytes
    }
}

impl Event {
    /// Gives a reference its content, as far as the topic still has it.
    pub(crate) fn resolve(&mut self, contents: &ContentMap) {
        let Event::Referenced {
            topic_seq, message, ..
        } = self
        else {
            return;
        };
        let Some(content) = contents.get(topic_seq) else {
            return;
        };
        match message.is_changed {
            true => Arc::make_mut(&mut message.message.content).body = content.body.clone(),
            false => message.message.content = content.clone(),
        }
    }
}

impl Machine {
    /// Enqueues a message of the topic.
    pub(super) fn reference(&mut self, copy: PublishedCopy) {
        let now_ms = self.now_ms;
        let limit = self.settings.time_to_live.map(millis);
        let limit = limit.map(|ms| now_ms.saturating_add(ms));
        let mut expires_ms = copy.expires_ms.into_iter().chain(limit).min();
        let refused = self.check_new(&copy.content);
        let cause = match refused {
            Err(refusal) => Some(("Refused", refusal.to_string())),
            Ok(()) if expires_ms.is_none_or(|at| at > now_ms) => None,
            Ok(()) if self.settings.dead_letter_expired => {
                Some((EXPIRED, "its time to live was over".to_owned()))
            }
            Ok(()) => {
                self.totals.expired += 1;
                return;
            }
        };
        if cause.is_some() {
            self.totals.dead_lettered += 1;
            expires_ms = None;
        }
        let cause = cause.map(|(reason, text)| DeadLetterCause::new(reason, &text, now_ms));
        let message = Message {
            content: copy.content,
            enqueued_ms: now_ms,
            expires_ms,
            deliveries: 0,
            state: MessageState::Ready,
            dead_letter: cause.map(Arc::new),
        };
        self.commit(Event::Referenced {
            seq: self.next_seq,
            topic_seq: copy.topic_seq,
            message: ReferencedMessage {
                message,
                is_changed: copy.is_changed,
            },
        });
    }

    pub(super) fn put_reference(&mut self, seq: u64, topic_seq: u64, message: &ReferencedMessage) {
        self.totals.sent += 1;
        self.put(seq, message.message.clone());
        let reference = Reference {
            topic_seq,
            is_changed: message.is_changed,
        };
        let body_bytes = message.message.content.body.len();
        self.references.insert(seq, reference, body_bytes);
    }

    /// The event that restates a message in a snapshot.
    pub(super) fn snapshot_message(&self, seq: u64, message: &Message) -> Event {
        let message = message.clone();
        match self.references.by_seq.get(&seq) {
            None => Event::MessageSnapshot { seq, message },
            Some(reference) => Event::Referenced {
                seq,
                topic_seq: reference.topic_seq,
                message: ReferencedMessage {
                    message,
                    is_changed: reference.is_changed,
                },
            },
        }
    }

    /// The size of what a snapshot restates: all messages without the bodies that are in the topic.
    pub(crate) fn journaled_bytes(&self) -> u64 {
        self.counts.bytes - self.references.bytes
    }

    /// A message that is left after a replay, and the missing message of the topic that it refers to.
    pub(crate) fn unresolved(&self, contents: &ContentMap) -> Option<(u64, u64)> {
        let mut references = self.references.by_seq.iter();
        let missing = references.find(|(_, to)| !contents.contains_key(&to.topic_seq));
        missing.map(|(seq, to)| (*seq, to.topic_seq))
    }

    pub(super) fn refers_to(&self, topic_seq: u64) -> bool {
        self.references.counts.contains_key(&topic_seq)
    }

    pub(crate) fn has_released(&self) -> bool {
        !self.references.released.is_empty()
    }

    /// Takes the messages of the topic that nothing refers to any more.
    pub(crate) fn take_released(&mut self) -> Vec<u64> {
        self.record_time();
        std::mem::take(&mut self.references.released)
    }

    /// The messages of the topic that a subscription refers to.
    pub(crate) fn referenced(&mut self) -> BTreeSet<u64> {
        self.record_time();
        self.references.counts.keys().copied().collect()
    }

    /// Records an event without effect, if a replay would otherwise not see that the time has passed.
    fn record_time(&mut self) {
        if std::mem::take(&mut self.references.is_time_unrecorded) {
            self.commit(Event::Numbers {
                next_seq: self.next_seq,
                next_lock: self.next_lock,
            });
        }
    }
}
