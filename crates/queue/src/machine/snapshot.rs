//! Snapshots for journal compaction: restates the queue piece by piece, so that the journal before can be
//! trimmed while the queue keeps working.
//!
//! The order matters, because a journal that begins at the first of these events has only the following ones:
//! settings and numbers first, since later events depend on them; sessions before their messages, since a
//! session lock that expires in between releases its messages. Changes after a restatement are events of their
//! own.

use std::ops::Bound::{Excluded, Unbounded};

use super::{Event, Machine, further_settings};

/// Approximate size of one piece.
pub(crate) const SNAPSHOT_BYTES: usize = 256 << 10;

/// Progress of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotCursor {
    Start,
    /// After this session.
    Sessions(Option<String>),
    /// After this id.
    RecentIds(Option<String>),
    /// From this message, up to the last one at the start of the snapshot.
    Messages {
        next: u64,
        end: u64,
    },
}

impl Machine {
    /// The next events, and the cursor to continue at. `None` at the end.
    pub(crate) fn snapshot(&self, cursor: SnapshotCursor) -> (Vec<Event>, Option<SnapshotCursor>) {
        match cursor {
            SnapshotCursor::Start => (
                self.snapshot_settings(),
                Some(SnapshotCursor::Sessions(None)),
            ),
            SnapshotCursor::Sessions(after) => self.snapshot_sessions(after),
            SnapshotCursor::RecentIds(after) => self.snapshot_ids(after),
            SnapshotCursor::Messages { next, end } => self.snapshot_messages(next, end),
        }
    }

    fn snapshot_settings(&self) -> Vec<Event> {
        let basics = [
            Event::Configured(self.settings.clone()),
            Event::Numbers {
                next_seq: self.next_seq,
                next_lock: self.next_lock,
            },
        ];
        let basics = basics.into_iter().chain(further_settings(&self.settings));
        let fed = self
            .feed_positions
            .iter()
            .map(|((hub, partition), next)| Event::FeedPosition {
                hub: hub.clone(),
                partition: *partition,
                next: *next,
            });
        let basics = basics.chain(fed).chain(self.applied_decisions.snapshot());
        basics.chain(self.snapshot_rules()).collect()
    }

    fn snapshot_sessions(&self, after: Option<String>) -> (Vec<Event>, Option<SnapshotCursor>) {
        let from = after.as_deref().map_or(Unbounded, Excluded);
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (name, session) in self.sessions.range::<str, _>((from, Unbounded)) {
            if bytes > SNAPSHOT_BYTES {
                let last = events.last().map(|event| match event {
                    Event::SessionSnapshot { session, .. } => session.clone(),
                    _ => String::new(),
                });
                return (events, Some(SnapshotCursor::Sessions(last)));
            }
            bytes += 64 + name.len() + session.state.as_ref().map_or(0, |state| state.len());
            events.push(Event::SessionSnapshot {
                session: name.clone(),
                lock: session.lock,
                state: session.state.clone(),
            });
        }
        (events, Some(SnapshotCursor::RecentIds(None)))
    }

    fn snapshot_ids(&self, after: Option<String>) -> (Vec<Event>, Option<SnapshotCursor>) {
        let many = SNAPSHOT_BYTES / 64;
        let known: Vec<_> = self.ids.after(after.as_deref()).take(many).collect();
        let next = match known.last().filter(|_| known.len() == many) {
            Some(last) => SnapshotCursor::RecentIds(Some(last.id.clone())),
            None => SnapshotCursor::Messages {
                next: 0,
                end: self.next_seq,
            },
        };
        let events = match known.is_empty() {
            true => Vec::new(),
            false => vec![Event::IdsSnapshot(known)],
        };
        (events, Some(next))
    }

    fn snapshot_messages(&self, next: u64, end: u64) -> (Vec<Event>, Option<SnapshotCursor>) {
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (&seq, message) in self.messages.range(next..end.max(next)) {
            if bytes > SNAPSHOT_BYTES {
                return (events, Some(SnapshotCursor::Messages { next: seq, end }));
            }
            let event = self.snapshot_message(seq, message);
            bytes += match event {
                Event::Referenced { .. } => message.content.size() - message.content.body.len(),
                _ => message.content.size(),
            };
            events.push(event);
        }
        (events, None)
    }
}
