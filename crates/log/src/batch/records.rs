//! Decodes the records of a batch one by one, in its buffer.
//!
//! Lengths, counts and offsets inside a batch come from a producer and are checked; the checksum proves only that they
//! arrived as sent.

use std::borrow::Cow;

use highwater_codec::varint;

use super::check::DECOMPRESSED_BYTES_MAX;
use super::codec::{Codec, UnpackLimit, decompress};
use super::header::TimestampType;
use super::{BatchError, BatchHeader};
use crate::{EnqueueTime, Offset};

/// A larger buffer is not kept between batches.
const RETAINED_BYTES_MAX: usize = 1 << 20;

/// Unpacks batches into a buffer that it reuses.
#[derive(Clone, Debug)]
pub struct Decompressor {
    buffer: Vec<u8>,
    bytes_max: usize,
}

/// With the limit that producers are held to: a batch that exceeds it is damaged, or older than the limit.
impl Default for Decompressor {
    fn default() -> Decompressor {
        Decompressor::new(DECOMPRESSED_BYTES_MAX)
    }
}

impl Decompressor {
    /// A batch that unpacks to more than `bytes_max` bytes is an error: kilobytes can unpack to gigabytes.
    pub fn new(bytes_max: usize) -> Decompressor {
        Decompressor {
            buffer: Vec::new(),
            bytes_max,
        }
    }

    /// The records of a batch, from its header and the bytes after it.
    pub fn decompress<'a>(
        &'a mut self,
        header: &BatchHeader,
        compressed: &'a [u8],
    ) -> Result<Records<'a>, BatchError> {
        self.decompress_within(header, compressed, &mut |_| true)
    }

    /// Asks `grant` for all bytes that the unpacking needs, before they are allocated. A refusal is
    /// [`BatchError::DecompressedTooLarge`].
    pub(super) fn decompress_within<'a>(
        &'a mut self,
        header: &BatchHeader,
        compressed: &'a [u8],
        grant: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Records<'a>, BatchError> {
        let bytes = match header.codec()? {
            Codec::None => compressed,
            codec => {
                let limit = UnpackLimit {
                    bytes_max: self.bytes_max,
                    grant,
                };
                decompress(codec, compressed, &mut self.buffer, limit)?;
                &self.buffer[..]
            }
        };
        Ok(Records::new(header, bytes))
    }

    /// Drops a large buffer, so that many readers hold little between their batches.
    pub fn release(&mut self) {
        if self.buffer.capacity() > RETAINED_BYTES_MAX {
            self.buffer = Vec::new();
        }
    }
}

/// A record, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub offset: Offset,
    /// Milliseconds since 1970: the enqueue time in a batch of a log that stores it, otherwise the producer's
    /// timestamp.
    pub timestamp: i64,
    /// The producer's timestamp, which a stamp does not change.
    pub created: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: RecordHeaders<'a>,
}

/// Iterates over the records of a batch. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    /// Number of records read.
    index: i32,
    count: i32,
    /// The smallest offset delta that the next record may have.
    delta_min: i32,
    delta_max: i32,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
}

impl<'a> Records<'a> {
    /// `bytes` are not compressed.
    pub(super) fn new(header: &BatchHeader, bytes: &'a [u8]) -> Records<'a> {
        let append_time = match header.timestamp_type() {
            TimestampType::LogAppend => Some(header.max_timestamp()),
            TimestampType::Create => None,
        };
        Records {
            bytes,
            index: 0,
            count: header.count(),
            delta_min: 0,
            delta_max: header.last_offset_delta(),
            base_offset: header.base_offset().0,
            base_timestamp: header.base_timestamp(),
            append_time,
        }
    }

    /// Gives the records this timestamp, if there is one.
    pub(super) fn enqueued_at(mut self, time: Option<EnqueueTime>) -> Records<'a> {
        self.append_time = time.map(|time| time.0).or(self.append_time);
        self
    }

    /// The bytes not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    fn take(&mut self) -> Result<Record<'a>, &'static str> {
        let length = take_int(&mut self.bytes).ok_or("its length is not a varint")?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        let split = self.bytes.split_at_checked(length);
        let (mut body, rest) = split.ok_or("it is longer than the batch")?;
        let record = self.take_body(&mut body)?;
        self.bytes = rest;
        Ok(record)
    }

    fn take_body(&mut self, body: &mut &'a [u8]) -> Result<Record<'a>, &'static str> {
        // Attributes (unused).
        take_bytes(body, 1)?;
        let time = take_long(body).ok_or("its timestamp is not a varint")?;
        let delta = take_int(body).ok_or("its offset is not a varint")?;
        if !(self.delta_min..=self.delta_max).contains(&delta) {
            return Err("its offset is outside the batch or not after the previous one");
        }
        let key = take_nullable(body)?;
        let value = take_nullable(body)?;
        let headers = RecordHeaders::take(body)?;
        if !body.is_empty() {
            return Err("it is shorter than its length");
        }
        // After the largest delta the range above is empty.
        self.delta_min = delta.saturating_add(1);
        if delta == i32::MAX {
            self.delta_max = -1;
        }
        let created = self.base_timestamp.wrapping_add(time);
        Ok(Record {
            offset: Offset(self.base_offset.saturating_add(i64::from(delta))),
            timestamp: self.append_time.unwrap_or(created),
            created,
            key,
            value,
            headers,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.index;
        let taken = match index < self.count {
            true => self.take(),
            false if self.bytes.is_empty() => return None,
            false => Err("the batch has more records than its count"),
        };
        self.index += 1;
        if taken.is_err() {
            (self.index, self.count, self.bytes) = (0, 0, &[]);
        }
        Some(taken.map_err(|reason| BatchError::Record { index, reason }))
    }
}

/// The headers of a record: name and value, in order. Their bounds are checked.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeaders<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> RecordHeaders<'a> {
    fn take(body: &mut &'a [u8]) -> Result<RecordHeaders<'a>, &'static str> {
        let count = take_int(body).ok_or("its header count is not a varint")?;
        let count = usize::try_from(count).map_err(|_| "its header count is negative")?;
        // A header takes at least two bytes, so the record bounds the loop.
        let bytes = *body;
        for _ in 0..count {
            take_nullable(body)?.ok_or("a header has no name")?;
            take_nullable(body)?;
        }
        let bytes = &bytes[..bytes.len() - body.len()];
        Ok(RecordHeaders { bytes, count })
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for RecordHeaders<'a> {
    /// Invalid UTF-8 in a name becomes replacement characters; only that costs an allocation.
    type Item = (Cow<'a, str>, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let name = take_nullable(&mut self.bytes).ok()??;
        let value = take_nullable(&mut self.bytes).ok()?;
        Some((String::from_utf8_lossy(name), value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for RecordHeaders<'_> {}

/// `None` if the varint is truncated or longer than 64 bits.
#[inline]
fn take_long(bytes: &mut &[u8]) -> Option<i64> {
    varint::take(bytes).map(varint::unfold)
}

/// A varint of at most 32 bits.
#[inline]
fn take_int(bytes: &mut &[u8]) -> Option<i32> {
    i32::try_from(take_long(bytes)?).ok()
}

fn take_bytes<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = bytes
        .split_at_checked(length)
        .ok_or("a field is longer than the record")?;
    *bytes = rest;
    Ok(taken)
}

/// Bytes with a length prefix; -1 is null.
#[inline]
fn take_nullable<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    match take_int(bytes).ok_or("a length is not a varint")? {
        -1 => Ok(None),
        length => {
            let length = usize::try_from(length).map_err(|_| "a length is negative")?;
            take_bytes(bytes, length).map(Some)
        }
    }
}
