//! Kafka record batches of version 2: checked, stamped and built without decoding their records.
//!
//! A batch comes from a producer ([`Batch::parse`]) or a [`BatchBuilder`], receives its offset and enqueue time from
//! the log ([`Batch::stamp`]), is stored and fetched among others ([`Batches`]), and is decoded by a reader
//! ([`Records`]). `docs/formats/batch.md` has the layout.

mod batches;
mod builder;
mod check;
mod codec;
mod compacted;
mod control;
mod crc;
mod header;
mod read_committed;
mod records;
mod repack;
#[cfg(test)]
mod tests;
mod time_frame;
mod timestamps;

use bytes::{Bytes, BytesMut};

use crate::{EnqueueTime, Offset, Producer};

pub use batches::{Batches, CorruptBatch, StoredBatch};
pub use builder::{BatchBuilder, BatchOptions};
pub use check::RecordSummary;
pub use codec::{Codec, unpack};
pub use compacted::RetainResult;
pub use header::{BatchHeader, TimestampType};
pub use read_committed::ReadCommittedFilter;
pub use records::{Decompressor, Record, RecordHeaders, Records};
pub use time_frame::without_frames;

pub use header::sequence_after;

use time_frame::TimeFrame;

/// Size of the header.
pub const HEADER_LEN: usize = 61;

/// End of the length field; the length counts the bytes after it.
const LENGTH_END: usize = 12;

/// A complete batch with a valid checksum. The header is a copy, so that offsets and times can be set while the records
/// stay in their buffer.
#[derive(Clone, Debug)]
pub struct Batch {
    header: BatchHeader,
    records: Bytes,
    /// The enqueue time of a stamped batch that keeps its producer's timestamps.
    time: Option<TimeFrame>,
}

impl Batch {
    /// The first batch of a producer's bytes, checked, and the bytes after it. The records are read once, for the
    /// checksum, and not copied.
    pub fn parse(mut bytes: Bytes) -> Result<(Batch, Bytes), BatchError> {
        let header = BatchHeader::read(&bytes)?;
        let need = header.size()?;
        if bytes.len() < need {
            let have = bytes.len();
            return Err(BatchError::Short { have, need });
        }
        header.check_shape()?;
        header.check_sent()?;
        let rest = bytes.split_off(need);
        let records = bytes.split_off(HEADER_LEN);
        header.check_crc(&records)?;
        let batch = Batch {
            header,
            records,
            time: None,
        };
        Ok((batch, rest))
    }

    /// Sets offset and enqueue time, which becomes the timestamp of every record. The cost is independent of the number
    /// of records.
    pub fn stamp(&mut self, base_offset: Offset, time: EnqueueTime) {
        self.stamp_as(TimestampType::LogAppend, base_offset, time);
    }

    /// Sets offset and enqueue time. With [`TimestampType::Create`] the records keep their producer's timestamps,
    /// unless it set none; control batches have none. The cost is independent of the number of records.
    pub fn stamp_as(&mut self, kind: TimestampType, base_offset: Offset, time: EnqueueTime) {
        let records_len = self.records.len();
        match kind {
            TimestampType::Create if !self.header.is_control() => {
                self.header.stamp_created(base_offset, time, records_len);
                self.time = Some(TimeFrame::new(time));
            }
            _ => {
                self.header.stamp(base_offset, time, records_len);
                self.time = None;
            }
        }
    }

    /// When the log appended the batch; valid only after a log stamped it.
    pub fn enqueue_time(&self) -> EnqueueTime {
        let frame = self.time.map(|frame| frame.time());
        frame.unwrap_or(EnqueueTime(self.header.max_timestamp()))
    }

    /// Corrects the latest timestamp, which a producer may have set to anything. The cost is independent of the number
    /// of records.
    pub fn set_max_timestamp(&mut self, timestamp: i64) {
        if self.header.max_timestamp() != timestamp {
            self.header
                .change_max_timestamp(timestamp, self.records.len());
        }
    }

    /// Sets the producer and the sequence number, so that a repeat is recognized. The cost is independent of the number
    /// of records.
    pub fn assign_sequence(&mut self, producer: Producer, sequence: i32) {
        self.header
            .assign_sequence(producer, sequence, self.records.len());
    }

    /// Sets the timestamp of the records, if the producer set none. A log that stamps batches replaces it. The cost is
    /// independent of the number of records.
    pub fn default_timestamp(&mut self, timestamp: i64) {
        if self.header.max_timestamp() < 0 {
            self.header.set_timestamps(timestamp, self.records.len());
        }
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The bytes after the header, compressed or not.
    pub fn payload(&self) -> &Bytes {
        &self.records
    }

    /// The size in bytes, header included.
    pub fn size(&self) -> usize {
        HEADER_LEN + self.records.len()
    }

    /// The size on the disk.
    pub fn stored_size(&self) -> usize {
        self.stored_parts().iter().map(|part| part.len()).sum()
    }

    /// Enqueue time if the header does not have it, header and records, as they are written to the disk.
    pub fn stored_parts(&self) -> [&[u8]; 3] {
        let frame = self.time.as_ref().map(|frame| &frame.as_bytes()[..]);
        [
            frame.unwrap_or_default(),
            self.header.as_bytes(),
            &self.records,
        ]
    }

    /// The batch as Kafka clients send and receive it.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.size());
        bytes.extend_from_slice(self.header.as_bytes());
        bytes.extend_from_slice(&self.records);
        bytes.freeze()
    }

    pub fn records<'a>(
        &'a self,
        decompressor: &'a mut Decompressor,
    ) -> Result<Records<'a>, BatchError> {
        decompressor.decompress(&self.header, &self.records)
    }
}

/// A record that has no batch yet.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    pub key: Option<&'a [u8]>,
    /// `None` deletes the key from a compacted hub.
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Why a batch is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The end is missing: at the end of a segment, a write that a crash interrupted.
    #[error("it has {have} of {need} bytes")]
    Short { have: usize, need: usize },
    #[error("its length {0} is invalid")]
    Length(i32),
    #[error("a batch of {size} bytes is longer than the format allows")]
    TooLong { size: usize },
    #[error("its version is {0}, and only version 2 is supported")]
    Magic(i8),
    #[error("its checksum is wrong")]
    Checksum,
    #[error("codec {0} is unknown")]
    Codec(u8),
    #[error("a count of {count} records contradicts a last offset delta of {last_offset_delta}")]
    Count { count: i32, last_offset_delta: i32 },
    #[error("only the log itself writes control batches")]
    Control,
    #[error(
        "it has a producer without epoch or sequence number, or a transaction without producer"
    )]
    Unnumbered,
    #[error("its producer has an open transaction here, and the batch is outside of it")]
    OutsideTransaction,
    #[error("its first offset is {found}, expected {expected}")]
    Offset { expected: Offset, found: Offset },
    #[error("its leader epoch is {0}, and this log has only 0")]
    LeaderEpoch(i32),
    #[error("its records could not be unpacked ({codec:?}): {reason}")]
    Compression { codec: Codec, reason: String },
    #[error("its records unpack to more than {max} bytes")]
    DecompressedTooLarge { max: usize },
    #[error("its control type is unknown")]
    Marker,
    #[error("record {index} is malformed: {reason}")]
    Record { index: i32, reason: &'static str },
}
