//! Writes columns as CSV.
//!
//! The first row decides the columns, because a file has one header. Other fields of later rows are dropped and
//! counted, and fields they lack are empty. An empty text is written in quotes to distinguish it from NULL.

use std::borrow::Cow;
use std::ops::Range;

use highwater_engine::{Chunk, ValueRef, eval};
use highwater_query::plan::Name;

use crate::rows::RowNames;
use crate::source::CsvFormat;

#[derive(Debug)]
pub(crate) struct CsvWriter {
    rows: RowNames,
    format: CsvFormat,
    columns: Option<Vec<String>>,
    left_out: u64,
}

impl CsvWriter {
    pub(crate) fn new(names: Vec<Name>, format: CsvFormat) -> CsvWriter {
        CsvWriter {
            rows: RowNames::new(names),
            format,
            columns: None,
            left_out: 0,
        }
    }

    /// Continues a file that has these columns, or starts a new one.
    pub(crate) fn set_columns(&mut self, columns: Option<Vec<String>>) {
        self.columns = columns;
    }

    pub(crate) fn take_columns(&mut self) -> Option<Vec<String>> {
        self.columns.take()
    }

    /// How many values were dropped because they had no column.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Appends the rows of a chunk to `out`.
    pub(crate) fn write(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        self.write_rows(chunk, 0..chunk.rows(), out);
    }

    /// Appends some rows of a chunk to `out`.
    pub(crate) fn write_rows(&mut self, chunk: &Chunk, rows: Range<usize>, out: &mut Vec<u8>) {
        let delimiter = self.format.delimiter;
        for row in rows {
            let values = self.rows.row(chunk, row);
            let columns = self.columns.get_or_insert_with(|| {
                let names: Vec<String> = values.iter().map(|(name, _)| (*name).into()).collect();
                if self.format.header {
                    write_record(
                        names.iter().map(|name| Some((&name[..]).into())),
                        delimiter,
                        out,
                    );
                }
                names
            });
            // Rows nearly always have the columns of the first one.
            let same = values.len() == columns.len()
                && values.iter().zip(&*columns).all(|((a, _), b)| a == b);
            if same {
                write_record(values.iter().map(|(_, v)| field(*v)), delimiter, out);
                continue;
            }
            let found = columns.iter().map(|name| {
                let value = values.iter().find(|(known, _)| known == name);
                value.and_then(|(_, value)| field(*value))
            });
            write_record(found, delimiter, out);
            let known = |name: &&str| columns.iter().any(|column| column == name);
            let extra = values.iter().filter(|(name, _)| !known(name));
            self.left_out += extra.count() as u64;
        }
    }
}

/// The text of a value; empty for NULL.
fn field(value: ValueRef<'_>) -> Option<Cow<'_, str>> {
    Some(match value {
        ValueRef::Null => return None,
        ValueRef::Text(text) => text.into(),
        ValueRef::Bit(true) => "true".into(),
        ValueRef::Bit(false) => "false".into(),
        ValueRef::Record(_) => "Record".into(),
        ValueRef::Array(_) => "Array".into(),
        other => {
            let mut text = String::new();
            eval::write_text(other, &mut text);
            text.into()
        }
    })
}

/// NULL leaves its field empty.
fn write_record<'a>(
    fields: impl Iterator<Item = Option<Cow<'a, str>>>,
    delimiter: u8,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let mut count = 0;
    for field in fields {
        if count > 0 {
            out.push(delimiter);
        }
        if let Some(text) = field {
            write_field(&text, delimiter, out);
        }
        count += 1;
    }
    // An empty line would be read as no record at all.
    if count == 1 && out.len() == start {
        out.extend_from_slice(b"\"\"");
    }
    out.extend_from_slice(b"\r\n");
}

/// Quotes the text where it would not be read back unchanged, the empty text included, which differs from NULL.
fn write_field(text: &str, delimiter: u8, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let plain = !bytes.is_empty()
        && bytes
            .iter()
            .all(|b| *b != delimiter && !matches!(b, b'"' | b'\n' | b'\r'));
    if plain {
        return out.extend_from_slice(bytes);
    }
    out.push(b'"');
    for part in text.split_inclusive('"') {
        out.extend_from_slice(part.as_bytes());
        if part.ends_with('"') {
            out.push(b'"');
        }
    }
    out.push(b'"');
}
