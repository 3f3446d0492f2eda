//! Serializes [`ProducerStates`], so that recovery need not read a partition from its start.
//! `docs/formats/producers.md` has the layout.

use highwater_codec::{DecodeError, Reader, Writer};

use super::entry::{BATCHES_MAX, BatchMetadata, ProducerEntry};
use super::{AbortedRange, ProducerStates};
use crate::{EnqueueTime, Offset};

const MAGIC: &[u8; 4] = b"HWPR";
const VERSION: u8 = 1;
const CHECKSUM_LEN: usize = 4;
/// No sequence number or offset.
const NONE: i64 = -1;

/// Why bytes are not a snapshot. The caller reads the log instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("not a producer snapshot, or truncated or changed")]
    Damaged,
    #[error("the producer snapshot has version {0}, and only version {VERSION} is supported")]
    Version(u8),
}

impl ProducerStates {
    /// The state up to [`ProducerStates::end`]. After a crash it is valid only if the log reaches that offset:
    /// transactions whose markers it includes count as ended.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.entries.len() * 160);
        bytes.raw(MAGIC);
        bytes.u8(VERSION);
        bytes.i64_be(self.end.0);
        bytes.u32_be(self.entries.len() as u32);
        for (id, entry) in &self.entries {
            put_entry(&mut bytes, *id, entry);
        }
        bytes.u32_be(self.aborted.len() as u32);
        for range in &self.aborted {
            let offsets = [range.first, range.last, range.stable];
            bytes.i64_be(range.producer_id);
            offsets
                .map(|offset| offset.0)
                .iter()
                .for_each(|offset| bytes.i64_be(*offset));
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.u32_be(checksum);
        bytes
    }

    pub fn restore(bytes: &[u8]) -> Result<ProducerStates, SnapshotError> {
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
        let body = body.ok_or(SnapshotError::Damaged)?;
        read_all(body).map_err(|_| SnapshotError::Damaged)
    }
}

fn put_entry(bytes: &mut Vec<u8>, id: i64, entry: &ProducerEntry) {
    bytes.i64_be(id);
    bytes.i16_be(entry.epoch);
    bytes.i64_be(entry.last_time.0);
    bytes.i64_be(entry.next.map_or(NONE, i64::from));
    bytes.u32_be(entry.older);
    bytes.i64_be(entry.open.map_or(NONE, |offset| offset.0));
    bytes.u8(entry.batches.len() as u8);
    for sent in &entry.batches {
        bytes.i32_be(sent.sequence);
        bytes.i32_be(sent.last_delta);
        bytes.i64_be(sent.offset.0);
        bytes.i64_be(sent.time.0);
    }
}

fn read_all(body: &[u8]) -> Result<ProducerStates, DecodeError> {
    let mut from = Reader::new(body);
    let mut producers = ProducerStates::new(read_offset(&mut from)?);
    for _ in 0..from.u32_be()? {
        let id = from.i64_be()?;
        let entry = read_entry(&mut from)?;
        producers.open.extend(entry.open);
        producers.entries.insert(id, entry);
        producers.list(id);
    }
    for _ in 0..from.u32_be()? {
        producers.aborted.push(AbortedRange {
            producer_id: from.i64_be()?,
            first: read_offset(&mut from)?,
            last: read_offset(&mut from)?,
            stable: read_offset(&mut from)?,
        });
    }
    from.end()?;
    Ok(producers)
}

fn read_offset(from: &mut Reader<'_>) -> Result<Offset, DecodeError> {
    from.i64_be().map(Offset)
}

fn read_entry(from: &mut Reader<'_>) -> Result<ProducerEntry, DecodeError> {
    let mut entry = ProducerEntry::new(from.i16_be()?);
    entry.last_time = EnqueueTime(from.i64_be()?);
    entry.next = match from.i64_be()? {
        NONE => None,
        next => Some(i32::try_from(next).map_err(|_| DecodeError::Invalid("a sequence number"))?),
    };
    entry.older = from.u32_be()?;
    let open = read_offset(from)?;
    entry.open = (open.0 != NONE).then_some(open);
    let count = from.u8()?;
    if usize::from(count) > BATCHES_MAX {
        return Err(DecodeError::Invalid("too many batches of a producer"));
    }
    for _ in 0..count {
        let sent = BatchMetadata {
            sequence: from.i32_be()?,
            last_delta: from.i32_be()?,
            offset: read_offset(from)?,
            time: EnqueueTime(from.i64_be()?),
        };
        if sent.last_delta < 0 {
            return Err(DecodeError::Invalid("a batch without records"));
        }
        entry.batches.push_back(sent);
    }
    Ok(entry)
}
