//! Kafka record batches of version 2: checked, stamped and put together without taking their records
//! apart.
//!
//! A batch comes from a producer ([`Batch::parse`]) or from a [`BatchBuilder`], is stamped with the place
//! and the time that the log gives it ([`Batch::stamp`]), lies on the disk and travels among others
//! ([`Batches`]), and is read at last ([`Records`]). `docs/formats/batch.md` draws it byte by byte.

mod builder;
mod codec;
mod control;
mod crc;
mod header;
mod records;
mod retain;
mod skip;
#[cfg(test)]
mod tests;
mod walk;

use bytes::{Bytes, BytesMut};

use crate::{EnqueueTime, Offset, Producer};

pub use builder::{BatchBuilder, BatchOptions};
pub use codec::Codec;
pub use header::{BatchHeader, TimestampType};
pub use records::{Decompressor, Record, RecordHeaders, Records};
pub use retain::RetainResult;
pub use skip::ReadCommittedFilter;
pub use walk::{Batches, CorruptBatch, StoredBatch};

pub use header::sequence_after;

/// The bytes of a batch before its records.
pub const HEADER_LEN: usize = 61;

/// Where the length ends, which counts what follows it.
const LENGTH_END: usize = 12;

/// A whole batch whose checksum is right. The header is a copy, so that offsets and times can be
/// written into it while the records stay where they are.
#[derive(Clone, Debug)]
pub struct Batch {
    header: BatchHeader,
    records: Bytes,
}

impl Batch {
    /// The first batch of what a producer sent, checked, and what follows it. The records are read
    /// once, for the checksum, and are not copied.
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
        Ok((Batch { header, records }, rest))
    }

    /// Gives the batch its place and its time in the log. Costs the same for any number of records.
    pub fn stamp(&mut self, base_offset: Offset, time: EnqueueTime) {
        self.header.stamp(base_offset, time, self.records.len());
    }

    /// Gives the batch a producer and a number, so that a repeat of it is known for one. Costs the
    /// same for any number of records.
    pub fn assign_sequence(&mut self, producer: Producer, sequence: i32) {
        self.header
            .assign_sequence(producer, sequence, self.records.len());
    }

    /// Gives its records this time, if the producer gave them none; a log that stamps what it takes in
    /// replaces it. Costs the same for any number of records.
    pub fn default_timestamp(&mut self, timestamp: i64) {
        if self.header.max_timestamp() < 0 {
            self.header.set_timestamps(timestamp, self.records.len());
        }
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// What follows the header, packed or not.
    pub fn payload(&self) -> &Bytes {
        &self.records
    }

    /// All bytes of it, header included.
    pub fn size(&self) -> usize {
        HEADER_LEN + self.records.len()
    }

    /// The first and the second part of what goes to the disk.
    pub fn parts(&self) -> [&[u8]; 2] {
        [self.header.as_bytes(), &self.records]
    }

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
    /// `None` removes the key from a compacted hub.
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// What is wrong with a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Cut off: at the end of a segment, a write that a crash interrupted.
    #[error("it has {have} bytes where {need} are needed")]
    Short { have: usize, need: usize },
    #[error("its length cannot be {0}")]
    Length(i32),
    #[error("a batch of {size} bytes is longer than the format allows")]
    TooLong { size: usize },
    #[error("it is of version {0}, and only version 2 is read")]
    Magic(i8),
    #[error("its checksum is wrong")]
    Checksum,
    #[error("no codec has the number {0}")]
    Codec(u8),
    #[error("it says that it has {count} records and that the last is number {last_offset_delta}")]
    Count { count: i32, last_offset_delta: i32 },
    #[error("only the log itself writes control batches")]
    Control,
    #[error("its producer gave it no epoch or no number, or it is of a transaction of nobody")]
    Unnumbered,
    #[error("its producer has a transaction open here, to which it does not belong")]
    OutsideTransaction,
    #[error("its first offset is {found} where {expected} was due")]
    Offset { expected: Offset, found: Offset },
    #[error("its leader epoch is {0}, and this log has only 0")]
    LeaderEpoch(i32),
    #[error("its records could not be unpacked ({codec:?}): {reason}")]
    Compression { codec: Codec, reason: String },
    #[error("its records unpack to more than {max} bytes")]
    DecompressedTooLarge { max: usize },
    #[error("it is a control batch of an unknown kind")]
    Marker,
    #[error("record {index} is malformed: {reason}")]
    Record { index: i32, reason: &'static str },
}
