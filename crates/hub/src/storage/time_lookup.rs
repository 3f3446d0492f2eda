//! Finds the first batch of an enqueue time by binary search: enqueue times never decrease within a partition.

use std::sync::Arc;

use highwater_log::batch::{BatchError, StoredBatch};
use highwater_log::{EnqueueTime, Offset, ReadError};

use super::index::IndexEntry;
use super::scan::scan;
use super::segment::Segment;
use super::store::Store;

type TimeLookup = Option<(Offset, EnqueueTime)>;

impl Store {
    /// The first record with this enqueue time or a later one.
    pub(crate) fn find(&self, time: EnqueueTime) -> Result<TimeLookup, ReadError> {
        loop {
            let (closed, active, start) = {
                let view = self.view.read();
                if view.deleted {
                    return Err(ReadError::Deleted(self.topic_partition.clone()));
                }
                if view.start == view.end || view.last_time.is_none_or(|last| last < time) {
                    return Ok(None);
                }
                let active = view.active.as_ref().and_then(|active| {
                    let entry = active.index.seek_time(time)?;
                    Some((active.segment.clone(), entry, active.index.bytes))
                });
                (view.closed.clone(), active, view.start)
            };
            match self.find_in(&closed, active, time, start) {
                Err(_) if closed.iter().any(|segment| self.was_replaced(segment)) => {}
                found => return found,
            }
        }
    }

    fn find_in(
        &self,
        closed: &[Arc<Segment>],
        active: Option<(Arc<Segment>, IndexEntry, u64)>,
        time: EnqueueTime,
        start: Offset,
    ) -> Result<TimeLookup, ReadError> {
        let storage = |error| self.storage_error(&error);
        // Most lookups are for recent times, so the search goes back from the end.
        let mut first = closed.len();
        while first > 0
            && let Some(last) = closed[first - 1].last_time(&self.shared).map_err(storage)?
            && last >= time
        {
            first -= 1;
        }
        for segment in &closed[first..] {
            let metadata = segment.metadata(&self.shared);
            let metadata = metadata.map_err(|error| self.storage_error(&error))?;
            if let Some(entry) = metadata.index.seek_time(time)
                && let Some(found) =
                    self.find_enqueued(segment, entry, metadata.index.bytes, time, start)?
            {
                return Ok(Some(found));
            }
        }
        match active {
            Some((segment, entry, to)) => self.find_enqueued(&segment, entry, to, time, start),
            None => Ok(None),
        }
    }

    fn find_enqueued(
        &self,
        segment: &Segment,
        entry: IndexEntry,
        to: u64,
        time: EnqueueTime,
        start: Offset,
    ) -> Result<TimeLookup, ReadError> {
        self.find_batch(segment, entry, to, |batch| {
            let (enqueued, header) = (batch.enqueue_time(), &batch.header);
            let found = enqueued >= time && header.last_offset() >= start;
            Ok(found.then(|| (header.base_offset().max(start), enqueued)))
        })
    }

    /// The first result of `find` for the batches of a segment from `entry` to the position `to`.
    pub(super) fn find_batch<T>(
        &self,
        segment: &Segment,
        entry: IndexEntry,
        to: u64,
        mut find: impl FnMut(&StoredBatch<'_>) -> Result<Option<T>, BatchError>,
    ) -> Result<Option<T>, ReadError> {
        let file = segment
            .file(&self.shared)
            .map_err(|e| self.storage_error(&e))?;
        let mut found = Ok(None);
        // The batch of the next index entry has the time or a later one, so the first range suffices as a rule.
        let near = to.min(entry.position + 2 * self.shared.options.index_bytes);
        for to in [near, to] {
            let scanned = scan(&*file, entry.position, to, entry.offset, |at, batch| {
                if let Ok(None) = found {
                    found = find(batch).map_err(|error| (at, error));
                }
            });
            let scanned = scanned.map_err(|error| self.storage_error(&error))?;
            match std::mem::replace(&mut found, Ok(None)) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err((at, error)) => {
                    return Err(self.segment_damaged(segment, at, error.to_string()));
                }
            }
            match scanned.broken {
                Some(BatchError::Short { .. }) if to == near => {}
                Some(error) => {
                    let reason = error.to_string();
                    return Err(self.segment_damaged(segment, scanned.bytes, reason));
                }
                None => {}
            }
        }
        Ok(None)
    }
}
