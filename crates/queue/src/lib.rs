//! Queues over a log: competing receivers, locks that run out, settlement that lasts.
//!
//! A queue is a state machine ([`machine`]) whose events are records on a hub of the log, so its state
//! is what a replay adds up to: messages, locks, counts and sessions alike. A restart is nothing that
//! a receiver would notice.

mod codec;
mod journal;
pub mod machine;
mod message;
mod service;
mod settings;

pub use journal::{JournalError, PREFIX};
pub use machine::{
    Counts, Delivery, Mode, Most, Part, Peeked, Refusal, Sent, SessionLock, Token, Totals,
};
pub use message::{
    Content, Death, ID_BYTES_MAX, Lock, Message, NewMessage, Properties, State, Until,
};
pub use service::{Accepted, CreateError, Error, Options, Queue, Queues, Receive, Stats, feed};
pub use settings::{Settings, SettingsError};
