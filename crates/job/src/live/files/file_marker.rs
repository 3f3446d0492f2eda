//! The record in the log that holds the position in a file; `docs/formats/files.md` has the format.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::SliceKind;
use highwater_env::disk::Stamp;
use highwater_log::batch::RecordHeaders;

/// The record header that holds a marker.
pub(super) const HEADER: &str = "file";

const VERSION: u8 = 1;

/// The position up to which a file has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FilePosition {
    /// Where to continue.
    pub next: u64,
    /// The file is read completely.
    pub is_done: bool,
    /// Identifies the file: a number of its first bytes, and their checksum.
    pub known: u64,
    pub sum: u32,
    /// Size and modification time before the file was read.
    pub stamp: Stamp,
}

impl FilePosition {
    /// The start of a file.
    pub(crate) fn start(stamp: Stamp) -> FilePosition {
        FilePosition {
            stamp,
            ..FilePosition::default()
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.next);
        out.u8(self.is_done.into());
        out.u64(self.known);
        out.u32(self.sum);
        out.i128(self.stamp.modified);
        out.u64(self.stamp.len);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<FilePosition, DecodeError> {
        Ok(FilePosition {
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

/// Precedes the events that were read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::live) struct FileMarker {
    pub file: Arc<str>,
    pub kind: SliceKind,
    pub(super) position: FilePosition,
}

impl FileMarker {
    /// The modification time of the file, in nanoseconds since 1970.
    pub(crate) fn modified(&self) -> i128 {
        self.position.stamp.modified
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
        self.position.write(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Result<FileMarker, DecodeError> {
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
        let position = FilePosition::read(&mut from)?;
        Ok(FileMarker {
            file,
            kind,
            position,
        })
    }

    /// The marker in the headers of a record, if there is one.
    pub(crate) fn of(mut headers: RecordHeaders<'_>) -> Option<Result<FileMarker, DecodeError>> {
        let (_, value) = headers.find(|(name, _)| name == HEADER)?;
        Some(FileMarker::decode(value.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back_and_a_truncated_one_is_refused() {
        let marker = FileMarker {
            file: "in/ä.csv".into(),
            kind: SliceKind::Csv { delimiter: b';' },
            position: FilePosition {
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
        let bytes = marker.encode();
        assert_eq!(FileMarker::decode(&bytes), Ok(marker));
        for end in 0..bytes.len() {
            FileMarker::decode(&bytes[..end]).unwrap_err();
        }
    }
}
