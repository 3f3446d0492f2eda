//! A message: the content its sender gave it, and its state in the queue.

use std::sync::Arc;

use bytes::Bytes;

/// The part of a message set by its sender. Shared by all copies of the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub body: Bytes,
    /// Identifies duplicates, see [`crate::Settings::duplicates_within`].
    pub id: Option<String>,
    pub session: Option<String>,
    pub content_type: Option<String>,
    pub properties: Properties,
}

pub type Properties = Vec<(String, String)>;

/// Maximum length of message and session ids, in bytes.
pub const ID_BYTES_MAX: usize = 128;

/// Approximate memory per message besides its texts and its body.
const OVERHEAD: usize = 64;

impl Content {
    /// The size that counts against the limits of the queue.
    pub fn size(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let properties = self.properties.iter();
        let properties: usize = properties
            .map(|(name, value)| name.len() + value.len())
            .sum();
        OVERHEAD
            + self.body.len()
            + length(&self.id)
            + length(&self.session)
            + length(&self.content_type)
            + properties
    }
}

/// A message to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMessage {
    pub content: Content,
    /// Earliest delivery time, in milliseconds since 1970.
    pub scheduled_ms: Option<i64>,
    /// Time to live. The queue's own limit applies if it is shorter.
    pub time_to_live_ms: Option<i64>,
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub content: Arc<Content>,
    /// When it was sent or is scheduled for. Determines its position in the queue.
    pub enqueued_ms: i64,
    pub expires_ms: Option<i64>,
    /// Number of deliveries so far.
    pub deliveries: u32,
    pub state: MessageState,
    /// Set if the message is a dead letter.
    pub dead_letter: Option<Arc<DeadLetterCause>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    Ready,
    /// Becomes ready at [`Message::enqueued_ms`].
    Scheduled,
    /// Deferred: received by sequence number only.
    Deferred,
    Locked(Lock),
}

/// The right of one receiver to settle a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Never used twice in a queue.
    pub number: u64,
    pub until: LockExpiry,
    /// Whether the message returns to the deferred state when the lock ends.
    pub deferred: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockExpiry {
    Time(i64),
    /// Expires with the session lock.
    Session,
    /// Never: the message is being forwarded.
    Forwarded,
}

/// Why and when a message was dead-lettered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterCause {
    pub reason: String,
    pub description: String,
    pub at_ms: i64,
}

impl DeadLetterCause {
    pub(crate) fn new(reason: &str, description: &str, at_ms: i64) -> DeadLetterCause {
        DeadLetterCause {
            reason: reason.to_owned(),
            description: description.to_owned(),
            at_ms,
        }
    }
}

/// Reason: the delivery count reached the queue's maximum.
pub(crate) const TOO_MANY_DELIVERIES: &str = "MaxDeliveryCountExceeded";
/// Reason: the time to live passed.
pub(crate) const EXPIRED: &str = "TTLExpiredException";
