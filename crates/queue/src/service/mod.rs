//! The service: one task per queue, which owns the machine and the journal.
//!
//! Callers send closures. The task runs all closures that are waiting, appends their events as one batch, and
//! replies when that batch is durable; meanwhile it prepares the next batch. Every reply waits for all earlier
//! events, so no caller learns anything that a crash could undo. When the log rejects a batch, the state in
//! memory is invalid: the task fails all callers with the reason and replays the journal.

mod actor;
mod disposition;
mod error;
mod exchange;
mod feed;
mod forward_requests;
mod forwarding;
mod handle;
mod queues;
mod topic_requests;
mod topics;
mod transactions;
mod usage;
mod waiting;

pub use actor::Options;
pub use disposition::{Disposition, PropertyEdit};
pub use error::{CreateError, Error, ForwardError};
pub use exchange::{DeferredRequest, ReceiveRequest, SettleAndReceiveResult, SettleBatch};
pub use feed::feed;
pub use forwarding::Forwarding;
pub use handle::{AcceptedSession, Queue, QueueStats};
pub use queues::{NewQueue, Queues};
pub use topics::{
    NewSubscription, NewTopic, PropertyMap, Subscription, Topic, TopicError, TopicLimits, Topics,
};
pub use transactions::{TransactionOperation, TransactionPart, Transactions};
pub use waiting::WaitKey;
