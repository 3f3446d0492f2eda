//! The events of a queue. The journal is a list of them, and applying them in order restores the queue.
//!
//! Events are outcomes, not requests: numbers are assigned and duplicates are detected before. The effects of
//! time alone (a lock expires, a message becomes due or expires) have no event. Every event has a time, and
//! [`super::Machine::apply`] first fires the timers that were due until then.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{ReferencedMessage, TopicPosition};
use crate::filter::Rule;
use crate::message::{LockExpiry, Message, Properties};
use crate::settings::Settings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Configured(Settings),
    /// The message was enqueued. Its id now counts for duplicate detection.
    Enqueued {
        seq: u64,
        message: Message,
    },
    /// Delivered under locks numbered from `first_lock`.
    Delivered {
        seqs: Vec<u64>,
        first_lock: u64,
        until: LockExpiry,
    },
    /// Removed: completed, received-and-deleted, cancelled or purged.
    Removed {
        seqs: Vec<u64>,
        why: RemovalReason,
    },
    /// Abandoned.
    Released {
        seq: u64,
        properties: Option<Properties>,
    },
    Renewed {
        seqs: Vec<u64>,
        until_ms: i64,
    },
    Deferred {
        seq: u64,
        properties: Option<Properties>,
    },
    DeadLettered {
        seq: u64,
        reason: String,
        description: String,
        properties: Option<Properties>,
    },
    /// A dead letter returned to the main queue, as if just sent.
    Resubmitted {
        seq: u64,
    },
    /// A session was locked, or its lock renewed.
    SessionLocked {
        session: String,
        number: u64,
        until_ms: i64,
    },
    SessionReleased {
        session: String,
    },
    SessionState {
        session: String,
        state: Option<Bytes>,
    },
    /// The next offset to read from a feeding hub.
    FeedPosition {
        hub: String,
        partition: u32,
        next: i64,
    },
    /// Begins a snapshot: the events that follow restate everything that is left.
    Numbers {
        next_seq: u64,
        next_lock: u64,
    },
    SessionSnapshot {
        session: String,
        lock: Option<(u64, i64)>,
        state: Option<Bytes>,
    },
    IdsSnapshot(Vec<KnownId>),
    MessageSnapshot {
        seq: u64,
        message: Message,
    },
    /// Released uncounted: the delivery does not count.
    Returned {
        seqs: Vec<u64>,
    },
    /// A session was released, and its unsettled messages were released uncounted.
    SessionReturned {
        session: String,
    },
    /// A subscription has all messages of its topic up to here.
    TopicPosition(TopicPosition),
    /// A rule was added to a subscription, in the place of one with the same name.
    RuleAdded(Arc<Rule>),
    RuleRemoved {
        name: String,
    },
    /// Transactions of several queues that this one has applied: all below the floor, and these.
    TransactionsApplied {
        floor: u64,
        offsets: Vec<u64>,
    },
    /// Follows `Configured`, if something is forwarded.
    Forwarding {
        to: Option<String>,
        dead_letters_to: Option<String>,
    },
    /// Follows `Configured`, if the queue is deleted when it is idle.
    AutoDelete {
        after: Duration,
    },
    /// A subscription has a message whose body stays in the topic. Also its snapshot.
    Referenced {
        seq: u64,
        topic_seq: u64,
        message: ReferencedMessage,
    },
}

/// Why a message was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalReason {
    Completed,
    ReceivedAndDeleted,
    Cancelled,
    Purged,
    /// Every subscription of the topic has it.
    Published,
    /// Another queue has it.
    Forwarded,
}

/// A recent message id, with the time and the sequence number of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownId {
    pub at_ms: i64,
    pub seq: u64,
    pub id: String,
}
