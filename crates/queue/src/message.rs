//! A message: what its sender said, and what has become of it since.

use std::sync::Arc;

use bytes::Bytes;

/// What a sender says. Shared by everybody who looks at the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub body: Bytes,
    /// Tells repeats apart, see [`crate::Settings::duplicates_within`].
    pub id: Option<String>,
    pub session: Option<String>,
    pub content_type: Option<String>,
    pub properties: Properties,
}

pub type Properties = Vec<(String, String)>;

/// How long ids of messages and sessions may be, in bytes.
pub const ID_BYTES_MAX: usize = 128;

/// About what a message takes besides its texts and its body.
const OVERHEAD: usize = 64;

impl Content {
    /// What the message counts for against the limits of its queue.
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
    /// Not to be received before, in milliseconds since 1970.
    pub scheduled_ms: Option<i64>,
    /// How long it is worth delivering; the queue's own limit counts if it is shorter.
    pub time_to_live_ms: Option<i64>,
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub content: Arc<Content>,
    /// When it was sent, or is to be received first. Decides its place among the others.
    pub enqueued_ms: i64,
    pub expires_ms: Option<i64>,
    /// How often it was handed out.
    pub deliveries: u32,
    pub state: State,
    /// Why it is a dead letter, if it is.
    pub death: Option<Arc<Death>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    /// Will be ready at [`Message::enqueued_ms`].
    Scheduled,
    /// Set aside; received by number only.
    Deferred,
    Locked(Lock),
}

/// The right of one receiver to settle a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Never used twice in a queue.
    pub number: u64,
    pub until: Until,
    /// Where the message goes back to.
    pub deferred: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Time(i64),
    /// As long as the session is locked.
    Session,
}

/// Why a message was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    pub reason: String,
    pub description: String,
    pub at_ms: i64,
}

/// Delivered as often as the queue allows.
pub const TOO_MANY_DELIVERIES: &str = "MaxDeliveryCountExceeded";
/// Outlived its time.
pub const EXPIRED: &str = "TTLExpiredException";
