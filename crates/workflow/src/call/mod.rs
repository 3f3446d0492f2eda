//! Calls to services: what is sent, how often at once, and what an answer means.
//!
//! Every service of a definition has a *lane*: a queue of calls and so many connections, each of which
//! takes the next call when it has finished one. That is the bulkhead: a slow service fills its own
//! lane and no other. In front of the lane stands a circuit. While it is open calls wait, without
//! using up their tries.

mod connection;
mod function;
mod judge;
mod lane;
mod lanes;
mod render;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use function::{FunctionCall, Functions};
pub use lanes::Lanes;
pub(crate) use render::{notice, render, work};

use crate::definition::Definition;
use crate::machine::{Answer, Millis};

/// Of an answer no more than this is taken.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;

/// A call that is ready to be made.
pub struct Job {
    pub work: Prepared,
    pub timeout: Duration,
    /// Told when it is over.
    pub done: Done,
}

pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// What is to be done, with every hole filled.
pub enum Prepared {
    Http {
        definition: Arc<Definition>,
        /// Which of its services.
        service: usize,
        /// Which step it is for, and whether to undo it; a notice is for none.
        of: Option<(usize, bool)>,
        request: Request,
    },
    Function {
        name: String,
        call: FunctionCall,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: hyper::Method,
    /// Path and query.
    pub path: String,
    pub headers: Vec<(hyper::header::HeaderName, hyper::header::HeaderValue)>,
    pub body: Bytes,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub begun_ms: Millis,
    pub ended_ms: Millis,
    pub result: Result<Answer, CallError>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CallError {
    pub kind: CallErrorKind,
    /// It may have been carried out all the same.
    pub in_doubt: bool,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// May go better later, but not before the time that the service asked for.
    Transient { retry_after: Option<Duration> },
    /// Will fail the same way again.
    Permanent,
    /// A business refusal.
    Refused,
}

impl CallError {
    /// May go better later.
    pub fn transient(reason: impl std::fmt::Display) -> CallError {
        CallError {
            kind: CallErrorKind::Transient { retry_after: None },
            in_doubt: false,
            reason: reason.to_string(),
        }
    }

    /// Will fail the same way again.
    pub fn permanent(reason: impl std::fmt::Display) -> CallError {
        CallError {
            kind: CallErrorKind::Permanent,
            ..CallError::transient(reason)
        }
    }

    /// The business says no.
    pub fn refused(reason: impl std::fmt::Display) -> CallError {
        CallError {
            kind: CallErrorKind::Refused,
            ..CallError::transient(reason)
        }
    }

    /// It may have been carried out all the same.
    pub fn in_doubt(self) -> CallError {
        CallError {
            in_doubt: true,
            ..self
        }
    }
}
