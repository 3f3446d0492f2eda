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
    /// The latest timestamp that consumers see from the start of the segment to this batch, or more; the smallest
    /// number for none.
    pub timestamp_max: i64,
}

/// No timestamp yet.
const NONE: i64 = i64::MIN;

/// Versions of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexVersion {
    /// Without timestamps, from a time when all of them were enqueue times.
    One,
    Two,
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
    /// The latest timestamp that consumers see in the segment, or more.
    pub timestamp_max: Option<i64>,
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
    pub(crate) fn push(
        &mut self,
        header: &BatchHeader,
        time: EnqueueTime,
        size: u64,
        interval: u64,
    ) {
        self.timestamp_max = self.timestamp_max.max(header.consumer_timestamp());
        let due = match self.entries.last() {
            Some(last) => self.bytes - last.position >= interval,
            None => true,
        };
        if due {
            self.entries.push(IndexEntry {
                offset: header.base_offset(),
                time,
                position: self.bytes,
                timestamp_max: self.timestamp_max.unwrap_or(NONE),
            });
        }
        self.last_position = self.bytes;
        self.bytes += size;
        self.next = header.next_offset();
        self.last_time = Some(time);
    }

    /// An entry at or before the batch that contains `offset`; `None` if the segment is empty.
    pub(crate) fn seek(&self, offset: Offset) -> Option<IndexEntry> {
        self.last_while(|entry| entry.offset <= offset)
    }

    /// An entry at or before the first batch with this enqueue time or a later one.
    pub(crate) fn seek_time(&self, time: EnqueueTime) -> Option<IndexEntry> {
        self.last_while(|entry| entry.time < time)
    }

    /// An entry at or before the first record with this timestamp or a later one. Timestamps may go back, so the
    /// entries have the latest so far.
    pub(crate) fn seek_timestamp(&self, timestamp: i64) -> Option<IndexEntry> {
        self.last_while(|entry| entry.timestamp_max < timestamp)
    }

    pub(crate) fn first_entry(&self) -> Option<IndexEntry> {
        self.entries.first().copied()
    }

    fn last_while(&self, still: impl Fn(&IndexEntry) -> bool) -> Option<IndexEntry> {
        let count = self.entries.partition_point(still);
        self.entries.get(count.saturating_sub(1)).copied()
    }

    pub(crate) fn first_time(&self) -> Option<EnqueueTime> {
        self.entries.first().map(|entry| entry.time)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(48 + 32 * self.entries.len());
        body.u64_be(self.bytes);
        body.i64_be(self.next.0);
        body.i64_be(self.last_time.map_or(NONE, |time| time.0));
        body.u64_be(self.last_position);
        body.i64_be(self.timestamp_max.unwrap_or(NONE));
        body.u64_be(self.entries.len() as u64);
        for entry in &self.entries {
            body.i64_be(entry.offset.0);
            body.i64_be(entry.time.0);
            body.u64_be(entry.position);
            body.i64_be(entry.timestamp_max);
        }
        body
    }

    /// Reads the output of [`Index::encode`], of this or an earlier version.
    pub(crate) fn decode(
        from: &mut Reader<'_>,
        version: IndexVersion,
    ) -> Result<Index, DecodeError> {
        let bytes = from.u64_be()?;
        let next = Offset(from.i64_be()?);
        let last_time = Some(from.i64_be()?).filter(|time| *time != NONE);
        let last_position = from.u64_be()?;
        let timestamp_max = match version {
            IndexVersion::One => last_time,
            IndexVersion::Two => Some(from.i64_be()?).filter(|time| *time != NONE),
        };
        let count = from.u64_be()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let offset = Offset(from.i64_be()?);
            let time = EnqueueTime(from.i64_be()?);
            entries.push(IndexEntry {
                offset,
                time,
                position: from.u64_be()?,
                timestamp_max: match version {
                    IndexVersion::One => time.0,
                    IndexVersion::Two => from.i64_be()?,
                },
            });
        }
        entries.shrink_to_fit();
        Ok(Index {
            entries,
            bytes,
            next,
            last_time: last_time.map(EnqueueTime),
            last_position,
            timestamp_max,
        })
    }
}

#[cfg(test)]
mod tests {
    use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, NewRecord, TimestampType};
    use proptest::prelude::*;

    use super::*;

    fn header(offset: i64, created: i64, time: i64) -> BatchHeader {
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord {
            key: None,
            value: Some(b"x"),
            headers: &[],
        });
        let options = BatchOptions {
            timestamp: Some(created),
            ..BatchOptions::default()
        };
        let mut batch: Batch = builder.build(&options).unwrap();
        batch.stamp_as(TimestampType::Create, Offset(offset), EnqueueTime(time));
        *batch.header()
    }

    proptest! {
        // proves K4
        #[test]
        fn no_record_of_a_timestamp_is_before_the_entry_that_is_found(
            created in prop::collection::vec(0..50i64, 1..60),
            wanted in 0..55i64,
            interval in 1..400u64,
        ) {
            let mut index = Index::new(Offset(0), None);
            for (offset, created) in created.iter().enumerate() {
                let offset = offset as i64;
                index.push(&header(offset, *created, 1_000 + offset), EnqueueTime(1_000 + offset), 90, interval);
            }
            let first = created.iter().position(|created| *created >= wanted);
            let entry = index.seek_timestamp(wanted).unwrap();
            if let Some(first) = first {
                prop_assert!(entry.offset.0 <= first as i64);
            }
            prop_assert_eq!(index.timestamp_max, created.iter().copied().max());
            let decoded = Index::decode(&mut Reader::new(&index.encode()), IndexVersion::Two);
            prop_assert_eq!(decoded.unwrap(), index);
        }
    }

    #[test]
    fn an_index_of_the_first_version_has_enqueue_times_as_timestamps() {
        let mut body = Vec::new();
        body.u64_be(180);
        body.i64_be(2);
        body.i64_be(1_001);
        body.u64_be(90);
        body.u64_be(2);
        for (offset, time, position) in [(0, 1_000, 0), (1, 1_001, 90)] {
            body.i64_be(offset);
            body.i64_be(time);
            body.u64_be(position);
        }
        let index = Index::decode(&mut Reader::new(&body), IndexVersion::One).unwrap();
        assert_eq!(index.timestamp_max, Some(1_001));
        let offsets = [999, 1_001, 1_002].map(|time| index.seek_timestamp(time).unwrap().offset.0);
        assert_eq!(offsets, [0, 0, 1]);
    }
}
