//! Dead letters: events that failed for good, set aside with the reasons before they are passed.

use std::fmt;
use std::sync::Arc;

use highwater_log::batch::NewRecord;
use highwater_log::{Partition, Pending};

use crate::Event;

/// A reason is cut after this many characters.
const REASON_CHARS_MAX: usize = 1000;

/// How many attempts are kept: the first and the last ones.
const ATTEMPTS_MAX: usize = 16;

/// An event and what became of every attempt to handle it.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub event: Event,
    /// The first and the last ones, if there were many.
    pub attempts: Vec<Attempt>,
}

/// One attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// Milliseconds since 1970, or `None` where nothing was attempted because the event could not be
    /// decoded.
    pub at_ms: Option<i64>,
    pub reason: String,
}

/// Where dead letters go.
pub trait DeadLetters: Send + Sync {
    /// Ready when the letter would survive a crash, or with the reason why it would not.
    fn put(&self, letter: &DeadLetter) -> Pending<Result<(), String>>;
}

impl Attempt {
    pub(crate) fn undated(reason: impl fmt::Display) -> Attempt {
        Attempt {
            number: 1,
            at_ms: None,
            reason: shortened(reason),
        }
    }

    pub(crate) fn new(number: u32, at_ms: i64, reason: impl fmt::Display) -> Attempt {
        Attempt {
            at_ms: Some(at_ms),
            number,
            reason: shortened(reason),
        }
    }

    /// Notes one more attempt among those before it.
    pub(crate) fn note(self, attempts: &mut Vec<Attempt>) {
        if attempts.len() == ATTEMPTS_MAX {
            attempts.remove(1);
        }
        attempts.push(self);
    }
}

fn shortened(reason: impl fmt::Display) -> String {
    let mut reason = reason.to_string();
    if let Some((end, _)) = reason.char_indices().nth(REASON_CHARS_MAX) {
        reason.truncate(end);
    }
    reason
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at_ms {
            Some(at_ms) => write!(f, "{} {at_ms} {}", self.number, self.reason),
            None => write!(f, "{} - {}", self.number, self.reason),
        }
    }
}

/// Dead letters on a partition: the record as it was, with headers that say where it is from and
/// what happened. `highwater-origin` is the id of the event, `highwater-enqueued` when the log took it
/// in, and there is a `highwater-attempt` for each attempt: number, time and reason.
#[derive(Clone)]
pub struct OnPartition(pub Arc<dyn Partition>);

impl DeadLetters for OnPartition {
    fn put(&self, letter: &DeadLetter) -> Pending<Result<(), String>> {
        let event = &letter.event;
        let (origin, enqueued) = (event.id().to_string(), event.timestamp().to_string());
        let attempts: Vec<String> = letter.attempts.iter().map(Attempt::to_string).collect();
        let mut headers: Vec<_> = event.headers().collect();
        headers.push(("highwater-origin", Some(origin.as_bytes())));
        headers.push(("highwater-enqueued", Some(enqueued.as_bytes())));
        headers.extend((attempts.iter()).map(|text| ("highwater-attempt", Some(text.as_bytes()))));
        let appended = self.0.append_records(&[NewRecord {
            key: event.key(),
            value: event.value(),
            headers: &headers,
        }]);
        Box::pin(async move {
            let appended = appended.await;
            appended.map(drop).map_err(|error| error.to_string())
        })
    }
}
