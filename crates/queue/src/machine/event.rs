//! What can happen to a queue. The journal is a list of these, and the state of a queue is what they
//! add up to.
//!
//! Events are outcomes, not wishes: numbers are given and repeats are found out before. What follows
//! from time alone (a lock runs out, a message becomes due or too old) is in no event: every event
//! has a time, and [`super::Machine::apply`] first does what was due until then.

use bytes::Bytes;

use crate::message::{Message, Properties, Until};
use crate::settings::Settings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Configured(Settings),
    /// Taken in; its id counts against repeats from now on.
    Sent {
        seq: u64,
        message: Message,
    },
    /// Handed out under locks numbered from `first_lock`.
    Delivered {
        seqs: Vec<u64>,
        first_lock: u64,
        until: Until,
    },
    /// Gone for good: completed, received for good, cancelled or purged.
    Removed {
        seqs: Vec<u64>,
        why: Gone,
    },
    /// Given back.
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
    Died {
        seq: u64,
        reason: String,
        description: String,
        properties: Option<Properties>,
    },
    /// A dead letter is a message again, as if just sent.
    Revived {
        seq: u64,
    },
    /// Locked anew, or for longer.
    SessionLocked {
        session: String,
        number: u64,
        until_ms: i64,
    },
    SessionFreed {
        session: String,
    },
    SessionState {
        session: String,
        state: Option<Bytes>,
    },
    /// So far a hub has been taken over.
    Fed {
        hub: String,
        partition: u32,
        next: i64,
    },
    /// What follows says again everything that is left of what came before.
    Numbers {
        next_seq: u64,
        next_lock: u64,
    },
    KeptSession {
        session: String,
        lock: Option<(u64, i64)>,
        state: Option<Bytes>,
    },
    KeptIds(Vec<KnownId>),
    Kept {
        seq: u64,
        message: Message,
    },
}

/// How a message left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    Completed,
    ReceivedAndDeleted,
    Cancelled,
    Purged,
}

/// An id that a message had, when, and which one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownId {
    pub at_ms: i64,
    pub seq: u64,
    pub id: String,
}
