//! A file cut into values that can be kept on a log and read back alone, in any order and by anybody.
//!
//! Who follows a file that grows cannot hand it to a [`Source`](crate::Source), which reads to the end: it takes what is
//! there, remembers how far it has come, and goes on from there later, perhaps in another process. So a [`Cutter`] begins
//! anywhere and says with every [`Cut`] where the next one begins. Lines of JSON are values as they are; a run of CSV
//! records becomes a small file with the header on top; Avro and Parquet, which cannot be cut, become tables
//! (`table.rs`). [`Values`](crate::Values) reads all of them.

mod csv;
mod json;
mod table;
mod text;

use std::io::ErrorKind;
use std::path::Path;

pub(crate) use table::Part;

use crate::bytes::{FileBytes, by_name};
use crate::source::{BadEvent, BadKind, Compression, Format, Level, extension};
use crate::{CsvFormat, ReadError};

/// About how much a cut holds.
const CUT_BYTES: usize = 1 << 20;
/// About how much one value holds where several events share one.
const VALUE_BYTES: usize = 256 << 10;
/// A longer line is a bad line.
const LINE_BYTES_MAX: usize = 16 << 20;

/// How the files of an input are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cutting {
    /// `None`: by the name of each file.
    pub format: Option<Format>,
    pub compression: Compression,
    pub level: Level,
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub kind: CutKind,
    values: Vec<u8>,
    /// Where each value ends.
    ends: Vec<usize>,
    /// Where the next cut begins. Only a cutter of the same file knows what it counts.
    pub next: u64,
    /// Nothing behind it can be read.
    pub is_end: bool,
}

/// What the values of a cut are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutKind {
    /// Each a text of JSON.
    Json,
    /// Each a header and records.
    Csv { delimiter: u8 },
    /// Each the rows of a table and what was no row.
    Table,
}

impl Cut {
    fn new(kind: CutKind, next: u64) -> Cut {
        Cut {
            kind,
            values: Vec::new(),
            ends: Vec::new(),
            next,
            is_end: false,
        }
    }

    /// Something that cannot be read.
    fn of_bad(bad: BadEvent, next: u64) -> Cut {
        let mut cut = Cut::new(CutKind::Table, next);
        cut.push(&[&table::encode(&table::Rows::default(), &[bad])]);
        cut
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

    /// How much all values hold.
    pub fn bytes(&self) -> usize {
        self.values.len()
    }
}

impl Cutting {
    fn format(&self, path: &Path) -> Format {
        let named_lines = matches!(&extension(path)[..], "jsonl" | "ndjson");
        match self.format.unwrap_or_else(|| Format::of_name(path)) {
            Format::Json if named_lines => Format::JsonLines,
            format => format,
        }
    }

    /// Whether what has been written of such a file can be read while it is written on.
    pub fn may_grow(&self, path: &Path) -> bool {
        let in_lines = matches!(self.format(path), Format::JsonLines | Format::Csv(_));
        in_lines && by_name(self.compression, path) == Compression::None
    }

    /// Whether a file of that name is wanted at all.
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

    /// Begins at `from`, which is 0 or where a cut of the same file ended.
    pub fn open(&self, path: &Path, from: u64) -> Result<Cutter, ReadError> {
        match self.cuts(path, from) {
            Ok(cuts) => Ok(Cutter(State::Cuts(cuts))),
            Err(error) => match broken(&error, from) {
                Some(cut) => Ok(Cutter(State::Broken(cut))),
                None => Err(error),
            },
        }
    }

    fn cuts(&self, path: &Path, from: u64) -> Result<Box<dyn Cuts>, ReadError> {
        Ok(match self.format(path) {
            format @ (Format::Avro | Format::Parquet) => {
                Box::new(table::Tables::open(path, format, self, from)?)
            }
            Format::Csv(csv) => Box::new(csv::Records::open(path, csv, self, from)?),
            Format::JsonLines => Box::new(json::Lines::open(path, self, from)?),
            Format::Json => json::open(path, self, from)?,
        })
    }

    fn bytes(&self, path: &Path) -> Result<FileBytes, ReadError> {
        FileBytes::open(path, self.compression)
    }
}

/// A way to cut one file.
trait Cuts: Send {
    /// The next cut. `last` says that nothing will follow what is there.
    fn next(&mut self, last: bool) -> Result<Option<Cut>, ReadError>;

    /// Where it has come to.
    fn at(&self) -> u64;
}

/// A file that is being cut.
pub struct Cutter(State);

enum State {
    Cuts(Box<dyn Cuts>),
    /// It is not what it should be, which is still to be said.
    Broken(Cut),
    Ended,
}

impl Cutter {
    /// The next cut, or `None` if there is none for now; with `last`, which says that the file is complete, if there will
    /// be none. A file that is not what it should be ends with a cut that says so; an error is one of the disk.
    pub fn next(&mut self, last: bool) -> Result<Option<Cut>, ReadError> {
        let cut = match &mut self.0 {
            State::Ended => return Ok(None),
            State::Cuts(cuts) => match cuts.next(last) {
                Err(error) => broken(&error, cuts.at()).ok_or(error)?,
                cut => return cut,
            },
            State::Broken(cut) => cut.clone(),
        };
        self.0 = State::Ended;
        Ok(Some(cut))
    }
}

/// Says why nothing from `at` on can be read, if that is not for the disk to answer.
fn broken(error: &ReadError, at: u64) -> Option<Cut> {
    let bad = BadEvent {
        line: 0,
        kind: kind_of(error)?,
        reason: error.to_string(),
        text: String::new(),
    };
    Some(Cut {
        is_end: true,
        ..Cut::of_bad(bad, at)
    })
}

/// The kind of data error, where reading again would not help.
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
