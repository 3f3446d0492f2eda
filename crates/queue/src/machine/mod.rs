//! A queue as a pure state machine: no clock, no I/O, no async.
//!
//! Operations (`send.rs`, `receive.rs`, `settle.rs`, `session.rs`) decide and leave events behind;
//! [`Machine::apply`] is the only thing that changes the state, so whoever applies the events of a
//! journal has the same queue, locks included. Time comes with each operation and never goes back; how
//! often it is told makes no difference, because what is due happens in the order in which it is due,
//! each at its own time.
//!
//! A journal may begin in the middle, if everything that was there is said again after that point
//! (`keep.rs`). So an event for a message that is not known is passed over: it is said again later, or
//! it is gone.

mod event;
mod ids;
mod keep;
#[cfg(test)]
mod model;
#[cfg(test)]
mod oracle;
mod receive;
mod send;
mod session;
mod settle;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use event::{Event, Gone, KnownId};
pub use keep::{Cursor, KEEP_BYTES};
pub use receive::{Delivery, Mode, Most, Peeked};
pub use send::Sent;
pub use session::SessionLock;
pub use settle::Token;

use crate::message::{
    Death, EXPIRED, Lock, Message, Properties, State, TOO_MANY_DELIVERIES, Until,
};
use crate::settings::Settings;
use ids::Ids;
use session::Session;

/// Why an operation changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the lock has run out, or the message was settled")]
    LockLost,
    #[error("the session is not locked under this token, or no longer")]
    SessionLost,
    #[error("session `{0}` is with another receiver")]
    SessionTaken(String),
    #[error("messages of this queue need a session")]
    NoSession,
    #[error("this queue is received session by session: accept one first")]
    BySession,
    #[error("this queue has no sessions")]
    WithoutSessions,
    #[error("the queue holds {held} of {max} bytes and takes no more for now")]
    Full { held: u64, max: u64 },
    #[error("a message of {bytes} bytes is larger than the {max} that the queue takes")]
    TooLarge { bytes: usize, max: u32 },
    #[error("an id of {0} bytes is too long: 128 are allowed")]
    IdTooLong(usize),
    #[error("there is no message {seq} that is {what}")]
    NotThere { seq: u64, what: &'static str },
    #[error("a dead letter cannot become one")]
    DeadAlready,
}

/// The two halves of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    DeadLetters,
}

/// How many messages are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// To be received.
    pub active: u64,
    pub scheduled: u64,
    pub deferred: u64,
    pub locked: u64,
    /// Dead letters, whatever their state.
    pub dead: u64,
    /// Of all messages.
    pub bytes: u64,
}

/// What happened since the start of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub sent: u64,
    pub duplicates: u64,
    pub received: u64,
    pub completed: u64,
    pub abandoned: u64,
    pub dead_lettered: u64,
    /// Dropped because they had outlived their time.
    pub expired: u64,
    /// Locks that ran out.
    pub locks_lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Activate(u64),
    Unlock(u64),
    Expire(u64),
    /// The lock of this number on a session.
    Session(u64),
}

#[derive(Debug, Default)]
pub struct Machine {
    settings: Settings,
    now_ms: i64,
    messages: BTreeMap<u64, Message>,
    /// Messages to be received in order, outside of sessions.
    ready: BTreeSet<(i64, u64)>,
    dead_ready: BTreeSet<(i64, u64)>,
    due: BTreeSet<(i64, Due)>,
    sessions: BTreeMap<String, Session>,
    /// Sessions that could be accepted, by their first message.
    free: BTreeMap<(i64, u64), String>,
    /// Which session a lock is on.
    session_locks: BTreeMap<u64, String>,
    ids: Ids,
    fed: BTreeMap<(String, u32), i64>,
    next_seq: u64,
    next_lock: u64,
    counts: Counts,
    totals: Totals,
    /// Made by operations and not yet taken.
    events: Vec<Event>,
}

impl Machine {
    pub fn new() -> Machine {
        Machine {
            next_seq: 1,
            next_lock: 1,
            ..Machine::default()
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Counting starts anew, as after a replay.
    pub fn reset_totals(&mut self) {
        self.totals = Totals::default();
    }

    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// When something will happen by itself.
    pub fn next_due_ms(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The position up to which a partition of a hub has been taken over.
    pub fn fed(&self, hub: &str, partition: u32) -> Option<i64> {
        self.fed.get(&(hub.to_owned(), partition)).copied()
    }

    /// What the operations since the last call have to say, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Begins a queue that was just made, with locks numbered from `first_lock` on.
    pub fn begin(&mut self, settings: Settings, first_lock: u64) {
        self.configure(settings);
        self.commit(Event::Numbers {
            next_seq: self.next_seq,
            next_lock: first_lock,
        });
    }

    pub fn configure(&mut self, settings: Settings) {
        self.commit(Event::Configured(settings));
    }

    /// Lets time pass. It never goes back: an earlier time changes nothing.
    pub fn advance(&mut self, now_ms: i64) {
        while let Some(&(at, what)) = self.due.first() {
            if at > now_ms {
                break;
            }
            self.due.pop_first();
            match what {
                Due::Activate(seq) => self.change(seq, |message| message.state = State::Ready),
                Due::Unlock(seq) => {
                    self.totals.locks_lost += 1;
                    self.release(seq, at, None);
                }
                Due::Expire(seq) => self.expire(seq, at),
                Due::Session(number) => self.session_expired(number, at),
            }
        }
        self.now_ms = self.now_ms.max(now_ms);
        if let Some(window) = self.settings.duplicates_within {
            self.ids.forget(self.now_ms.saturating_sub(millis(window)));
        }
    }

    /// Applies what an operation decided, and remembers it for the journal. Neighbours of one kind
    /// share an event.
    fn commit(&mut self, event: Event) {
        let now = self.now_ms;
        self.apply(now, &event);
        match (self.events.last_mut(), &event) {
            (
                Some(Event::Removed { seqs, why }),
                Event::Removed {
                    seqs: more,
                    why: same,
                },
            ) if why == same => seqs.extend_from_slice(more),
            _ => self.events.push(event),
        }
    }

    /// Changes the state by one event that happened at `now_ms`.
    pub fn apply(&mut self, now_ms: i64, event: &Event) {
        self.advance(now_ms);
        let now = self.now_ms;
        match event {
            Event::Configured(settings) => {
                self.settings = settings.clone();
                if settings.duplicates_within.is_none() {
                    self.ids = Ids::default();
                }
            }
            Event::Sent { seq, message } => {
                self.totals.sent += 1;
                self.note_id(*seq, message, now);
                self.put(*seq, message.clone());
            }
            Event::Kept { seq, message } => self.put(*seq, message.clone()),
            Event::Delivered {
                seqs,
                first_lock,
                until,
            } => self.delivered(seqs, *first_lock, *until),
            Event::Removed { seqs, why } => {
                for seq in seqs {
                    self.remove(*seq);
                }
                match why {
                    Gone::Completed => self.totals.completed += seqs.len() as u64,
                    Gone::ReceivedAndDeleted => self.totals.received += seqs.len() as u64,
                    Gone::Cancelled | Gone::Purged => {}
                }
            }
            Event::Released { seq, properties } => {
                self.totals.abandoned += 1;
                self.release(*seq, now, properties.as_ref());
            }
            Event::Renewed { seqs, until_ms } => {
                for seq in seqs {
                    self.change(*seq, |message| {
                        if let State::Locked(lock) = &mut message.state {
                            lock.until = Until::Time(*until_ms);
                        }
                    });
                }
            }
            Event::Deferred { seq, properties } => self.change(*seq, |message| {
                modify(message, properties.as_ref());
                message.state = State::Deferred;
            }),
            Event::Died {
                seq,
                reason,
                description,
                properties,
            } => {
                let death = Death {
                    reason: reason.clone(),
                    description: description.clone(),
                    at_ms: now,
                };
                self.die(*seq, death, properties.as_ref());
            }
            Event::Revived { seq } => {
                let lives = self.settings.time_to_live.map(millis);
                self.change(*seq, |message| {
                    message.death = None;
                    message.deliveries = 0;
                    message.enqueued_ms = now;
                    message.expires_ms = lives.map(|lives| now.saturating_add(lives));
                    message.state = State::Ready;
                });
            }
            Event::SessionLocked {
                session,
                number,
                until_ms,
            } => self.session_locked(session, *number, *until_ms),
            Event::SessionFreed { session } => self.session_freed(session, now),
            Event::SessionState { session, state } => self.session_state(session, state.clone()),
            Event::Fed {
                hub,
                partition,
                next,
            } => {
                self.fed.insert((hub.clone(), *partition), *next);
            }
            Event::Numbers {
                next_seq,
                next_lock,
            } => {
                self.next_seq = self.next_seq.max(*next_seq);
                self.next_lock = self.next_lock.max(*next_lock);
            }
            Event::KeptSession {
                session,
                lock,
                state,
            } => {
                self.session_state(session, state.clone());
                if let Some((number, until_ms)) = lock {
                    self.session_locked(session, *number, *until_ms);
                }
            }
            Event::KeptIds(known) => known
                .iter()
                .for_each(|known| self.ids.insert(known.clone())),
        }
    }

    fn put(&mut self, seq: u64, message: Message) {
        self.remove(seq);
        self.next_seq = self.next_seq.max(seq + 1);
        self.counts.bytes += message.content.size() as u64;
        self.messages.insert(seq, message);
        self.index(seq, true);
    }

    fn remove(&mut self, seq: u64) {
        self.index(seq, false);
        if let Some(message) = self.messages.remove(&seq) {
            self.counts.bytes -= message.content.size() as u64;
        }
    }

    fn delivered(&mut self, seqs: &[u64], first_lock: u64, until: Until) {
        for (number, seq) in (first_lock..).zip(seqs) {
            self.change(*seq, |message| {
                message.deliveries += 1;
                message.state = State::Locked(Lock {
                    number,
                    until,
                    deferred: message.state == State::Deferred,
                });
            });
        }
        self.next_lock = self.next_lock.max(first_lock + seqs.len() as u64);
        self.totals.received += seqs.len() as u64;
    }

    /// Ends a lock without the message having been settled.
    fn release(&mut self, seq: u64, at_ms: i64, properties: Option<&Properties>) {
        let deliveries_max = self.settings.deliveries_max;
        let Some(message) = self.messages.get(&seq) else {
            return;
        };
        let State::Locked(lock) = message.state else {
            return;
        };
        let in_main = message.death.is_none();
        let (deliveries, expires) = (message.deliveries, message.expires_ms);
        self.change(seq, |message| {
            modify(message, properties);
            message.state = match lock.deferred {
                true => State::Deferred,
                false => State::Ready,
            };
        });
        if in_main && deliveries >= deliveries_max {
            let death = Death {
                reason: TOO_MANY_DELIVERIES.into(),
                description: format!("delivered {deliveries} times without being settled"),
                at_ms,
            };
            self.die(seq, death, None);
        } else if in_main && !lock.deferred && expires.is_some_and(|expires| expires <= at_ms) {
            self.expire(seq, at_ms);
        }
    }

    fn expire(&mut self, seq: u64, at_ms: i64) {
        if self.settings.dead_letter_expired {
            let death = Death {
                reason: EXPIRED.into(),
                description: "its time to live was over".into(),
                at_ms,
            };
            self.die(seq, death, None);
        } else {
            self.totals.expired += 1;
            self.remove(seq);
        }
    }

    fn die(&mut self, seq: u64, death: Death, properties: Option<&Properties>) {
        self.totals.dead_lettered += 1;
        self.change(seq, |message| {
            modify(message, properties);
            message.death = Some(Arc::new(death));
            message.state = State::Ready;
        });
    }

    /// Changes a message and everything that is kept in order by what it says.
    fn change(&mut self, seq: u64, how: impl FnOnce(&mut Message)) {
        self.index(seq, false);
        if let Some(message) = self.messages.get_mut(&seq) {
            let before = message.content.size() as u64;
            how(message);
            self.counts.bytes = self.counts.bytes + message.content.size() as u64 - before;
        }
        self.index(seq, true);
    }

    /// Puts a message where it is looked for, or takes it away from there. Knows every index.
    fn index(&mut self, seq: u64, add: bool) {
        let Some(message) = self.messages.get(&seq) else {
            return;
        };
        let dead = message.death.as_ref().map(|death| death.at_ms);
        let place = (dead.unwrap_or(message.enqueued_ms), seq);
        let (state, expires) = (message.state, message.expires_ms);
        let session = match self.settings.sessions && dead.is_none() {
            true => message.content.session.clone(),
            false => None,
        };
        match (state, session) {
            (State::Ready, Some(session)) => self.in_session(&session, |session| {
                toggle(&mut session.ready, place, add);
            }),
            (State::Ready, None) if dead.is_some() => toggle(&mut self.dead_ready, place, add),
            (State::Ready, None) => toggle(&mut self.ready, place, add),
            (State::Locked(lock), session) => match (lock.until, session) {
                (Until::Time(at), _) => toggle(&mut self.due, (at, Due::Unlock(seq)), add),
                (Until::Session, Some(session)) => self.in_session(&session, |session| {
                    toggle(&mut session.held, seq, add);
                }),
                (Until::Session, None) => {}
            },
            (State::Scheduled, _) => toggle(&mut self.due, (place.0, Due::Activate(seq)), add),
            (State::Deferred, _) => {}
        }
        if let (State::Ready, None, Some(at)) = (state, dead, expires) {
            toggle(&mut self.due, (at, Due::Expire(seq)), add);
        }
        let count = match (dead, state) {
            (Some(_), _) => &mut self.counts.dead,
            (None, State::Ready) => &mut self.counts.active,
            (None, State::Scheduled) => &mut self.counts.scheduled,
            (None, State::Deferred) => &mut self.counts.deferred,
            (None, State::Locked(_)) => &mut self.counts.locked,
        };
        match add {
            true => *count += 1,
            false => *count -= 1,
        }
    }

    /// Whether two machines would answer every question alike.
    pub fn equals(&self, other: &Machine) -> bool {
        self.settings == other.settings
            && self.messages == other.messages
            && self.ready == other.ready
            && self.dead_ready == other.dead_ready
            && self.due == other.due
            && self.sessions == other.sessions
            && self.free == other.free
            && self.session_locks == other.session_locks
            && self.ids == other.ids
            && self.fed == other.fed
            && (self.next_seq, self.next_lock) == (other.next_seq, other.next_lock)
            && self.counts == other.counts
    }
}

fn modify(message: &mut Message, properties: Option<&Properties>) {
    if let Some(properties) = properties {
        Arc::make_mut(&mut message.content).properties = properties.clone();
    }
}

fn toggle<T: Ord>(set: &mut BTreeSet<T>, item: T, add: bool) {
    match add {
        true => set.insert(item),
        false => set.remove(&item),
    };
}

fn millis(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
