//! Finds events of a partition by offset, time, key and condition, for people who browse a hub.
//!
//! A search is bounded in events, bytes and time, and returns the searched range. Keys and conditions have no index: a
//! search reads the partition. A condition is evaluated on a thread for blocking work, with a permit of the playground,
//! because any reader may write one.

use std::sync::Arc;
use std::time::Duration;

use highwater_job::EventCondition;
use highwater_log::batch::Record;
use highwater_log::{EnqueueTime, Offset, Partition};
use highwater_time::Instant;
use tokio::time::timeout;

use super::app::App;
use super::decode;
use super::error::{Code, Error};
use super::read::ISOLATION;

/// Offsets that one search looks at.
const SCAN_EVENTS_MAX: u64 = 10_000;

/// The first block of a search backwards.
const BLOCK_OFFSETS_MIN: i64 = 64;

/// Bytes that one search reads.
const SCAN_BYTES_MAX: usize = 16 << 20;

/// The time limit of a search.
const SCAN_TIME_MAX: Duration = Duration::from_millis(500);

/// How long the conditions of a search may take before it fails.
const CONDITION_TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// A condition sees this many events at a time.
const PIECE_EVENTS: usize = 64;

/// The part of a value, key or header value that is kept.
const VALUE_BYTES_MAX: usize = 64 << 10;
const KEY_BYTES_MAX: usize = 1 << 10;
const HEADERS_MAX: usize = 64;

/// How long a search waits for a permit.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Which events to find.
#[derive(Clone, Debug, Default)]
pub(super) struct EventFilter {
    pub(super) key: Option<Vec<u8>>,
    pub(super) condition: Option<Arc<EventCondition>>,
}

/// The end of the range from which a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchFrom {
    /// The first events from this offset on.
    Offset(Offset),
    /// The last events before this offset.
    Before(Offset),
}

/// A record, as far as it is shown.
#[derive(Clone, Debug)]
pub(super) struct StoredEvent {
    pub(super) offset: Offset,
    pub(super) time: EnqueueTime,
    pub(super) key: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
    /// The first [`VALUE_BYTES_MAX`] of it.
    pub(super) value: Option<Vec<u8>>,
    pub(super) value_bytes: usize,
}

impl StoredEvent {
    fn new(record: &Record<'_>) -> StoredEvent {
        let start = |bytes: &[u8], max: usize| bytes[..bytes.len().min(max)].to_vec();
        let headers = record.headers.into_iter().take(HEADERS_MAX);
        StoredEvent {
            offset: record.offset,
            time: EnqueueTime(record.timestamp),
            key: record.key.map(|key| start(key, KEY_BYTES_MAX)),
            headers: headers
                .map(|(name, value)| {
                    let name = name.chars().take(KEY_BYTES_MAX).collect();
                    (name, value.map(|value| start(value, KEY_BYTES_MAX)))
                })
                .collect(),
            value: record.value.map(<[u8]>::to_vec),
            value_bytes: record.value.map_or(0, <[u8]>::len),
        }
    }

    fn shorten(&mut self) {
        if let Some(value) = &mut self.value {
            value.truncate(VALUE_BYTES_MAX);
            value.shrink_to_fit();
        }
    }
}

/// The found events, and the searched range.
#[derive(Debug, Default)]
pub(super) struct FoundEvents {
    /// In the order of the partition.
    pub(super) events: Vec<StoredEvent>,
    pub(super) looked_at: u64,
    /// The first offset searched.
    pub(super) from: i64,
    /// The end of the searched range (exclusive).
    pub(super) next: i64,
}

/// Searches a partition. An offset outside of it is moved to its next end.
pub(super) async fn search(
    app: &App,
    partition: &dyn Partition,
    from: SearchFrom,
    filter: &EventFilter,
    count_max: usize,
) -> Result<FoundEvents, Error> {
    let _share = app.budget.try_take(READ_BYTES * 2)?;
    let _permit = match filter.condition.is_some() {
        true => Some(wait_for_permit(app).await?),
        false => None,
    };
    let bounds = partition.fetch_bounds().await?;
    let (start, end) = (bounds.start.0, bounds.visible(ISOLATION).0);
    let end = end.max(start);
    let mut search = Search {
        app,
        partition,
        filter,
        count_max,
        started: app.clock.elapsed(),
        bytes_read: 0,
        found: FoundEvents::default(),
    };
    match from {
        SearchFrom::Offset(from) => search.run_on(from.0.clamp(start, end), end).await?,
        SearchFrom::Before(before) => search.run_back(start, before.0.clamp(start, end)).await?,
    }
    Ok(search.found)
}

async fn wait_for_permit(app: &App) -> Result<impl Send + use<>, Error> {
    let permits = app.playground_runs.clone();
    let full = || {
        let message = "too many conditions and queries of the playground are being evaluated";
        Error::new(Code::Full, message, "try again in a moment")
    };
    let permit = timeout(PERMIT_WAIT_MAX, permits.acquire_owned()).await;
    permit.map_err(|_| full())?.map_err(|_| full())
}

/// A running search.
struct Search<'a> {
    app: &'a App,
    partition: &'a dyn Partition,
    filter: &'a EventFilter,
    count_max: usize,
    started: Duration,
    bytes_read: usize,
    found: FoundEvents,
}

/// The events of one read that match.
struct ReadEvents {
    events: Vec<StoredEvent>,
    /// Offsets of all searched events.
    offsets: Vec<i64>,
    next: i64,
}

impl Search<'_> {
    /// Looks for the first events from `from` on.
    async fn run_on(&mut self, from: i64, end: i64) -> Result<(), Error> {
        (self.found.from, self.found.next) = (from, from);
        let end = end.min(from.saturating_add(SCAN_EVENTS_MAX as i64));
        while self.found.next < end && !self.is_done() {
            let mut read = self.read(self.found.next, end).await?;
            // A read without progress is of records that are not visible yet.
            if read.next == self.found.next {
                break;
            }
            let left = self.count_max - self.found.events.len();
            if read.events.len() > left {
                read.events.truncate(left);
                // The rest belongs to the next page.
                read.next = read.events.last().map_or(from, |last| last.offset.0 + 1);
                read.offsets.retain(|offset| *offset < read.next);
            }
            self.found.next = read.next;
            self.found.looked_at += read.offsets.len() as u64;
            self.found.events.append(&mut read.events);
        }
        Ok(())
    }

    /// Looks for the last events before `before`, a block of offsets at a time. Offsets of punctuations, markers and
    /// compacted records have no event, so the last events may lie far back.
    async fn run_back(&mut self, start: i64, before: i64) -> Result<(), Error> {
        (self.found.from, self.found.next) = (before, before);
        let mut width = BLOCK_OFFSETS_MIN;
        while self.found.from > start && !self.is_done() {
            let from = (self.found.from - width).max(start);
            let bytes_before = self.bytes_read;
            let mut events = self.block(from, self.found.from).await?;
            events.append(&mut self.found.events);
            self.found.events = events;
            self.keep_last();
            self.found.from = from;
            // A block is read to its end, so the next one has to fit into what is left.
            let bytes = (self.bytes_read - bytes_before).max(1);
            let bytes_left = SCAN_BYTES_MAX.saturating_sub(self.bytes_read);
            let fitting = width.saturating_mul((bytes_left / bytes) as i64);
            let offsets_left = SCAN_EVENTS_MAX as i64 - (before - from);
            let longest = fitting.min(offsets_left).max(BLOCK_OFFSETS_MIN);
            width = (width * 4).min(longest);
        }
        // Of events that are not searched, only those of the page count.
        let found = &mut self.found;
        let is_any = self.filter.key.is_none() && self.filter.condition.is_none();
        if is_any && let Some(first) = found.events.first() {
            found.from = first.offset.0;
            found.looked_at = found.events.len() as u64;
        }
        Ok(())
    }

    /// The last matching events of a range.
    async fn block(&mut self, from: i64, end: i64) -> Result<Vec<StoredEvent>, Error> {
        let (mut next, mut found) = (from, Vec::new());
        while next < end {
            let mut read = self.read(next, end).await?;
            if read.next == next {
                break;
            }
            next = read.next;
            self.found.looked_at += read.offsets.len() as u64;
            found.append(&mut read.events);
            found.drain(..found.len().saturating_sub(self.count_max));
        }
        Ok(found)
    }

    fn keep_last(&mut self) {
        let events = &mut self.found.events;
        events.drain(..events.len().saturating_sub(self.count_max));
    }

    /// Reads once from `from`, and tests the events.
    async fn read(&mut self, from: i64, end: i64) -> Result<ReadEvents, Error> {
        let from = Offset(from);
        let fetched = self.partition.read(from, READ_BYTES, ISOLATION).await?;
        self.bytes_read += fetched
            .pieces
            .iter()
            .map(|piece| piece.len())
            .sum::<usize>();
        let key = self.filter.key.as_deref();
        let (is_tested, count_max) = (self.filter.condition.is_some(), self.count_max);
        let (mut events, mut offsets, mut bytes) = (Vec::new(), Vec::new(), 0);
        let next = decode::records(&fetched, from, &self.app.unpack_budget, |record| {
            let length = record.value.map_or(0, <[u8]>::len);
            let is_full = bytes > 0 && bytes + length > READ_BYTES;
            let is_enough = !is_tested && events.len() >= count_max;
            if record.offset.0 >= end || is_full || is_enough {
                return false;
            }
            offsets.push(record.offset.0);
            if key.is_none() || record.key == key {
                bytes += length;
                events.push(StoredEvent::new(record));
            }
            true
        })?;
        let mut events = match &self.filter.condition {
            Some(condition) => self.matching(condition.clone(), events).await?,
            None => events,
        };
        events.iter_mut().for_each(StoredEvent::shorten);
        Ok(ReadEvents {
            events,
            offsets,
            next: next.0.min(end),
        })
    }

    fn is_done(&self) -> bool {
        let found = &self.found;
        found.events.len() >= self.count_max
            || found.next - found.from >= SCAN_EVENTS_MAX as i64
            || self.bytes_read >= SCAN_BYTES_MAX
            || self.app.clock.elapsed() - self.started > SCAN_TIME_MAX
    }

    async fn matching(
        &self,
        condition: Arc<EventCondition>,
        events: Vec<StoredEvent>,
    ) -> Result<Vec<StoredEvent>, Error> {
        let (clock, deadline) = (self.app.clock.clone(), self.started + CONDITION_TIME_MAX);
        let test = move || {
            let mut holds = Vec::with_capacity(events.len());
            for piece in events.chunks(PIECE_EVENTS) {
                if clock.elapsed() > deadline {
                    let hint = "look for less: a key, or a simpler condition";
                    return Err(Error::new(
                        Code::Timeout,
                        "the condition takes too long",
                        hint,
                    ));
                }
                let times = piece.iter().map(|it| Instant::from_unix_millis(it.time.0));
                let values = piece
                    .iter()
                    .map(|it| it.value.as_deref().unwrap_or_default());
                let piece: Vec<(&[u8], Instant)> = values.zip(times).collect();
                holds.append(&mut condition.holds(&piece));
            }
            let kept = events.into_iter().zip(holds).filter(|(_, holds)| *holds);
            Ok(kept.map(|(event, _)| event).collect())
        };
        let failed = |_| {
            let hint = "this is a bug: please report it";
            Error::new(Code::Internal, "the condition could not be evaluated", hint)
        };
        tokio::task::spawn_blocking(test).await.map_err(failed)?
    }
}
