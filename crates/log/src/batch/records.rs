//! The records of a batch, read one by one where they lie.
//!
//! Nothing is believed: lengths, counts and offsets inside a batch come from a producer, and its
//! checksum only says that they arrived as sent.

use std::borrow::Cow;

use highwater_codec::varint;

use super::codec::{Codec, decompress};
use super::header::TimestampType;
use super::{BatchError, BatchHeader};
use crate::Offset;

/// Unpacks batches into a buffer that is kept for the next one.
#[derive(Clone, Debug)]
pub struct Decompressor {
    buffer: Vec<u8>,
    bytes_max: usize,
}

impl Decompressor {
    /// A batch that would unpack to more than `bytes_max` bytes is an error: a few kilobytes can be
    /// made to hold gigabytes.
    pub fn new(bytes_max: usize) -> Decompressor {
        Decompressor {
            buffer: Vec::new(),
            bytes_max,
        }
    }

    /// The records of a batch, given its header and what follows it.
    pub fn decompress<'a>(
        &'a mut self,
        header: &BatchHeader,
        compressed: &'a [u8],
    ) -> Result<Records<'a>, BatchError> {
        let bytes = match header.codec()? {
            Codec::None => compressed,
            codec => {
                decompress(codec, compressed, &mut self.buffer, self.bytes_max)?;
                &self.buffer[..]
            }
        };
        Ok(Records::new(header, bytes))
    }
}

/// A record where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub offset: Offset,
    /// Milliseconds since 1970: the enqueue time in a batch that a log has stamped, otherwise the
    /// producer's.
    pub timestamp: i64,
    /// The time that the producer gave it, which a stamp does not remove.
    pub created: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: RecordHeaders<'a>,
}

/// Walks over the records of a batch. After the first error there is nothing more.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    /// Records that have been read.
    index: i32,
    count: i32,
    /// The least that the next offset can be, counted from the first.
    delta_min: i32,
    delta_max: i32,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
}

impl<'a> Records<'a> {
    /// `bytes` are unpacked already.
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

    /// What has not been read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    fn take(&mut self) -> Result<Record<'a>, &'static str> {
        let length = take_int(&mut self.bytes).ok_or("its length is no number")?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        let split = self.bytes.split_at_checked(length);
        let (mut body, rest) = split.ok_or("it is longer than the batch")?;
        let record = self.take_body(&mut body)?;
        self.bytes = rest;
        Ok(record)
    }

    fn take_body(&mut self, body: &mut &'a [u8]) -> Result<Record<'a>, &'static str> {
        // Attributes, of which none are in use.
        take_bytes(body, 1)?;
        let time = take_long(body).ok_or("its time is no number")?;
        let delta = take_int(body).ok_or("its offset is no number")?;
        if !(self.delta_min..=self.delta_max).contains(&delta) {
            return Err("its offset is not in the batch, or not after the one before");
        }
        let key = take_nullable(body)?;
        let value = take_nullable(body)?;
        let headers = RecordHeaders::take(body)?;
        if !body.is_empty() {
            return Err("it is shorter than it says");
        }
        // At the largest delta the range above is empty from here on.
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
            false => Err("it is one more than the batch should have"),
        };
        self.index += 1;
        if taken.is_err() {
            (self.index, self.count, self.bytes) = (0, 0, &[]);
        }
        Some(taken.map_err(|reason| BatchError::Record { index, reason }))
    }
}

/// The headers of a record: name and value, in order. They have been checked to be whole.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeaders<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> RecordHeaders<'a> {
    fn take(body: &mut &'a [u8]) -> Result<RecordHeaders<'a>, &'static str> {
        let count = take_int(body).ok_or("its number of headers is none")?;
        let count = usize::try_from(count).map_err(|_| "it has less than no headers")?;
        // A header takes two bytes at least, so the loop is bounded by the record.
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
    /// A name that is not UTF-8 has replacement characters; no other costs an allocation.
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

/// `None` if it is truncated or does not fit into 64 bits.
#[inline]
fn take_long(bytes: &mut &[u8]) -> Option<i64> {
    varint::take(bytes).map(varint::unfold)
}

/// The same for a number that must fit into 32 bits.
#[inline]
fn take_int(bytes: &mut &[u8]) -> Option<i32> {
    i32::try_from(take_long(bytes)?).ok()
}

fn take_bytes<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = bytes
        .split_at_checked(length)
        .ok_or("a part is longer than the record")?;
    *bytes = rest;
    Ok(taken)
}

/// Bytes with their length before them; -1 is null.
#[inline]
fn take_nullable<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    match take_int(bytes).ok_or("a length is no number")? {
        -1 => Ok(None),
        length => {
            let length = usize::try_from(length).map_err(|_| "a length is negative")?;
            take_bytes(bytes, length).map(Some)
        }
    }
}
