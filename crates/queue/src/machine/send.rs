//! Send operations: immediate, scheduled, deduplicated, and from a feeding hub.

use std::sync::Arc;

use super::{Event, KnownId, Machine, Refusal, RemovalReason, millis};
use crate::message::{Content, DeadLetterCause, ID_BYTES_MAX, Message, MessageState, NewMessage};

/// The result of sending one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendResult {
    pub seq: u64,
    /// It is a duplicate: `seq` is the number of the first message with this id.
    pub duplicate: bool,
}

impl Machine {
    /// Enqueues all messages or none. A scheduled message keeps its number when its time comes.
    pub(crate) fn send(&mut self, messages: Vec<NewMessage>) -> Result<Vec<SendResult>, Refusal> {
        let mut contents = messages.iter().map(|new| &new.content);
        contents.try_for_each(|content| self.check_new(content))?;
        self.check_room(messages.iter().map(|new| &new.content))?;
        Ok(messages.into_iter().map(|new| self.send_one(new)).collect())
    }

    /// Enqueues events of a hub, each with its offset, up to before `next`. Events below the stored position are
    /// skipped, so a repetition is harmless. An event that the queue rejects becomes a dead letter; otherwise it
    /// would block all later ones.
    pub(crate) fn feed(
        &mut self,
        hub: &str,
        partition: u32,
        messages: Vec<(i64, NewMessage)>,
        next: i64,
    ) -> Result<usize, Refusal> {
        let from = self.feed_position(hub, partition).unwrap_or(i64::MIN);
        let new = messages.into_iter().filter(|(offset, _)| *offset >= from);
        let new: Vec<NewMessage> = new.map(|(_, message)| message).collect();
        self.check_room(new.iter().map(|new| &new.content))?;
        let taken = new.len();
        for message in new {
            self.send_or_dead_letter(message);
        }
        if next > from {
            self.commit(Event::FeedPosition {
                hub: hub.to_owned(),
                partition,
                next,
            });
        }
        Ok(taken)
    }

    /// Enqueues a message; as a dead letter, if the queue rejects it.
    pub(super) fn send_or_dead_letter(&mut self, message: NewMessage) {
        match self.check_new(&message.content) {
            Ok(()) => {
                self.send_one(message);
            }
            Err(refusal) => {
                self.enqueue_dead_letter(message.content, "Refused", &refusal.to_string());
            }
        }
    }

    /// Restarts a feed at offset 0, because its partition was recreated under the same name.
    pub(crate) fn restart_feed(&mut self, hub: &str, partition: u32) {
        let (hub, next) = (hub.to_owned(), 0);
        self.commit(Event::FeedPosition {
            hub,
            partition,
            next,
        });
    }

    /// Dead-letters an event that cannot be decoded, so that it is not lost. The position does not move: earlier
    /// events may still be in flight.
    pub(crate) fn feed_unreadable(
        &mut self,
        hub: &str,
        partition: u32,
        offset: i64,
        content: Content,
        reason: &str,
    ) {
        if self
            .feed_position(hub, partition)
            .is_none_or(|next| next <= offset)
        {
            self.enqueue_dead_letter(content, "Unreadable", reason);
        }
    }

    pub(crate) fn cancel(&mut self, seq: u64) -> Result<(), Refusal> {
        let scheduled =
            (self.messages.get(&seq)).is_some_and(|m| m.state == MessageState::Scheduled);
        if !scheduled {
            let what = "scheduled";
            return Err(Refusal::NoSuchMessage { seq, what });
        }
        let (seqs, why) = (vec![seq], RemovalReason::Cancelled);
        self.commit(Event::Removed { seqs, why });
        Ok(())
    }

    pub(super) fn check_new(&self, content: &Content) -> Result<(), Refusal> {
        let ids = [&content.id, &content.session];
        for id in ids.into_iter().flatten() {
            if id.len() > ID_BYTES_MAX {
                return Err(Refusal::IdTooLong(id.len()));
            }
        }
        if self.settings.sessions && content.session.is_none() {
            return Err(Refusal::SessionIdRequired);
        }
        let (bytes, max) = (content.size(), self.settings.message_bytes_max);
        match bytes <= max as usize {
            true => Ok(()),
            false => Err(Refusal::TooLarge { bytes, max }),
        }
    }

    pub(super) fn check_room<'a>(
        &self,
        contents: impl Iterator<Item = &'a Content>,
    ) -> Result<(), Refusal> {
        let more: u64 = contents.map(|content| content.size() as u64).sum();
        let (held, max) = (self.counts.bytes, self.settings.bytes_max);
        match held.saturating_add(more) <= max {
            true => Ok(()),
            false => Err(Refusal::Full { held, max }),
        }
    }

    fn enqueue_dead_letter(&mut self, content: Content, reason: &str, description: &str) {
        let seq = self.next_seq;
        let cause = DeadLetterCause::new(reason, description, self.now_ms);
        let message = Message {
            content: Arc::new(content),
            enqueued_ms: self.now_ms,
            expires_ms: None,
            deliveries: 0,
            state: MessageState::Ready,
            dead_letter: Some(Arc::new(cause)),
        };
        self.totals.dead_lettered += 1;
        self.commit(Event::Enqueued { seq, message });
    }

    fn send_one(&mut self, new: NewMessage) -> SendResult {
        if let Some(seq) = self.repeated(&new) {
            self.totals.duplicates += 1;
            let duplicate = true;
            return SendResult { seq, duplicate };
        }
        let seq = self.next_seq;
        let later = new.scheduled_ms.filter(|at| *at > self.now_ms);
        let enqueued_ms = later.unwrap_or(self.now_ms);
        let limit = self.settings.time_to_live.map(millis);
        let time_to_live_ms = new.time_to_live_ms.into_iter().chain(limit).min();
        let message = Message {
            content: Arc::new(new.content),
            enqueued_ms,
            expires_ms: time_to_live_ms
                .map(|time_to_live_ms| enqueued_ms.saturating_add(time_to_live_ms.max(1))),
            deliveries: 0,
            state: match later {
                Some(_) => MessageState::Scheduled,
                None => MessageState::Ready,
            },
            dead_letter: None,
        };
        self.commit(Event::Enqueued { seq, message });
        let duplicate = false;
        SendResult { seq, duplicate }
    }

    fn repeated(&self, new: &NewMessage) -> Option<u64> {
        self.settings.duplicates_within?;
        self.ids.find(new.content.id.as_deref()?)
    }

    pub(super) fn record_id(&mut self, seq: u64, message: &Message, at_ms: i64) {
        if self.settings.duplicates_within.is_some()
            && let Some(id) = message.content.id.clone()
        {
            self.ids.insert(KnownId { at_ms, seq, id });
        }
    }
}
