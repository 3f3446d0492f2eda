//! Dead letters: events that failed for good, stored with the reasons before the checkpoint passes them.

mod find;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use highwater_log::batch::{NewRecord, Record};
use highwater_log::{BoxFuture, Partition};

use crate::event::DecodedBatch;
use crate::{Event, EventId};

pub use find::{DeadLetterFilter, DeadLetterPage, ReplayOutcome, StoredDeadLetter};

/// Longer reasons are cut.
const REASON_CHARS_MAX: usize = 1000;

/// Attempts kept: the first one and the last ones.
const ATTEMPTS_MAX: usize = 16;

/// An event and its failed attempts.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub event: Event,
    /// The first and the last ones, if there were many.
    pub attempts: Vec<FailedAttempt>,
    /// How often it has been replayed.
    pub replays: u32,
}

/// One attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// From 1.
    pub number: u32,
    /// Milliseconds since 1970. `None` if the event could not be decoded, so nothing was attempted.
    pub at_ms: Option<i64>,
    pub reason: String,
}

/// Stores dead letters.
pub trait DeadLetterSink: Send + Sync {
    /// Completes when the letter would survive a crash, or with the reason why it was not stored. The order of the
    /// calls is that of the letters.
    fn put(&self, letter: &DeadLetter) -> BoxFuture<Result<(), String>>;
}

impl FailedAttempt {
    pub(crate) fn undated(reason: impl fmt::Display) -> FailedAttempt {
        FailedAttempt {
            number: 1,
            at_ms: None,
            reason: shortened(reason),
        }
    }

    pub(crate) fn new(number: u32, at_ms: i64, reason: impl fmt::Display) -> FailedAttempt {
        FailedAttempt {
            at_ms: Some(at_ms),
            number,
            reason: shortened(reason),
        }
    }

    /// Appends the attempt to the earlier ones.
    pub(crate) fn note(self, attempts: &mut Vec<FailedAttempt>) {
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

impl fmt::Display for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at_ms {
            Some(at_ms) => write!(f, "{} {at_ms} {}", self.number, self.reason),
            None => write!(f, "{} - {}", self.number, self.reason),
        }
    }
}

impl FromStr for FailedAttempt {
    type Err = ();

    fn from_str(text: &str) -> Result<FailedAttempt, ()> {
        let (number, rest) = text.split_once(' ').ok_or(())?;
        let (at, reason) = rest.split_once(' ').ok_or(())?;
        let at_ms = match at {
            "-" => None,
            at => Some(at.parse().map_err(|_| ())?),
        };
        Ok(FailedAttempt {
            number: number.parse().map_err(|_| ())?,
            at_ms,
            reason: reason.into(),
        })
    }
}

/// Separates the event's headers from ours; its value is the version.
const MARK: &str = "highwater-letter";

/// Dead letters on a partition of a compacted hub. The key of a record is the id of the event, its value the event's
/// value, its headers those of the event followed by ours (docs/formats/dead-letters.md). A tombstone removes a letter.
#[derive(Clone)]
pub struct DeadLetterPartition(pub Arc<dyn Partition>);

impl DeadLetterSink for DeadLetterPartition {
    fn put(&self, letter: &DeadLetter) -> BoxFuture<Result<(), String>> {
        self.append(letter)
    }
}

impl DeadLetterPartition {
    fn append(&self, letter: &DeadLetter) -> BoxFuture<Result<(), String>> {
        let event = &letter.event;
        let (id, enqueued) = (event.id().to_string(), event.timestamp().to_string());
        let replays = letter.replays.to_string();
        let attempts: Vec<String> = letter
            .attempts
            .iter()
            .map(FailedAttempt::to_string)
            .collect();
        let mut headers: Vec<_> = event.headers().collect();
        headers.push((MARK, Some(b"1")));
        headers.push(("highwater-enqueued", Some(enqueued.as_bytes())));
        if let Some(key) = event.key() {
            headers.push(("highwater-key", Some(key)));
        }
        if event.value().is_none() {
            headers.push(("highwater-null", None));
        }
        if letter.replays > 0 {
            headers.push(("highwater-replays", Some(replays.as_bytes())));
        }
        headers.extend((attempts.iter()).map(|text| ("highwater-attempt", Some(text.as_bytes()))));
        self.append_record(&NewRecord {
            key: Some(id.as_bytes()),
            value: Some(event.value().unwrap_or_default()),
            headers: &headers,
        })
    }

    /// Removes a letter. Completes when the removal would survive a crash.
    pub fn remove(&self, id: &EventId) -> BoxFuture<Result<(), String>> {
        self.append_record(&NewRecord {
            key: Some(id.to_string().as_bytes()),
            value: None,
            headers: &[],
        })
    }

    fn append_record(&self, record: &NewRecord<'_>) -> BoxFuture<Result<(), String>> {
        let appended = self.0.append_records(std::slice::from_ref(record));
        Box::pin(async move {
            let appended = appended.await;
            appended.map(drop).map_err(|error| error.to_string())
        })
    }
}

/// The event of a record, which its key names.
pub(crate) fn event_id(record: &Record<'_>) -> Option<EventId> {
    std::str::from_utf8(record.key?).ok()?.parse().ok()
}

/// Whether a record with a value is a dead letter.
pub(crate) fn is_letter(record: &Record<'_>) -> bool {
    let mut headers = record.headers;
    headers.any(|(name, _)| name == MARK)
}

/// `None` if the record is not a dead letter.
pub(crate) fn read(record: &Record<'_>) -> Option<DeadLetter> {
    let (id, value) = (event_id(record)?, record.value?);
    let headers: Vec<_> = record.headers.collect();
    let mark = headers.iter().rposition(|(name, _)| name == MARK)?;
    let (theirs, ours) = headers.split_at(mark);
    let theirs: Vec<_> = theirs
        .iter()
        .map(|(name, value)| (&**name, *value))
        .collect();
    let values = |wanted: &'static str| {
        let found = ours.iter().filter(move |(name, _)| name == wanted);
        found.map(|(_, value)| value.unwrap_or_default())
    };
    let text = |name: &'static str| {
        values(name)
            .next()
            .and_then(|value| std::str::from_utf8(value).ok())
    };
    let is_null = ours.iter().any(|(name, _)| name == "highwater-null");
    let attempts = values("highwater-attempt");
    let attempts = attempts.filter_map(|text| std::str::from_utf8(text).ok()?.parse().ok());
    Some(DeadLetter {
        event: DecodedBatch::one(
            id,
            text("highwater-enqueued")?.parse().ok()?,
            values("highwater-key").next(),
            (!is_null).then_some(value),
            &theirs,
        ),
        attempts: attempts.collect(),
        replays: text("highwater-replays").map_or(0, |text| text.parse().unwrap_or(0)),
    })
}
