//! The sparse index of a segment: one entry for each interval of bytes.
//!
//! An entry points to a batch. A lookup starts at the last entry that is not past the offset and scans. The index of a
//! closed segment is stored in a file beside it; a missing or damaged one is rebuilt from the segment.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::batch::BatchHeader;
use highwater_log::{EnqueueTime, Offset};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Offset of the first record of a batch.
    pub offset: Offset,
    /// Enqueue time of the batch.
    pub time: EnqueueTime,
    /// Position of the batch in the segment.
    pub position: u64,
}

/// The index of a segment, with its size and end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    entries: Vec<IndexEntry>,
    /// Size of the segment.
    pub bytes: u64,
    /// The first offset after the segment.
    pub next: Offset,
    /// Enqueue time of the last batch before `next`, in this segment or an earlier one.
    pub last_time: Option<EnqueueTime>,
    /// Position of the last batch.
    pub last_position: u64,
}

impl Index {
    pub(crate) fn new(base: Offset, last_time: Option<EnqueueTime>) -> Index {
        Index {
            next: base,
            last_time,
            ..Index::default()
        }
    }

    /// Adds a batch at the end of the segment.
    pub(crate) fn push(&mut self, header: &BatchHeader, size: u64, interval: u64) {
        let due = match self.entries.last() {
            Some(last) => self.bytes - last.position >= interval,
            None => true,
        };
        if due {
            self.entries.push(IndexEntry {
                offset: header.base_offset(),
                time: header.enqueue_time(),
                position: self.bytes,
            });
        }
        self.last_position = self.bytes;
        self.bytes += size;
        self.next = header.next_offset();
        self.last_time = Some(header.enqueue_time());
    }

    /// An entry at or before the batch that contains `offset`; `None` if the segment is empty.
    pub(crate) fn seek(&self, offset: Offset) -> Option<IndexEntry> {
        self.last_while(|entry| entry.offset <= offset)
    }

    /// An entry at or before the first batch with this enqueue time or a later one.
    pub(crate) fn seek_time(&self, time: EnqueueTime) -> Option<IndexEntry> {
        self.last_while(|entry| entry.time < time)
    }

    fn last_while(&self, still: impl Fn(&IndexEntry) -> bool) -> Option<IndexEntry> {
        let count = self.entries.partition_point(still);
        self.entries.get(count.saturating_sub(1)).copied()
    }

    pub(crate) fn first_time(&self) -> Option<EnqueueTime> {
        self.entries.first().map(|entry| entry.time)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(32 + 24 * self.entries.len());
        body.u64_be(self.bytes);
        body.i64_be(self.next.0);
        body.i64_be(self.last_time.map_or(i64::MIN, |time| time.0));
        body.u64_be(self.last_position);
        body.u64_be(self.entries.len() as u64);
        for entry in &self.entries {
            body.i64_be(entry.offset.0);
            body.i64_be(entry.time.0);
            body.u64_be(entry.position);
        }
        body
    }

    /// Reads the output of [`Index::encode`].
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Index, DecodeError> {
        let bytes = from.u64_be()?;
        let next = Offset(from.i64_be()?);
        let last_time = Some(from.i64_be()?).filter(|time| *time != i64::MIN);
        let last_position = from.u64_be()?;
        let count = from.u64_be()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(IndexEntry {
                offset: Offset(from.i64_be()?),
                time: EnqueueTime(from.i64_be()?),
                position: from.u64_be()?,
            });
        }
        entries.shrink_to_fit();
        Ok(Index {
            entries,
            bytes,
            next,
            last_time: last_time.map(EnqueueTime),
            last_position,
        })
    }
}
