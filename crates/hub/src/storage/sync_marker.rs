//! The sync marker: the synced length of the last segment.
//!
//! After a crash the end of a log may be torn. That is no damage, because the append was not answered. Invalid bytes
//! before that end are damage: truncating the log there would lose acknowledged records. The marker tells the two
//! apart. It is written after every sync but not synced itself: after `kill -9` it is exact, after a power cut it may
//! be older, never newer.
//!
//! It alternates between two slots in two sectors, so that a torn write leaves the other slot.
//!
//! ```text
//! 0..4    CRC-32C of the rest of the slot
//! 4..12   number of the write; the larger one is valid
//! 12..20  base offset of the segment
//! 20..28  synced bytes of the segment
//! ```

use std::io;

use highwater_codec::{DecodeError, Reader};
use highwater_env::disk::DiskFile;
use highwater_log::Offset;

pub(super) const FILE: &str = "synced";

const SLOT: usize = 28;
const SLOTS_AT: [usize; 2] = [0, 512];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyncMarker {
    pub number: u64,
    pub segment: Offset,
    pub bytes: u64,
}

impl SyncMarker {
    /// The marker of a partition without a segment, or whose segment name may not be durable.
    pub(super) fn nothing(number: u64) -> SyncMarker {
        SyncMarker {
            number,
            segment: Offset(-1),
            bytes: 0,
        }
    }

    pub(super) fn write(&self, file: &dyn DiskFile) -> io::Result<()> {
        let at = SLOTS_AT[(self.number % 2) as usize];
        file.write_all_at(&[&self.encode()], at as u64)
    }

    /// The newest valid marker.
    pub(super) fn read(file: &dyn DiskFile) -> io::Result<Option<SyncMarker>> {
        let mut bytes = [0; SLOTS_AT[1] + SLOT];
        let count = file.read_full_at(&mut bytes, 0)?;
        let slots = SLOTS_AT
            .iter()
            .filter_map(|at| bytes[..count].get(*at..at + SLOT));
        let marks = slots.filter_map(|slot| SyncMarker::decode(slot).ok().flatten());
        Ok(marks.max_by_key(|mark| mark.number))
    }

    fn encode(&self) -> [u8; SLOT] {
        let mut slot = [0; SLOT];
        slot[4..12].copy_from_slice(&self.number.to_be_bytes());
        slot[12..20].copy_from_slice(&self.segment.0.to_be_bytes());
        slot[20..28].copy_from_slice(&self.bytes.to_be_bytes());
        let crc = crc32c::crc32c(&slot[4..]);
        slot[..4].copy_from_slice(&crc.to_be_bytes());
        slot
    }

    fn decode(slot: &[u8]) -> Result<Option<SyncMarker>, DecodeError> {
        let mut fields = Reader::new(slot);
        let crc = fields.u32_be()?;
        let mark = SyncMarker {
            number: fields.u64_be()?,
            segment: Offset(fields.i64_be()?),
            bytes: fields.u64_be()?,
        };
        Ok((crc == crc32c::crc32c(&slot[4..])).then_some(mark))
    }
}
