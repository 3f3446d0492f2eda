//! Kafka record batches of version 2: checked, stamped and put together without taking their records
//! apart.

use bytes::Bytes;

/// The bytes of a batch before its records.
pub const HEADER_LEN: usize = 61;

/// A whole batch: checked, uncompressed or not, as a producer sent it or as it is stored. The header
/// is a copy, so that offsets and times can be written into it while the records stay where they
/// are.
#[derive(Clone, Debug)]
pub struct Batch {
    pub header: [u8; HEADER_LEN],
    pub records: Bytes,
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
    #[error("it has {have} bytes where {need} are needed")]
    Short { have: usize, need: usize },
    #[error("its checksum is wrong")]
    Checksum,
}
