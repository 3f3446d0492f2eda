//! Messages in: now, later, and never twice.

use std::sync::Arc;

use super::{Event, Gone, KnownId, Machine, Refusal, millis};
use crate::message::{Content, Death, ID_BYTES_MAX, Message, NewMessage, State};

/// What became of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub seq: u64,
    /// A message with this id was there before: `seq` is the number of that one.
    pub duplicate: bool,
}

impl Machine {
    /// All of them or none. A scheduled message keeps its number when its time comes.
    pub fn send(&mut self, messages: Vec<NewMessage>) -> Result<Vec<Sent>, Refusal> {
        messages.iter().try_for_each(|new| self.check_new(new))?;
        self.check_room(&messages)?;
        Ok(messages.into_iter().map(|new| self.send_one(new)).collect())
    }

    /// Takes over events of a hub, each with its offset, up to before `next`. Those that were taken
    /// over before are passed over, so a repeat does no harm. One that the queue does not take becomes
    /// a dead letter, or it would hold up all that follow.
    pub fn feed(
        &mut self,
        hub: &str,
        partition: u32,
        messages: Vec<(i64, NewMessage)>,
        next: i64,
    ) -> Result<usize, Refusal> {
        let from = self.fed(hub, partition).unwrap_or(i64::MIN);
        let new = messages.into_iter().filter(|(offset, _)| *offset >= from);
        let new: Vec<NewMessage> = new.map(|(_, message)| message).collect();
        self.check_room(&new)?;
        let taken = new.len();
        for message in new {
            match self.check_new(&message) {
                Ok(()) => {
                    self.send_one(message);
                }
                Err(refusal) => self.bury(message.content, "Refused", refusal.to_string()),
            }
        }
        if next > from {
            self.commit(Event::Fed {
                hub: hub.to_owned(),
                partition,
                next,
            });
        }
        Ok(taken)
    }

    /// A partition was made again under the same name, and is taken over from its beginning.
    pub fn feed_anew(&mut self, hub: &str, partition: u32) {
        let (hub, next) = (hub.to_owned(), 0);
        self.commit(Event::Fed {
            hub,
            partition,
            next,
        });
    }

    /// An event that cannot even be read becomes a dead letter, so that it is not lost. The position
    /// stays: events before it may still be on their way.
    pub fn feed_dead(&mut self, hub: &str, partition: u32, event: (i64, Content), reason: &str) {
        let (offset, content) = event;
        if self.fed(hub, partition).is_none_or(|next| next <= offset) {
            self.bury(content, "Unreadable", reason.to_owned());
        }
    }

    pub fn cancel(&mut self, seq: u64) -> Result<(), Refusal> {
        let scheduled = (self.messages.get(&seq)).is_some_and(|m| m.state == State::Scheduled);
        if !scheduled {
            let what = "scheduled";
            return Err(Refusal::NotThere { seq, what });
        }
        let (seqs, why) = (vec![seq], Gone::Cancelled);
        self.commit(Event::Removed { seqs, why });
        Ok(())
    }

    fn check_new(&self, new: &NewMessage) -> Result<(), Refusal> {
        let content = &new.content;
        let ids = [&content.id, &content.session];
        for id in ids.into_iter().flatten() {
            if id.len() > ID_BYTES_MAX {
                return Err(Refusal::IdTooLong(id.len()));
            }
        }
        if self.settings.sessions && content.session.is_none() {
            return Err(Refusal::NoSession);
        }
        let (bytes, max) = (content.size(), self.settings.message_bytes_max);
        match bytes <= max as usize {
            true => Ok(()),
            false => Err(Refusal::TooLarge { bytes, max }),
        }
    }

    fn check_room(&self, messages: &[NewMessage]) -> Result<(), Refusal> {
        let more: u64 = messages.iter().map(|new| new.content.size() as u64).sum();
        let (held, max) = (self.counts.bytes, self.settings.bytes_max);
        match held.saturating_add(more) <= max {
            true => Ok(()),
            false => Err(Refusal::Full { held, max }),
        }
    }

    fn bury(&mut self, content: Content, reason: &str, description: String) {
        let seq = self.next_seq;
        let death = Death {
            reason: reason.to_owned(),
            description,
            at_ms: self.now_ms,
        };
        let message = Message {
            content: Arc::new(content),
            enqueued_ms: self.now_ms,
            expires_ms: None,
            deliveries: 0,
            state: State::Ready,
            death: Some(Arc::new(death)),
        };
        self.totals.dead_lettered += 1;
        self.commit(Event::Sent { seq, message });
    }

    fn send_one(&mut self, new: NewMessage) -> Sent {
        if let Some(seq) = self.repeated(&new) {
            self.totals.duplicates += 1;
            let duplicate = true;
            return Sent { seq, duplicate };
        }
        let seq = self.next_seq;
        let later = new.scheduled_ms.filter(|at| *at > self.now_ms);
        let enqueued_ms = later.unwrap_or(self.now_ms);
        let limit = self.settings.time_to_live.map(millis);
        let lives = new.time_to_live_ms.into_iter().chain(limit).min();
        let message = Message {
            content: Arc::new(new.content),
            enqueued_ms,
            expires_ms: lives.map(|lives| enqueued_ms.saturating_add(lives.max(1))),
            deliveries: 0,
            state: match later {
                Some(_) => State::Scheduled,
                None => State::Ready,
            },
            death: None,
        };
        self.commit(Event::Sent { seq, message });
        let duplicate = false;
        Sent { seq, duplicate }
    }

    fn repeated(&self, new: &NewMessage) -> Option<u64> {
        self.settings.duplicates_within?;
        self.ids.find(new.content.id.as_deref()?)
    }

    pub(super) fn note_id(&mut self, seq: u64, message: &Message, at_ms: i64) {
        if self.settings.duplicates_within.is_some()
            && let Some(id) = message.content.id.clone()
        {
            self.ids.insert(KnownId { at_ms, seq, id });
        }
    }
}
