//! Says in the log itself how far a file has been taken. `docs/formats/files.md` draws it.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::SliceKind;
use highwater_env::disk::Stamp;
use highwater_log::batch::RecordHeaders;

/// The header that a mark is in.
pub(super) const HEADER: &str = "file";

const VERSION: u8 = 1;

/// How far a file has been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Where the next cut begins.
    pub next: u64,
    /// There is nothing more to take.
    pub is_done: bool,
    /// What tells the file from another one of its name: so many of its first bytes, and their checksum.
    pub known: u64,
    pub sum: u32,
    /// As it was seen before it was taken.
    pub stamp: Stamp,
}

impl Taken {
    /// Nothing of a file that looks like this.
    pub fn of(stamp: Stamp) -> Taken {
        Taken {
            stamp,
            ..Taken::default()
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.next);
        out.u8(self.is_done.into());
        out.u64(self.known);
        out.u32(self.sum);
        out.i128(self.stamp.modified);
        out.u64(self.stamp.len);
    }

    pub fn read(from: &mut Reader<'_>) -> Result<Taken, DecodeError> {
        Ok(Taken {
            next: from.u64()?,
            is_done: from.u8()? != 0,
            known: from.u64()?,
            sum: from.u32()?,
            stamp: Stamp {
                modified: from.i128()?,
                len: from.u64()?,
            },
        })
    }
}

/// Stands before the events that were taken of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::live) struct Mark {
    pub file: Arc<str>,
    pub kind: SliceKind,
    pub(super) taken: Taken,
}

impl Mark {
    /// When the file had last been written to, in nanoseconds since 1970.
    pub fn modified(&self) -> i128 {
        self.taken.stamp.modified
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.u8(VERSION);
        out.text(&self.file);
        let (kind, delimiter) = match self.kind {
            SliceKind::Json => (0, 0),
            SliceKind::Csv { delimiter } => (1, delimiter),
            SliceKind::Table => (2, 0),
        };
        out.u8(kind);
        out.u8(delimiter);
        self.taken.write(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Mark, DecodeError> {
        let mut from = Reader::new(bytes);
        from.version(VERSION)?;
        let file = from.text()?.into();
        let (kind, delimiter) = (from.u8()?, from.u8()?);
        let kind = match kind {
            0 => SliceKind::Json,
            1 => SliceKind::Csv { delimiter },
            2 => SliceKind::Table,
            other => return Err(DecodeError::unknown("a kind of file", other)),
        };
        let taken = Taken::read(&mut from)?;
        Ok(Mark { file, kind, taken })
    }

    /// The mark in the headers of a record, if there is one.
    pub fn of(mut headers: RecordHeaders<'_>) -> Option<Result<Mark, DecodeError>> {
        let (_, value) = headers.find(|(name, _)| name == HEADER)?;
        Some(Mark::decode(value.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_no_part_of_one_is() {
        let mark = Mark {
            file: "in/ä.csv".into(),
            kind: SliceKind::Csv { delimiter: b';' },
            taken: Taken {
                next: 7,
                is_done: true,
                known: 4,
                sum: 9,
                stamp: Stamp {
                    modified: -5,
                    len: 12,
                },
            },
        };
        let bytes = mark.encode();
        assert_eq!(Mark::decode(&bytes), Ok(mark));
        for end in 0..bytes.len() {
            Mark::decode(&bytes[..end]).unwrap_err();
        }
    }
}
