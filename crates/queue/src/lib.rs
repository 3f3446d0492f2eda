//! Queues over a log: competing receivers, message locks that expire, and durable settlement.
//!
//! A queue is a state machine (`machine`) whose events are records on a hub. Replaying them restores the
//! whole state: messages, locks, delivery counts and sessions. Receivers do not notice a restart.
//!
//! ```
//! use std::sync::Arc;
//!
//! use highwater_env::{RealClock, random::Random};
//! use highwater_log::MemoryLog;
//! use highwater_queue::{Content, NewMessage, Options, Queues, ReceiveRequest, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (log, clock) = (Arc::new(MemoryLog::new(|| 0)), Arc::new(RealClock::new()));
//! let (queues, _) = Queues::open(log, clock, Random::from_os(), Options::default()).await;
//! let orders = queues.create("orders", Settings::default()).await?;
//!
//! let content = Content { body: "an order".into(), ..Content::default() };
//! let message = NewMessage { content, ..NewMessage::default() };
//! orders.send(vec![message]).await?; // from here on it is not lost
//!
//! let received = orders.receive(ReceiveRequest::default()).await?;
//! assert_eq!(received[0].message.content.body, "an order");
//! let (token, _until) = received[0].lock.expect("it was received under a lock");
//! assert_eq!(orders.complete(vec![token]).await?, [Ok(())]); // and from here on it is gone
//! assert!(orders.complete(vec![token]).await?[0].is_err(), "once");
//! queues.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! This crate knows nothing of HTTP, files, or the purpose of a message.

mod codec;
mod filter;
mod journal;
mod machine;
mod message;
mod service;
mod settings;

pub use filter::{
    CorrelationFilter, DEFAULT_RULE, Filter, FilterError, MessageProperties, Property,
    PropertyChange, Rule, RuleError, SqlAction, SqlFilter, SystemProperty, Value,
};
pub use journal::JournalError;
pub use machine::{
    Counts, DeadLetterSummary, Delivery, LockToken, PeekedMessage, ReceiveLimit, ReceiveMode,
    Refusal, SendResult, SessionInfo, SessionLock, SubQueue, Totals,
};
pub use message::{
    Content, DeadLetterCause, ID_BYTES_MAX, Lock, LockExpiry, Message, MessageState, NewMessage,
    Properties,
};
pub use service::{
    AcceptedSession, CreateError, DeferredRequest, Disposition, Error, ForwardError, Forwarding,
    NewQueue, NewSubscription, NewTopic, Options, PropertyEdit, PropertyMap, Queue, QueueStats,
    Queues, ReceiveRequest, SettleAndReceiveResult, SettleBatch, Subscription, Topic, TopicError,
    TopicLimits, Topics, TransactionOperation, TransactionPart, Transactions, WaitKey, feed,
};
pub use settings::{Settings, SettingsError};
