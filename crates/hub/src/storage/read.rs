//! Reads from memory if the batches are in the tail, otherwise from the disk, and verifies checksums.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use highwater_log::batch::{BatchError, Batches, CorruptBatch, HEADER_LEN};
use highwater_log::{Bounds, FetchData, Isolation, Offset, ReadError};

use super::index::IndexEntry;
use super::segment::Segment;
use super::store::Store;
use super::view::{Damage, View};
use super::{Counters, names};

/// The result of a read that does not touch the disk.
pub(crate) enum TailRead {
    Ready(Result<FetchData, ReadError>),
    /// Call [`Store::read`] on a thread that may wait.
    OnDisk,
}

/// The part of a segment to search for an offset.
struct SegmentRange {
    from: IndexEntry,
    to: u64,
}

impl Store {
    pub(crate) fn read_tail(
        &self,
        from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> TailRead {
        let view = self.view.read();
        let bounds = view.bounds();
        if let Err(error) = self.check_readable(&view, &bounds, from) {
            return TailRead::Ready(Err(error));
        }
        let limit = bounds.visible(isolation);
        let pieces = match from >= limit {
            true => Some(Vec::new()),
            false => view.tail.read(from, limit, bytes_max),
        };
        match pieces {
            None => TailRead::OnDisk,
            Some(pieces) => {
                if !pieces.is_empty() {
                    self.count(&self.shared.counters.reads_tail, &pieces);
                }
                TailRead::Ready(Ok(fetched(&view, bounds, from, pieces, isolation)))
            }
        }
    }

    fn check_readable(&self, view: &View, bounds: &Bounds, from: Offset) -> Result<(), ReadError> {
        if view.deleted {
            return Err(ReadError::Deleted(self.topic_partition.clone()));
        }
        if from < bounds.start || from > bounds.end {
            return Err(self.out_of_range(from, bounds));
        }
        match &view.damage {
            Some(damage) if from == bounds.end => Err(self.damaged(damage.clone())),
            _ => Ok(()),
        }
    }

    /// Reads from the disk.
    pub(crate) fn read(
        &self,
        mut from: Offset,
        bytes_max: usize,
        isolation: Isolation,
    ) -> Result<FetchData, ReadError> {
        loop {
            let (bounds, segment, range) = {
                let view = self.view.read();
                let bounds = view.bounds();
                self.check_readable(&view, &bounds, from)?;
                let active = view.active.as_ref();
                match view.closed_at(from) {
                    Some(segment) => (bounds, segment.clone(), None),
                    None => match active.and_then(|active| active.index.seek(from)) {
                        Some(entry) => {
                            let active = active.expect("it returned an entry");
                            let range = SegmentRange {
                                from: entry,
                                to: active.index.bytes,
                            };
                            (bounds, active.segment.clone(), Some(range))
                        }
                        None => return Ok(fetched(&view, bounds, from, Vec::new(), isolation)),
                    },
                }
            };
            let limit = bounds.visible(isolation);
            let found = match from >= limit {
                true => Ok(Bytes::new()),
                false => self.read_segment(&segment, range, from, limit, bytes_max),
            };
            if found.is_err() && self.was_replaced(&segment) {
                continue;
            }
            let bytes = found?;
            let view = self.view.read();
            match bytes {
                bytes if bytes.is_empty() && from < limit => {
                    let next = view.base_after(segment.base);
                    if next <= from || next >= bounds.end {
                        return Ok(fetched(&view, bounds, from, Vec::new(), isolation));
                    }
                    from = next;
                }
                bytes => {
                    let pieces = Some(bytes).filter(|bytes| !bytes.is_empty());
                    let pieces: Vec<Bytes> = pieces.into_iter().collect();
                    self.count(&self.shared.counters.reads_disk, &pieces);
                    return Ok(fetched(&view, bounds, from, pieces, isolation));
                }
            }
        }
    }

    /// Whether retention or compaction replaced the segment meanwhile, so that the read must be repeated. They hold the
    /// writer until the change is published.
    pub(super) fn was_replaced(&self, segment: &Segment) -> bool {
        let _no_writer = self.writer.lock();
        !self.view.read().holds(segment.id)
    }

    /// Batches of one segment; empty if it has none from `from` on.
    fn read_segment(
        &self,
        segment: &Segment,
        range: Option<SegmentRange>,
        from: Offset,
        limit: Offset,
        bytes_max: usize,
    ) -> Result<Bytes, ReadError> {
        let range = match range {
            Some(range) => range,
            None => match self.closed_range(segment, from)? {
                Some(range) => range,
                None => return Ok(Bytes::new()),
            },
        };
        let file = segment
            .file(&self.shared)
            .map_err(|e| self.storage_error(&e))?;
        let mut wanted = (bytes_max as u64).saturating_add(self.shared.options.index_bytes);
        loop {
            let size = wanted.min(range.to - range.from.position) as usize;
            let mut bytes = vec![0; size];
            let count = file.read_full_at(&mut bytes, range.from.position);
            let count = count.map_err(|error| self.storage_error(&error))?;
            bytes.truncate(count);
            match select_batches(&bytes, &range, from, limit, bytes_max) {
                Ok(range) => return Ok(Bytes::from(bytes).slice(range)),
                // The batch is longer than the bytes read.
                Err(CorruptBatch {
                    error: BatchError::Short { need, .. },
                    ..
                }) if count == size && size as u64 == wanted => {
                    wanted = wanted.saturating_add(need as u64);
                }
                Err(CorruptBatch { position, error }) => {
                    let position = range.from.position + position as u64;
                    return Err(self.segment_damaged(segment, position, error.to_string()));
                }
            }
        }
    }

    /// The part of a closed segment to search.
    fn closed_range(
        &self,
        segment: &Segment,
        from: Offset,
    ) -> Result<Option<SegmentRange>, ReadError> {
        let metadata = segment.metadata(&self.shared);
        let metadata = metadata.map_err(|error| self.storage_error(&error))?;
        let next = self.view.read().base_after(segment.base);
        let broken = match &metadata.broken {
            Some(broken) => Some(broken.clone()),
            None if metadata.index.next != next => Some((
                metadata.index.bytes,
                format!(
                    "it ends before offset {}, and the next segment begins at {next}",
                    metadata.index.next
                ),
            )),
            None => None,
        };
        match broken {
            Some((position, reason)) if from >= metadata.index.next => {
                Err(self.segment_damaged(segment, position, reason))
            }
            _ if from >= metadata.index.next => Ok(None),
            _ => Ok(metadata.index.seek(from).map(|entry| SegmentRange {
                from: entry,
                to: metadata.index.bytes,
            })),
        }
    }

    fn count(&self, kind: &std::sync::atomic::AtomicU64, pieces: &[Bytes]) {
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        Counters::add(kind, 1);
        Counters::add(&self.shared.counters.read_bytes, bytes as u64);
    }

    pub(super) fn out_of_range(&self, requested: Offset, bounds: &Bounds) -> ReadError {
        ReadError::OutOfRange {
            topic_partition: self.topic_partition.clone(),
            requested,
            start: bounds.start,
            end: bounds.end,
        }
    }

    pub(super) fn storage_error(&self, error: &io::Error) -> ReadError {
        ReadError::Storage {
            topic_partition: self.topic_partition.clone(),
            reason: error.to_string(),
        }
    }

    pub(super) fn segment_damaged(
        &self,
        segment: &Segment,
        position: u64,
        reason: String,
    ) -> ReadError {
        let file = names::segment(segment.base);
        self.damaged(Damage {
            file,
            position,
            reason,
        })
    }

    fn damaged(&self, damage: Damage) -> ReadError {
        ReadError::Damaged {
            topic_partition: self.topic_partition.clone(),
            file: damage.file,
            position: damage.position,
            reason: damage.reason,
        }
    }
}

/// The range of bytes to return: whole batches from the one that contains `from`, with verified checksums. Fails if
/// that batch is missing or corrupt. A corrupt batch after it is left to the next read.
fn select_batches(
    bytes: &[u8],
    range: &SegmentRange,
    from: Offset,
    limit: Offset,
    bytes_max: usize,
) -> Result<Range<usize>, CorruptBatch> {
    let mut chosen = 0..0;
    let mut corrupt = None;
    for batch in Batches::new(bytes).following(range.from.offset) {
        let batch = match batch {
            Ok(batch) if batch.header.last_offset() < from => {
                chosen = batch.end()..batch.end();
                continue;
            }
            batch => batch.and_then(|batch| batch.check().map(|()| batch)),
        };
        match batch {
            Ok(batch)
                if batch.header.next_offset() <= limit
                    && (chosen.is_empty() || batch.end() - chosen.start <= bytes_max) =>
            {
                chosen.end = batch.end();
            }
            Ok(_) => break,
            Err(broken) => {
                corrupt = Some(broken);
                break;
            }
        }
    }
    let missing = CorruptBatch {
        position: chosen.end,
        error: BatchError::Short {
            have: 0,
            need: HEADER_LEN,
        },
    };
    match chosen.is_empty() {
        true => Err(corrupt.unwrap_or(missing)),
        false => Ok(chosen),
    }
}

fn fetched(
    view: &View,
    bounds: Bounds,
    from: Offset,
    pieces: Vec<Bytes>,
    isolation: Isolation,
) -> FetchData {
    let aborted = match (isolation, next_after(&pieces)) {
        (Isolation::Committed, Some(next)) => view.producers.aborted_transactions(from, next),
        _ => Vec::new(),
    };
    FetchData {
        pieces,
        bounds,
        aborted,
    }
}

/// The offset after the last batch.
fn next_after(pieces: &[Bytes]) -> Option<Offset> {
    let last = Batches::new(pieces.last()?).flatten().last()?;
    Some(last.header.next_offset())
}
