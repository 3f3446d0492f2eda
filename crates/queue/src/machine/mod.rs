//! A queue as a pure state machine: no clock, no I/O, no async.
//!
//! Operations (`send.rs`, `receive.rs`, `settle.rs`, `session.rs`) decide and record events.
//! [`Machine::apply`] is the only function that changes the state, so applying the events of a journal
//! restores the same queue, locks included. Each operation takes the time, which never goes back.
//! Timers fire in order, each at its own due time, so the result does not depend on how often time is
//! advanced.
//!
//! A journal may begin in the middle if a snapshot of the remaining state follows (`snapshot.rs`). An event
//! for an unknown message is therefore ignored: the message is in the snapshot, or it was removed.

mod event;
mod forward;
mod inspect;
#[cfg(test)]
mod model;
#[cfg(test)]
mod oracle;
mod receive;
mod recent_ids;
mod reference;
mod send;
mod session;
mod settle;
mod snapshot;
#[cfg(test)]
mod tests;
mod timers;
mod topic;
#[cfg(test)]
mod topic_tests;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use highwater_env::BudgetExhausted;

pub(crate) use event::{Event, KnownId, RemovalReason};
pub(crate) use forward::ForwardedMessage;
pub use inspect::{DeadLetterSummary, SessionInfo};
pub use receive::{Delivery, PeekedMessage, ReceiveLimit, ReceiveMode};
pub(crate) use reference::{ContentMap, ReferencedMessage};
pub use send::SendResult;
pub use session::SessionLock;
pub use settle::LockToken;
pub(crate) use snapshot::SnapshotCursor;
pub(crate) use topic::{PublishedCopy, PublishedMessage, TakeResult, TopicPosition};
pub(crate) use transaction::TransactionStep;

use crate::filter::Rule;
use crate::message::{
    DeadLetterCause, EXPIRED, Lock, LockExpiry, Message, MessageState, Properties,
    TOO_MANY_DELIVERIES,
};
use crate::settings::Settings;
use recent_ids::RecentIds;
use reference::References;
use session::Session;
use timers::Timer;
use transaction::AppliedDecisions;

/// Why an operation was rejected. The state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the lock has expired, or the message was settled")]
    LockLost,
    #[error("the session lock expired or belongs to another receiver")]
    SessionLost,
    #[error("session `{0}` is locked by another receiver")]
    SessionLocked(String),
    #[error("messages of this queue need a session id")]
    SessionIdRequired,
    #[error("this queue is received by session: accept one first")]
    SessionRequired,
    #[error("this queue has no sessions")]
    SessionsDisabled,
    #[error("the queue is full: it holds {held} of {max} bytes")]
    Full { held: u64, max: u64 },
    #[error("a message of {bytes} bytes exceeds the queue's limit of {max}")]
    TooLarge { bytes: usize, max: u32 },
    #[error("an id of {0} bytes is too long: 128 are allowed")]
    IdTooLong(usize),
    #[error("there is no message {seq} that is {what}")]
    NoSuchMessage { seq: u64, what: &'static str },
    #[error("the message is already a dead letter")]
    AlreadyDeadLettered,
    /// Retry later.
    #[error("there is no memory for the messages at the moment: {0}")]
    NoMemory(BudgetExhausted),
    #[error("all messages are forwarded to `{0}`: receive them there")]
    Forwards(String),
    #[error("rule `{0}` exists already")]
    RuleExists(String),
    #[error("there is no rule `{0}`")]
    NoSuchRule(String),
    #[error("a subscription has at most {0} rules")]
    TooManyRules(usize),
    #[error("a subscription has at most {0} rules with an action")]
    TooManyActions(usize),
}

/// The main queue or its dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubQueue {
    Main,
    DeadLetters,
}

/// Current number of messages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready to be received.
    pub active: u64,
    pub scheduled: u64,
    pub deferred: u64,
    pub locked: u64,
    /// Dead letters in any state.
    pub dead: u64,
    /// Size of all messages.
    pub bytes: u64,
}

/// Counters since the start of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub sent: u64,
    pub duplicates: u64,
    pub received: u64,
    pub completed: u64,
    pub abandoned: u64,
    pub dead_lettered: u64,
    /// Dropped because their time to live passed.
    pub expired: u64,
    /// Locks that expired.
    pub locks_lost: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Machine {
    settings: Settings,
    now_ms: i64,
    messages: BTreeMap<u64, Message>,
    /// Ready messages in order, outside of sessions.
    ready: BTreeSet<(i64, u64)>,
    dead_ready: BTreeSet<(i64, u64)>,
    due: BTreeSet<(i64, Timer)>,
    sessions: BTreeMap<String, Session>,
    /// Sessions that can be accepted, by their first message.
    free: BTreeMap<(i64, u64), String>,
    /// The session of each session lock.
    session_locks: BTreeMap<u64, String>,
    ids: RecentIds,
    feed_positions: BTreeMap<(String, u32), i64>,
    /// The rules of a subscription.
    rules: BTreeMap<String, Arc<Rule>>,
    /// The position of a subscription in its topic; `None` in any other queue.
    topic_position: Option<TopicPosition>,
    /// The messages of a subscription whose bodies are in the topic.
    references: References,
    /// Locks of messages that are being forwarded, with their messages.
    forwarding: BTreeSet<(u64, u64)>,
    applied_decisions: AppliedDecisions,
    /// Messages that a transaction is about to settle. Not durable.
    reserved: BTreeSet<u64>,
    /// A topic: its subscriptions decide when a message has expired.
    is_topic: bool,
    next_seq: u64,
    next_lock: u64,
    counts: Counts,
    totals: Totals,
    /// Recorded by operations and not yet taken.
    events: Vec<Event>,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine {
            next_seq: 1,
            next_lock: 1,
            ..Machine::default()
        }
    }

    /// A queue that keeps messages for subscriptions.
    pub(crate) fn new_topic() -> Machine {
        Machine {
            is_topic: true,
            ..Machine::new()
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Resets the counters, as after a replay.
    pub(crate) fn reset_totals(&mut self) {
        self.totals = Totals::default();
        self.references.forget_released();
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The next offset to read from a partition that feeds this queue.
    pub(crate) fn feed_position(&self, hub: &str, partition: u32) -> Option<i64> {
        self.feed_positions
            .get(&(hub.to_owned(), partition))
            .copied()
    }

    /// Takes the events recorded since the last call, in order.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Initialises a new queue. Lock numbers start at `first_lock`.
    pub(crate) fn begin(&mut self, settings: Settings, first_lock: u64) {
        self.configure(settings);
        self.commit(Event::Numbers {
            next_seq: self.next_seq,
            next_lock: first_lock,
        });
    }

    pub(crate) fn configure(&mut self, settings: Settings) {
        let further: Vec<Event> = further_settings(&settings).collect();
        self.commit(Event::Configured(settings));
        further.into_iter().for_each(|event| self.commit(event));
    }

    /// Applies an event of an operation and records it for the journal. Consecutive removals for the same reason
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

    /// Applies one event that happened at `now_ms`.
    pub(crate) fn apply(&mut self, now_ms: i64, event: &Event) {
        self.advance(now_ms);
        let now = self.now_ms;
        match event {
            Event::Configured(settings) => self.set_settings(settings),
            Event::TransactionsApplied { floor, offsets } => {
                self.applied_decisions.add(*floor, offsets);
            }
            Event::Forwarding {
                to,
                dead_letters_to,
            } => {
                self.settings.forward_to = to.clone();
                self.settings.forward_dead_letters_to = dead_letters_to.clone();
            }
            Event::AutoDelete { after } => self.settings.auto_delete_on_idle = Some(*after),
            Event::Enqueued { seq, message } => {
                self.totals.sent += 1;
                self.record_id(*seq, message, now);
                self.put(*seq, message.clone());
            }
            Event::MessageSnapshot { seq, message } => self.put(*seq, message.clone()),
            Event::Delivered {
                seqs,
                first_lock,
                until,
            } => self.lock_messages(seqs, *first_lock, *until),
            Event::Removed { seqs, why } => self.remove_all(seqs, *why),
            Event::Released { seq, properties } => {
                self.totals.abandoned += 1;
                self.release(*seq, now, properties.as_ref());
            }
            Event::Renewed { seqs, until_ms } => self.extend_locks(seqs, *until_ms),
            Event::Deferred { seq, properties } => {
                self.modify(*seq, properties.as_ref());
                self.change(*seq, |message| message.state = MessageState::Deferred);
            }
            Event::DeadLettered {
                seq,
                reason,
                description,
                properties,
            } => {
                let cause = DeadLetterCause::new(reason, description, now);
                self.move_to_dead_letters(*seq, cause, properties.as_ref());
            }
            Event::Resubmitted { seq } => self.move_to_main(*seq),
            Event::SessionLocked {
                session,
                number,
                until_ms,
            } => self.session_locked(session, *number, *until_ms),
            Event::SessionReleased { session } => self.session_freed(session, now),
            Event::SessionReturned { session } => self.session_returned(session, now),
            Event::Returned { seqs } => {
                for seq in seqs {
                    self.take_back(*seq, now);
                }
            }
            Event::SessionState { session, state } => self.session_state(session, state.clone()),
            Event::FeedPosition {
                hub,
                partition,
                next,
            } => {
                self.feed_positions.insert((hub.clone(), *partition), *next);
            }
            Event::Numbers {
                next_seq,
                next_lock,
            } => {
                self.next_seq = self.next_seq.max(*next_seq);
                self.next_lock = self.next_lock.max(*next_lock);
            }
            Event::SessionSnapshot {
                session,
                lock,
                state,
            } => self.restore_session(session, *lock, state.clone()),
            Event::IdsSnapshot(known) => self.ids.extend(known),
            Event::TopicPosition(position) => self.topic_position = Some(*position),
            Event::RuleAdded(rule) => {
                self.rules.insert(rule.name.clone(), rule.clone());
            }
            Event::RuleRemoved { name } => {
                self.rules.remove(name);
            }
            Event::Referenced {
                seq,
                topic_seq,
                message,
            } => self.put_reference(*seq, *topic_seq, message),
        }
    }

    fn set_settings(&mut self, settings: &Settings) {
        self.settings = settings.clone();
        if settings.duplicates_within.is_none() {
            self.ids = RecentIds::default();
        }
    }

    fn remove_all(&mut self, seqs: &[u64], why: RemovalReason) {
        for seq in seqs {
            self.remove(*seq);
        }
        match why {
            RemovalReason::Completed => self.totals.completed += seqs.len() as u64,
            RemovalReason::ReceivedAndDeleted => self.totals.received += seqs.len() as u64,
            RemovalReason::Cancelled
            | RemovalReason::Purged
            | RemovalReason::Published
            | RemovalReason::Forwarded => {}
        }
    }

    fn extend_locks(&mut self, seqs: &[u64], until_ms: i64) {
        for seq in seqs {
            self.change(*seq, |message| {
                if let MessageState::Locked(lock) = &mut message.state {
                    lock.until = LockExpiry::Time(until_ms);
                }
            });
        }
    }

    /// Resubmits a dead letter as if it had just been sent.
    fn move_to_main(&mut self, seq: u64) {
        let now = self.now_ms;
        let time_to_live_ms = self.settings.time_to_live.map(millis);
        self.change(seq, |message| {
            message.dead_letter = None;
            message.deliveries = 0;
            message.enqueued_ms = now;
            message.expires_ms = time_to_live_ms.map(|ms| now.saturating_add(ms));
            message.state = MessageState::Ready;
        });
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
            self.references.remove(seq, message.content.body.len());
        }
    }

    fn lock_messages(&mut self, seqs: &[u64], first_lock: u64, until: LockExpiry) {
        for (number, seq) in (first_lock..).zip(seqs) {
            self.change(*seq, |message| {
                message.deliveries += 1;
                message.state = MessageState::Locked(Lock {
                    number,
                    until,
                    deferred: message.state == MessageState::Deferred,
                });
            });
        }
        self.next_lock = self.next_lock.max(first_lock + seqs.len() as u64);
        self.totals.received += seqs.len() as u64;
    }

    /// Ends a lock without settling the message.
    fn release(&mut self, seq: u64, at_ms: i64, properties: Option<&Properties>) {
        let deliveries_max = self.settings.deliveries_max;
        let Some(message) = self.messages.get(&seq) else {
            return;
        };
        let MessageState::Locked(lock) = message.state else {
            return;
        };
        let in_main = message.dead_letter.is_none();
        let (deliveries, expires) = (message.deliveries, message.expires_ms);
        self.modify(seq, properties);
        self.change(seq, |message| {
            message.state = match lock.deferred {
                true => MessageState::Deferred,
                false => MessageState::Ready,
            };
        });
        if in_main && deliveries >= deliveries_max {
            let description = format!("delivered {deliveries} times without being settled");
            let cause = DeadLetterCause::new(TOO_MANY_DELIVERIES, &description, at_ms);
            self.move_to_dead_letters(seq, cause, None);
        } else if in_main && !lock.deferred && expires.is_some_and(|expires| expires <= at_ms) {
            self.expire(seq, at_ms);
        }
    }

    /// Ends a lock as if the message had not been delivered.
    fn take_back(&mut self, seq: u64, at_ms: i64) {
        self.change(seq, |message| {
            if let MessageState::Locked(_) = message.state {
                message.deliveries = message.deliveries.saturating_sub(1);
            }
        });
        self.release(seq, at_ms, None);
    }

    fn move_to_dead_letters(
        &mut self,
        seq: u64,
        dead_letter: DeadLetterCause,
        properties: Option<&Properties>,
    ) {
        self.totals.dead_lettered += 1;
        self.modify(seq, properties);
        self.change(seq, |message| {
            message.dead_letter = Some(Arc::new(dead_letter));
            message.state = MessageState::Ready;
        });
    }

    /// Gives a message other properties.
    fn modify(&mut self, seq: u64, properties: Option<&Properties>) {
        let Some(properties) = properties else {
            return;
        };
        self.references.set_changed(seq);
        self.change(seq, |message| {
            Arc::make_mut(&mut message.content).properties = properties.clone();
        });
    }

    /// Changes a message and updates its entries in all indexes.
    fn change(&mut self, seq: u64, how: impl FnOnce(&mut Message)) {
        self.index(seq, false);
        if let Some(message) = self.messages.get_mut(&seq) {
            let before = message.content.size() as u64;
            how(message);
            self.counts.bytes = self.counts.bytes + message.content.size() as u64 - before;
        }
        self.index(seq, true);
    }

    /// Adds a message to every index it belongs to, or removes it from them.
    fn index(&mut self, seq: u64, add: bool) {
        let Some(message) = self.messages.get(&seq) else {
            return;
        };
        let dead = message.dead_letter.as_ref().map(|cause| cause.at_ms);
        let position = (dead.unwrap_or(message.enqueued_ms), seq);
        let (state, expires) = (message.state, message.expires_ms);
        let session = match self.settings.sessions && dead.is_none() {
            true => message.content.session.clone(),
            false => None,
        };
        match (state, session) {
            (MessageState::Ready, Some(session)) => self.in_session(&session, |session| {
                toggle(&mut session.ready, position, add);
            }),
            (MessageState::Ready, None) if dead.is_some() => {
                toggle(&mut self.dead_ready, position, add)
            }
            (MessageState::Ready, None) => toggle(&mut self.ready, position, add),
            (MessageState::Locked(lock), session) => match (lock.until, session) {
                (LockExpiry::Time(at), _) => {
                    toggle(&mut self.due, (at, Timer::LockExpiry(seq)), add)
                }
                (LockExpiry::Session, Some(session)) => self.in_session(&session, |session| {
                    toggle(&mut session.held, seq, add);
                }),
                (LockExpiry::Session, None) => {}
                (LockExpiry::Forwarded, _) => {
                    toggle(&mut self.forwarding, (lock.number, seq), add);
                }
            },
            (MessageState::Scheduled, _) => {
                toggle(&mut self.due, (position.0, Timer::Activation(seq)), add)
            }
            (MessageState::Deferred, _) => {}
        }
        if let (MessageState::Ready, None, Some(at), false) = (state, dead, expires, self.is_topic)
        {
            toggle(&mut self.due, (at, Timer::MessageExpiry(seq)), add);
        }
        let count = match (dead, state) {
            (Some(_), _) => &mut self.counts.dead,
            (None, MessageState::Ready) => &mut self.counts.active,
            (None, MessageState::Scheduled) => &mut self.counts.scheduled,
            (None, MessageState::Deferred) => &mut self.counts.deferred,
            (None, MessageState::Locked(_)) => &mut self.counts.locked,
        };
        match add {
            true => *count += 1,
            false => *count -= 1,
        }
    }

    /// Whether two machines have the same state, counters since the start aside.
    #[cfg(test)]
    pub(crate) fn equals(&self, other: &Machine) -> bool {
        self.settings == other.settings
            && self.messages == other.messages
            && self.ready == other.ready
            && self.dead_ready == other.dead_ready
            && self.due == other.due
            && self.sessions == other.sessions
            && self.free == other.free
            && self.session_locks == other.session_locks
            && self.ids == other.ids
            && self.feed_positions == other.feed_positions
            && self.rules == other.rules
            && self.topic_position == other.topic_position
            && self.forwarding == other.forwarding
            && self.applied_decisions == other.applied_decisions
            && self.references.equals(&other.references)
            && (self.next_seq, self.next_lock) == (other.next_seq, other.next_lock)
            && self.counts == other.counts
    }
}

/// The events of settings that are not part of `Configured`.
fn further_settings(settings: &Settings) -> impl Iterator<Item = Event> {
    let auto_delete = settings.auto_delete_on_idle;
    let auto_delete = auto_delete.map(|after| Event::AutoDelete { after });
    forward_settings(settings).into_iter().chain(auto_delete)
}

/// The event of the forwarding settings, if any.
fn forward_settings(settings: &Settings) -> Option<Event> {
    let to = settings.forward_to.clone();
    let dead_letters_to = settings.forward_dead_letters_to.clone();
    let event = Event::Forwarding {
        to: to.clone(),
        dead_letters_to: dead_letters_to.clone(),
    };
    to.or(dead_letters_to).map(|_| event)
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
