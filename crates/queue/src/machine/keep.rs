//! Saying again what is left of a queue, a piece at a time, so that the journal before can be
//! forgotten while the queue goes on working.
//!
//! The order matters, because a journal that begins at the first of these events knows only what was
//! said since: settings and numbers first, since everything after goes by them; sessions before their
//! messages, since a lock that runs out in between gives back what is held. What changes after it was
//! said again makes events of its own.

use std::ops::Bound::{Excluded, Unbounded};

use super::{Event, Machine};

/// About how much is said again at a time.
pub const KEEP_BYTES: usize = 256 << 10;

/// How far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cursor {
    Start,
    /// After this session.
    Sessions(Option<String>),
    /// After this id.
    Ids(Option<String>),
    /// From this message on, up to the last that was there at the start.
    Messages {
        next: u64,
        end: u64,
    },
}

impl Machine {
    /// The next events and where to go on; `None` when everything has been said.
    pub fn keep(&self, cursor: Cursor) -> (Vec<Event>, Option<Cursor>) {
        match cursor {
            Cursor::Start => (self.keep_basics(), Some(Cursor::Sessions(None))),
            Cursor::Sessions(after) => self.keep_sessions(after),
            Cursor::Ids(after) => self.keep_ids(after),
            Cursor::Messages { next, end } => self.keep_messages(next, end),
        }
    }

    fn keep_basics(&self) -> Vec<Event> {
        let basics = [
            Event::Configured(self.settings.clone()),
            Event::Numbers {
                next_seq: self.next_seq,
                next_lock: self.next_lock,
            },
        ];
        let fed = self.fed.iter().map(|((hub, partition), next)| Event::Fed {
            hub: hub.clone(),
            partition: *partition,
            next: *next,
        });
        basics.into_iter().chain(fed).collect()
    }

    fn keep_sessions(&self, after: Option<String>) -> (Vec<Event>, Option<Cursor>) {
        let from = after.as_deref().map_or(Unbounded, Excluded);
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (name, session) in self.sessions.range::<str, _>((from, Unbounded)) {
            if bytes > KEEP_BYTES {
                let last = events.last().map(|event| match event {
                    Event::KeptSession { session, .. } => session.clone(),
                    _ => String::new(),
                });
                return (events, Some(Cursor::Sessions(last)));
            }
            bytes += 64 + name.len() + session.state.as_ref().map_or(0, |state| state.len());
            events.push(Event::KeptSession {
                session: name.clone(),
                lock: session.lock,
                state: session.state.clone(),
            });
        }
        (events, Some(Cursor::Ids(None)))
    }

    fn keep_ids(&self, after: Option<String>) -> (Vec<Event>, Option<Cursor>) {
        let many = KEEP_BYTES / 64;
        let known: Vec<_> = self.ids.after(after.as_deref()).take(many).collect();
        let next = match known.last().filter(|_| known.len() == many) {
            Some(last) => Cursor::Ids(Some(last.id.clone())),
            None => Cursor::Messages {
                next: 0,
                end: self.next_seq,
            },
        };
        let events = match known.is_empty() {
            true => Vec::new(),
            false => vec![Event::KeptIds(known)],
        };
        (events, Some(next))
    }

    fn keep_messages(&self, next: u64, end: u64) -> (Vec<Event>, Option<Cursor>) {
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (&seq, message) in self.messages.range(next..end.max(next)) {
            if bytes > KEEP_BYTES {
                return (events, Some(Cursor::Messages { next: seq, end }));
            }
            bytes += message.content.size();
            let message = message.clone();
            events.push(Event::Kept { seq, message });
        }
        (events, None)
    }
}
