//! The machine at work: one task a queue, which owns the machine and the journal.
//!
//! Callers send functions. The task runs whatever has gathered, appends all the events that came of it
//! as one batch, and answers when that batch is durable; the next batch is under way meanwhile. Since
//! every answer waits for all that was done before it, nobody is told of anything that a crash could
//! undo. When the log turns a batch away, what the task has in memory is worth nothing any more: it
//! answers everybody with the reason and reads the journal again.

mod actor;
mod error;
mod exchange;
mod feed;
mod handle;
mod queues;
mod waiting;

pub use actor::Options;
pub use error::{CreateError, Error};
pub use exchange::{Done, Exchange, Receive};
pub use feed::feed;
pub use handle::{Accepted, Queue, Stats};
pub use queues::Queues;
