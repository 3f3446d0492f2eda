//! Slices a file into values that can be stored on a log and decoded alone, in any order.
//!
//! A file that grows cannot be given to a [`Source`](crate::Source), which reads to the end. Its follower reads the
//! available part, remembers the position, and continues there later, perhaps in another process. So a [`FileSlicer`]
//! starts anywhere, and every [`FileSlice`] has the position of the next one. JSON lines are values as they are; a run
//! of CSV records becomes a small file with the header prepended; Avro and Parquet files cannot be split and become
//! tables (`table.rs`). [`ValueDecoder`](crate::ValueDecoder) decodes all of them.

mod csv;
mod json;
mod table;
mod text_reader;

use std::io::ErrorKind;
use std::path::Path;

pub(crate) use table::TableValue;

use crate::bytes::{FileBytes, by_name};
use crate::source::{BadEvent, BadKind, Compression, Format, Level, extension};
use crate::{CsvFormat, ReadError};

/// About how many bytes a slice holds.
const SLICE_BYTES: usize = 1 << 20;
/// About how many bytes a value with several events holds.
const VALUE_BYTES: usize = 256 << 10;
/// A longer line is a bad line.
const LINE_BYTES_MAX: usize = 16 << 20;

/// How the files of an input are encoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct SliceOptions {
    /// `None`: by the name of each file.
    pub format: Option<Format>,
    pub compression: Compression,
    pub level: Level,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSlice {
    pub kind: SliceKind,
    values: Vec<u8>,
    /// Where each value ends.
    ends: Vec<usize>,
    /// Where the next slice starts, in a unit that only a slicer of the same file knows.
    pub next: u64,
    /// Nothing after this slice can be read.
    pub is_end: bool,
}

/// The encoding of a slice's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceKind {
    /// JSON texts.
    Json,
    /// CSV files with a header.
    Csv { delimiter: u8 },
    /// Rows of a table, and errors.
    Table,
}

impl FileSlice {
    fn new(kind: SliceKind, next: u64) -> FileSlice {
        FileSlice {
            kind,
            values: Vec::new(),
            ends: Vec::new(),
            next,
            is_end: false,
        }
    }

    /// A slice with one unreadable event.
    fn of_bad(bad: BadEvent, next: u64) -> FileSlice {
        let mut slice = FileSlice::new(SliceKind::Table, next);
        slice.push(&[&table::encode(&table::Rows::default(), &[bad])]);
        slice
    }

    fn push(&mut self, parts: &[&[u8]]) {
        parts
            .iter()
            .for_each(|part| self.values.extend_from_slice(part));
        self.ends.push(self.values.len());
    }

    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.values[start..*end])
    }

    /// The size of all values.
    pub fn bytes(&self) -> usize {
        self.values.len()
    }
}

impl SliceOptions {
    fn format(&self, path: &Path) -> Format {
        let named_lines = matches!(&extension(path)[..], "jsonl" | "ndjson");
        match self.format.unwrap_or_else(|| Format::of_name(path)) {
            Format::Json if named_lines => Format::JsonLines,
            format => format,
        }
    }

    /// Whether the start of such a file can be read while the file still grows.
    pub fn may_grow(&self, path: &Path) -> bool {
        let in_lines = matches!(self.format(path), Format::JsonLines | Format::Csv(_));
        in_lines && by_name(self.compression, path) == Compression::None
    }

    /// Whether the file is part of the input, by its name.
    pub fn matches(&self, path: &Path) -> bool {
        let known = [
            Format::Json,
            Format::Csv(CsvFormat::default()),
            Format::Avro,
            Format::Parquet,
        ];
        match self.format {
            Some(format) => format.matches(path),
            None => known.iter().any(|format| format.matches(path)),
        }
    }

    /// Starts at `from`: 0 or the `next` of a slice of the same file.
    pub fn open(&self, path: &Path, from: u64) -> Result<FileSlicer, ReadError> {
        match self.slices(path, from) {
            Ok(slices) => Ok(FileSlicer(State::Reading(slices))),
            Err(error) => match broken(&error, from) {
                Some(slice) => Ok(FileSlicer(State::Broken(slice))),
                None => Err(error),
            },
        }
    }

    fn slices(&self, path: &Path, from: u64) -> Result<Box<dyn SliceReader>, ReadError> {
        Ok(match self.format(path) {
            format @ (Format::Avro | Format::Parquet) => {
                Box::new(table::TableReader::open(path, format, self, from)?)
            }
            Format::Csv(csv) => Box::new(csv::RecordReader::open(path, csv, self, from)?),
            Format::JsonLines => Box::new(json::LineReader::open(path, self, from)?),
            Format::Json => json::open(path, self, from)?,
        })
    }

    fn bytes(&self, path: &Path) -> Result<FileBytes, ReadError> {
        FileBytes::open(path, self.compression)
    }
}

/// Slices one file of one format.
trait SliceReader: Send {
    /// The next slice. `last` if the file is complete.
    fn next(&mut self, last: bool) -> Result<Option<FileSlice>, ReadError>;

    /// The position reached.
    fn at(&self) -> u64;
}

/// A file that is being sliced.
pub struct FileSlicer(State);

enum State {
    Reading(Box<dyn SliceReader>),
    /// The file is not of its format; holds the slice that reports it.
    Broken(FileSlice),
    Ended,
}

impl FileSlicer {
    /// The next slice; `None` if there is none for now or, with `last` (the file is complete), none at all. A file that
    /// is not of its format ends with a slice that reports it. Errors are I/O errors.
    pub fn next(&mut self, last: bool) -> Result<Option<FileSlice>, ReadError> {
        let slice = match &mut self.0 {
            State::Ended => return Ok(None),
            State::Reading(slices) => match slices.next(last) {
                Err(error) => broken(&error, slices.at()).ok_or(error)?,
                slice => return slice,
            },
            State::Broken(slice) => slice.clone(),
        };
        self.0 = State::Ended;
        Ok(Some(slice))
    }
}

/// A slice that reports why nothing from `at` on can be read; `None` if the disk is to blame.
fn broken(error: &ReadError, at: u64) -> Option<FileSlice> {
    let bad = BadEvent {
        line: 0,
        kind: kind_of(error)?,
        reason: error.to_string(),
        text: String::new(),
    };
    Some(FileSlice {
        is_end: true,
        ..FileSlice::of_bad(bad, at)
    })
}

/// The kind of data error, if reading again would not help.
fn kind_of(error: &ReadError) -> Option<BadKind> {
    let ReadError::Read { source, .. } = error else {
        return error.kind();
    };
    let of_contents = matches!(
        source.kind(),
        ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof
    );
    of_contents.then_some(BadKind::InvalidData)
}

#[cfg(test)]
mod tests;
