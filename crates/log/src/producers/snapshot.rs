//! The state of all producers as bytes, so that a partition need not be read from its start to know
//! them again. `docs/formats/producers.md` draws it.

use bytes::BufMut;

use super::entry::{Entry, REMEMBERED, Sent};
use super::{AbortedRange, Producers};
use crate::{EnqueueTime, Offset};

const MAGIC: &[u8; 4] = b"HWPR";
const VERSION: u8 = 1;
const CHECKSUM_LEN: usize = 4;
/// Stands for no number and no offset.
const NONE: i64 = -1;

/// Why bytes are no snapshot of producers. The remedy is to read the log instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("these are no producers, or they were cut off or changed")]
    Damaged,
    #[error("producers were written in version {0}, and only version {VERSION} is read")]
    Version(u8),
}

impl Producers {
    /// The state up to [`Producers::end`]. It is of use after a crash only if the log has at least
    /// that much then: transactions whose markers are in it count as ended.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.entries.len() * 160);
        bytes.put_slice(MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_i64(self.end.0);
        bytes.put_u32(self.entries.len() as u32);
        for (id, entry) in &self.entries {
            put_entry(&mut bytes, *id, entry);
        }
        bytes.put_u32(self.aborted.len() as u32);
        for range in &self.aborted {
            let offsets = [range.first, range.last, range.stable];
            bytes.put_i64(range.producer_id);
            offsets
                .map(|offset| offset.0)
                .iter()
                .for_each(|offset| bytes.put_i64(*offset));
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    pub fn restore(bytes: &[u8]) -> Result<Producers, SnapshotError> {
        let body = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::Damaged)?;
        let content = bytes.len().checked_sub(CHECKSUM_LEN);
        let (content, checksum) = bytes.split_at(content.ok_or(SnapshotError::Damaged)?);
        if crc32c::crc32c(content).to_be_bytes() != checksum {
            return Err(SnapshotError::Damaged);
        }
        let (version, body) = body.split_first().ok_or(SnapshotError::Damaged)?;
        if *version != VERSION {
            return Err(SnapshotError::Version(*version));
        }
        let body = body.len().checked_sub(CHECKSUM_LEN).map(|end| &body[..end]);
        body.and_then(take_all).ok_or(SnapshotError::Damaged)
    }
}

fn put_entry(bytes: &mut Vec<u8>, id: i64, entry: &Entry) {
    bytes.put_i64(id);
    bytes.put_i16(entry.epoch);
    bytes.put_i64(entry.last_time.0);
    bytes.put_i64(entry.next.map_or(NONE, i64::from));
    bytes.put_u32(entry.older);
    bytes.put_i64(entry.open.map_or(NONE, |offset| offset.0));
    bytes.put_u8(entry.batches.len() as u8);
    for sent in &entry.batches {
        bytes.put_i32(sent.sequence);
        bytes.put_i32(sent.last_delta);
        bytes.put_i64(sent.offset.0);
        bytes.put_i64(sent.time.0);
    }
}

/// Takes big-endian numbers from the front.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn i64(&mut self) -> Option<i64> {
        self.bytes().map(i64::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn offset(&mut self) -> Option<Offset> {
        self.i64().map(Offset)
    }
}

fn take_all(body: &[u8]) -> Option<Producers> {
    let mut numbers = Numbers(body);
    let mut producers = Producers::new(numbers.offset()?);
    for _ in 0..numbers.u32()? {
        let id = numbers.i64()?;
        let entry = take_entry(&mut numbers)?;
        producers.open.extend(entry.open);
        producers.entries.insert(id, entry);
    }
    for _ in 0..numbers.u32()? {
        producers.aborted.push(AbortedRange {
            producer_id: numbers.i64()?,
            first: numbers.offset()?,
            last: numbers.offset()?,
            stable: numbers.offset()?,
        });
    }
    numbers.0.is_empty().then_some(producers)
}

fn take_entry(numbers: &mut Numbers<'_>) -> Option<Entry> {
    let mut entry = Entry::new(numbers.bytes().map(i16::from_be_bytes)?);
    entry.last_time = EnqueueTime(numbers.i64()?);
    entry.next = match numbers.i64()? {
        NONE => None,
        next => Some(i32::try_from(next).ok()?),
    };
    entry.older = numbers.u32()?;
    let open = numbers.offset()?;
    entry.open = (open.0 != NONE).then_some(open);
    let [count] = numbers.bytes()?;
    if usize::from(count) > REMEMBERED {
        return None;
    }
    for _ in 0..count {
        entry.batches.push_back(Sent {
            sequence: numbers.i32()?,
            last_delta: numbers.i32().filter(|delta| *delta >= 0)?,
            offset: numbers.offset()?,
            time: EnqueueTime(numbers.i64()?),
        });
    }
    Some(entry)
}
