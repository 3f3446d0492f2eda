//! Numbers, texts and bytes in files and records: a checked [`Reader`] over a slice and a [`Writer`] into a `Vec<u8>`.
//!
//! ```
//! use highwater_codec::{DecodeError, Reader, Writer};
//!
//! let mut out = Vec::new();
//! out.u32(7);
//! out.text_var("name");
//! let mut from = Reader::new(&out);
//! assert_eq!(from.u32(), Ok(7));
//! assert_eq!(from.text_var(), Ok("name"));
//! assert_eq!(from.u8(), Err(DecodeError::Truncated));
//! ```
//!
//! There is no schema in the bytes: a reader calls what the writer called, in the same order. Three families of
//! methods cover the formats in `docs/formats/`:
//!
//! | family | integers | lengths and counts | used by |
//! |---|---|---|---|
//! | `u32`, `count`, `blob` | little-endian | `u64` | checkpoints of jobs, operators and timelines |
//! | `u32_be`, `count_be`, `blob_be` | big-endian | `u32` | files of a partition, records of coordinators |
//! | `varint`, `zigzag`, `blob_var` | LEB128 | varint | journals of queues and workflows |
//!
//! *Invariants:* reading never panics and never reserves memory for a length before the bytes are there, because
//! the bytes may be damaged or of another version. Bytes that a released version has written never change meaning;
//! `tests/formats` holds every release to that.

mod reader;
pub mod varint;
mod writer;

use std::error::Error;
use std::fmt;

pub use reader::Reader;
pub use writer::Writer;

/// Why bytes could not be decoded. Callers add which file, record or state it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the value does.
    Truncated,
    /// So many bytes follow the last value.
    Trailing(usize),
    NotUtf8,
    /// A version, kind or tag that a later version may have written.
    Unknown {
        what: &'static str,
        found: u64,
    },
    Invalid(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("it ends too early"),
            DecodeError::Trailing(count) => write!(f, "it has {count} bytes too many"),
            DecodeError::NotUtf8 => f.write_str("a text is not UTF-8"),
            DecodeError::Unknown { what, found } => {
                write!(
                    f,
                    "{what} {found} is unknown to this version of Highwater: use the one that wrote it, or a later one"
                )
            }
            DecodeError::Invalid(reason) => f.write_str(reason),
        }
    }
}

impl Error for DecodeError {}

impl DecodeError {
    pub fn unknown(what: &'static str, found: impl Into<u64>) -> DecodeError {
        let found = found.into();
        DecodeError::Unknown { what, found }
    }
}
