//! Calls to services: rendering, concurrency limits, and the classification of responses.
//!
//! Every service of a definition has a *pool*: a queue of calls and a limited number of connections. A free connection
//! takes the next call. The pool is the bulkhead: a slow service fills its own pool and no other. A circuit breaker
//! guards each pool. While it is open, calls wait without using up their tries.

mod classify;
mod connection;
mod function;
mod render;
mod service_pool;
mod service_pools;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use function::{FunctionCall, Functions};
pub(crate) use render::{notice, render, work};
pub use service_pools::ServicePools;

use crate::definition::Definition;
use crate::machine::{Answer, Millis};

/// Maximum size of a response body.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;

/// A call ready to be made.
pub struct CallRequest {
    pub work: PreparedCall,
    pub timeout: Duration,
    /// Called with the outcome.
    pub done: OutcomeCallback,
}

pub type OutcomeCallback = Box<dyn FnOnce(CallOutcome) + Send>;

/// A rendered call: all template variables are filled.
pub enum PreparedCall {
    Http {
        definition: Arc<Definition>,
        /// Index into the definition's services.
        service: usize,
        /// The step, and whether to undo it. `None` for a notice.
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
pub struct CallOutcome {
    pub begun_ms: Millis,
    pub ended_ms: Millis,
    pub result: Result<Answer, CallError>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CallError {
    pub kind: CallErrorKind,
    /// It may have been carried out anyway.
    pub in_doubt: bool,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// May succeed later, but not before `retry_after`.
    Transient { retry_after: Option<Duration> },
    /// Will fail the same way again.
    Permanent,
    /// A business refusal.
    Refused,
}

impl CallError {
    /// May succeed later.
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

    /// A business refusal.
    pub fn refused(reason: impl std::fmt::Display) -> CallError {
        CallError {
            kind: CallErrorKind::Refused,
            ..CallError::transient(reason)
        }
    }

    /// It may have been carried out anyway.
    pub fn in_doubt(self) -> CallError {
        CallError {
            in_doubt: true,
            ..self
        }
    }
}
