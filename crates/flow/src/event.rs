//! Events read from a log, and deliveries to a handler.
//!
//! The records of a batch are copied once into a buffer shared by its events, so an event is two words and needs no
//! allocation, even if the batch was compressed.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use highwater_log::batch::Record;
use highwater_log::{HubName, Offset, TopicPartition};

/// A record of a log. Clones are cheap and share the bytes of the whole batch.
#[derive(Clone)]
pub struct Event {
    batch: Arc<DecodedBatch>,
    index: usize,
}

/// The records of one batch.
pub(crate) struct DecodedBatch {
    topic_partition: TopicPartition,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    headers: Vec<(Range<usize>, Option<Range<usize>>)>,
}

struct Entry {
    offset: Offset,
    timestamp: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    /// Range in `DecodedBatch::headers`.
    headers: Range<usize>,
}

/// The position of an event. It is the same on every delivery, so a handler can detect repetitions by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId {
    pub topic_partition: TopicPartition,
    pub offset: Offset,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.topic_partition, self.offset)
    }
}

/// A text that is not an event id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an event id: one looks like `hub/0@17`")]
pub struct EventIdError(pub String);

impl FromStr for EventId {
    type Err = EventIdError;

    fn from_str(text: &str) -> Result<EventId, EventIdError> {
        let parts = || {
            let (topic_partition, offset) = text.rsplit_once('@')?;
            let (hub, partition) = topic_partition.rsplit_once('/')?;
            let (hub, partition) = (HubName::new(hub).ok()?, partition.parse().ok()?);
            Some(EventId {
                topic_partition: TopicPartition { hub, partition },
                offset: Offset(offset.parse().ok()?),
            })
        };
        parts().ok_or_else(|| EventIdError(text.chars().take(300).collect()))
    }
}

/// One attempt to hand an event to a handler. `T` depends on the stages before.
pub struct Delivery<T> {
    pub event: Event,
    pub value: Arc<T>,
    /// Number of the attempt in this run, from 1.
    pub attempt: u32,
}

impl Event {
    pub fn id(&self) -> EventId {
        EventId {
            topic_partition: self.batch.topic_partition.clone(),
            offset: self.offset(),
        }
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.batch.topic_partition
    }

    pub fn offset(&self) -> Offset {
        self.entry().offset
    }

    /// When the log appended it, in milliseconds since 1970.
    pub fn timestamp(&self) -> i64 {
        self.entry().timestamp
    }

    pub fn key(&self) -> Option<&[u8]> {
        self.slice(self.entry().key.as_ref())
    }

    pub fn value(&self) -> Option<&[u8]> {
        self.slice(self.entry().value.as_ref())
    }

    pub fn headers(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        let headers = &self.batch.headers[self.entry().headers.clone()];
        headers.iter().map(|(name, value)| {
            let name = std::str::from_utf8(&self.batch.bytes[name.clone()]);
            let name = name.expect("names were text when they were put here");
            (name, self.slice(value.as_ref()))
        })
    }

    /// A copy of the key.
    pub(crate) fn key_bytes(&self) -> Option<Bytes> {
        self.key().map(Bytes::copy_from_slice)
    }

    fn entry(&self) -> &Entry {
        &self.batch.entries[self.index]
    }

    fn slice(&self, range: Option<&Range<usize>>) -> Option<&[u8]> {
        range.map(|range| &self.batch.bytes[range.clone()])
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id())
    }
}

impl DecodedBatch {
    pub(crate) fn new(topic_partition: TopicPartition) -> DecodedBatch {
        DecodedBatch {
            topic_partition,
            bytes: Vec::new(),
            entries: Vec::new(),
            headers: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, record: &Record<'_>) {
        let key = record.key.map(|key| self.put(key));
        let value = record.value.map(|value| self.put(value));
        let first = self.headers.len();
        for (name, value) in record.headers {
            let header = (
                self.put(name.as_bytes()),
                value.map(|value| self.put(value)),
            );
            self.headers.push(header);
        }
        self.entries.push(Entry {
            offset: record.offset,
            timestamp: record.timestamp,
            key,
            value,
            headers: first..self.headers.len(),
        });
    }

    /// The event of a dead letter.
    pub(crate) fn one(
        id: EventId,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) -> Event {
        let mut decoded = DecodedBatch::new(id.topic_partition);
        let key = key.map(|key| decoded.put(key));
        let value = value.map(|value| decoded.put(value));
        for (name, value) in headers {
            let name = decoded.put(name.as_bytes());
            let value = value.map(|value| decoded.put(value));
            decoded.headers.push((name, value));
        }
        decoded.entries.push(Entry {
            offset: id.offset,
            timestamp,
            key,
            value,
            headers: 0..headers.len(),
        });
        Event {
            batch: Arc::new(decoded),
            index: 0,
        }
    }

    /// Adds an event for undecodable records, with their bytes as its value.
    pub(crate) fn push_raw(&mut self, offset: Offset, timestamp: i64, bytes: &[u8]) {
        let value = Some(self.put(bytes));
        let headers = self.headers.len();
        self.entries.push(Entry {
            offset,
            timestamp,
            key: None,
            value,
            headers: headers..headers,
        });
    }

    /// The offset after the last record.
    pub(crate) fn next(&self) -> Option<Offset> {
        self.entries.last().map(|last| Offset(last.offset.0 + 1))
    }

    pub(crate) fn events(self) -> impl Iterator<Item = Event> {
        let batch = Arc::new(self);
        (0..batch.entries.len()).map(move |index| Event {
            batch: Arc::clone(&batch),
            index,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}
