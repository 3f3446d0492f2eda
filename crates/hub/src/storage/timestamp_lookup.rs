//! Finds a record by the timestamp that consumers see.
//!
//! Producers' timestamps may go back, so every segment is asked, from the oldest on: its index has the latest timestamp
//! up to each entry.

use std::sync::Arc;

use highwater_log::batch::Decompressor;
use highwater_log::{Offset, ReadError, TimestampLookup};

use super::index::{Index, IndexEntry};
use super::segment::Segment;
use super::store::Store;

/// The segments of a lookup.
struct Snapshot {
    closed: Vec<Arc<Segment>>,
    active: Option<ActiveRange>,
    start: Offset,
}

/// The active segment at the time of the snapshot.
struct ActiveRange {
    segment: Arc<Segment>,
    timestamp_max: Option<i64>,
    /// From the timestamp of the lookup on.
    found: SegmentRange,
    whole: SegmentRange,
}

/// The part of a segment to search.
#[derive(Clone, Copy)]
struct SegmentRange {
    entry: IndexEntry,
    to: u64,
}

/// Where the search in a segment begins.
#[derive(Clone, Copy)]
enum Seek {
    Timestamp(i64),
    Start,
}

impl Store {
    pub(crate) fn find_timestamp(
        &self,
        lookup: TimestampLookup,
    ) -> Result<Option<(Offset, i64)>, ReadError> {
        let timestamp = match lookup {
            TimestampLookup::AtLeast(timestamp) => Some(timestamp),
            TimestampLookup::Latest => {
                self.with_snapshot(None, |snapshot| self.latest_timestamp(snapshot))?
            }
        };
        let Some(timestamp) = timestamp else {
            return Ok(None);
        };
        self.with_snapshot(Some(timestamp), |snapshot| {
            self.first_from(snapshot, timestamp)
        })
    }

    /// Repeats the lookup if retention or compaction replaced a segment meanwhile.
    fn with_snapshot<T>(
        &self,
        timestamp: Option<i64>,
        find: impl Fn(&Snapshot) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        loop {
            let snapshot = self.snapshot(timestamp)?;
            let replaced = |segment: &Arc<Segment>| self.was_replaced(segment);
            match find(&snapshot) {
                Err(_) if snapshot.closed.iter().any(replaced) => {}
                found => return found,
            }
        }
    }

    /// Without a timestamp, the latest of the active segment is the one that is sought in it.
    fn snapshot(&self, timestamp: Option<i64>) -> Result<Snapshot, ReadError> {
        let view = self.view.read();
        if view.deleted {
            return Err(ReadError::Deleted(self.topic_partition.clone()));
        }
        let active = view.active.as_ref().and_then(|active| {
            let index = &active.index;
            let sought = timestamp.or(index.timestamp_max).unwrap_or(i64::MAX);
            Some(ActiveRange {
                segment: active.segment.clone(),
                timestamp_max: index.timestamp_max,
                found: range(index, Seek::Timestamp(sought))?,
                whole: range(index, Seek::Start)?,
            })
        });
        Ok(Snapshot {
            closed: view.closed.clone(),
            active,
            start: view.start,
        })
    }

    fn first_from(
        &self,
        snapshot: &Snapshot,
        timestamp: i64,
    ) -> Result<Option<(Offset, i64)>, ReadError> {
        for segment in snapshot.segments() {
            if self.timestamp_max(snapshot, segment)? >= Some(timestamp)
                && let Some(found) = self.first_in(snapshot, segment, timestamp)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn first_in(
        &self,
        snapshot: &Snapshot,
        segment: &Segment,
        timestamp: i64,
    ) -> Result<Option<(Offset, i64)>, ReadError> {
        let Some(range) = self.range(snapshot, segment, Seek::Timestamp(timestamp))? else {
            return Ok(None);
        };
        let mut decompressor = Decompressor::default();
        self.find_batch(segment, range.entry, range.to, |batch| {
            batch.find_timestamp(timestamp, snapshot.start, &mut decompressor)
        })
    }

    /// The latest timestamp of the kept records. An index may have a later one, of a record that was deleted: then the
    /// segment is read.
    fn latest_timestamp(&self, snapshot: &Snapshot) -> Result<Option<i64>, ReadError> {
        let mut segments = Vec::new();
        for segment in snapshot.segments() {
            if let Some(max) = self.timestamp_max(snapshot, segment)? {
                segments.push((max, segment));
            }
        }
        segments.sort_by_key(|(max, _)| std::cmp::Reverse(*max));
        let mut latest = None;
        for (max, segment) in segments {
            if latest >= Some(max) {
                break;
            }
            latest = latest.max(match self.first_in(snapshot, segment, max)? {
                Some((_, timestamp)) => Some(timestamp),
                None => self.latest_in(snapshot, segment)?,
            });
        }
        Ok(latest)
    }

    fn latest_in(&self, snapshot: &Snapshot, segment: &Segment) -> Result<Option<i64>, ReadError> {
        let Some(range) = self.range(snapshot, segment, Seek::Start)? else {
            return Ok(None);
        };
        let mut decompressor = Decompressor::default();
        let mut latest = None;
        self.find_batch(segment, range.entry, range.to, |batch| {
            let max = batch.max_timestamp_from(snapshot.start, &mut decompressor)?;
            latest = latest.max(max);
            Ok(None::<()>)
        })?;
        Ok(latest)
    }

    fn timestamp_max(
        &self,
        snapshot: &Snapshot,
        segment: &Segment,
    ) -> Result<Option<i64>, ReadError> {
        match snapshot.active(segment) {
            Some(active) => Ok(active.timestamp_max),
            None => segment
                .timestamp_max(&self.shared)
                .map_err(|error| self.storage_error(&error)),
        }
    }

    fn range(
        &self,
        snapshot: &Snapshot,
        segment: &Segment,
        seek: Seek,
    ) -> Result<Option<SegmentRange>, ReadError> {
        match (snapshot.active(segment), seek) {
            (Some(active), Seek::Timestamp(_)) => Ok(Some(active.found)),
            (Some(active), Seek::Start) => Ok(Some(active.whole)),
            (None, _) => {
                let metadata = segment.metadata(&self.shared);
                let metadata = metadata.map_err(|error| self.storage_error(&error))?;
                Ok(range(&metadata.index, seek))
            }
        }
    }
}

/// `None` if the segment is empty.
fn range(index: &Index, seek: Seek) -> Option<SegmentRange> {
    let entry = match seek {
        Seek::Timestamp(timestamp) => index.seek_timestamp(timestamp),
        Seek::Start => index.first_entry(),
    };
    entry.map(|entry| SegmentRange {
        entry,
        to: index.bytes,
    })
}

impl Snapshot {
    /// Oldest first.
    fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        let active = self.active.iter().map(|active| &active.segment);
        self.closed.iter().chain(active)
    }

    fn active(&self, segment: &Segment) -> Option<&ActiveRange> {
        self.active
            .as_ref()
            .filter(|active| active.segment.id == segment.id)
    }
}
