//! Rows as the text format of COPY.

use std::ops::Range;

use bytes::Bytes;
use highwater_engine::{Value, ValueRef, eval};

use super::super::Rows;
use super::error::Failure;
use super::table::{Column, Kind, Table};
use crate::rows::RowNames;

/// Consecutive rows, one line each.
#[derive(Debug)]
pub(super) struct CopyLines {
    first: u64,
    bytes: Bytes,
    /// Where each line ends.
    ends: Vec<usize>,
}

impl CopyLines {
    /// Fails with the rows that cannot be stored at all.
    pub(super) fn encode(
        rows: &Rows,
        range: Range<usize>,
        names: &RowNames,
        table: &Table,
    ) -> Result<CopyLines, Failure> {
        let first = rows.first + range.start as u64;
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(range.len());
        let mut refused = Vec::new();
        let mut reason = "";
        for row in range {
            let number = rows.first + row as u64;
            if table.is_numbered() {
                bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
                bytes.push(b'\t');
            }
            for column in table.columns() {
                let value = names.value(&rows.chunk, row, &column.name);
                if let Err(told) = write(value, column, &mut bytes) {
                    refused.push(number);
                    reason = told;
                    break;
                }
                bytes.push(b'\t');
            }
            bytes.pop();
            bytes.push(b'\n');
            ends.push(bytes.len());
        }
        match refused.is_empty() {
            true => Ok(CopyLines {
                first,
                bytes: bytes.into(),
                ends,
            }),
            false => Err(Failure::Refused {
                rows: refused,
                reason: reason.into(),
            }),
        }
    }

    /// The number of the first row.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number of the row after the last.
    pub(super) fn end(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn all(&self) -> Bytes {
        self.bytes.clone()
    }

    pub(super) fn some(&self, lines: Range<usize>) -> Bytes {
        let end = |line: usize| line.checked_sub(1).map_or(0, |line| self.ends[line]);
        self.bytes.slice(end(lines.start)..end(lines.end))
    }
}

fn write(value: ValueRef<'_>, column: &Column, out: &mut Vec<u8>) -> Result<(), &'static str> {
    if value.is_null() {
        if column.is_key {
            return Err("a column of the key is NULL");
        }
        out.extend_from_slice(b"\\N");
        return Ok(());
    }
    let mut text = String::new();
    match value {
        ValueRef::Array(items) if column.is_array => write_array(items, column.kind, &mut text),
        value => write_scalar(value, column.kind, &mut text),
    }
    for byte in text.bytes() {
        match byte {
            0 => return Err("PostgreSQL cannot store a text with the character U+0000"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            byte => out.push(byte),
        }
    }
    Ok(())
}

fn write_scalar(value: ValueRef<'_>, kind: Kind, out: &mut String) {
    match (value, kind) {
        (ValueRef::Float(float), Kind::Integer) if float.fract() == 0.0 => {
            // The range of floats without an exponent.
            match float.abs() < 9e18 {
                true => out.push_str(itoa::Buffer::new().format(float as i64)),
                false => out.push_str(ryu::Buffer::new().format(float)),
            }
        }
        (ValueRef::Bit(bit), Kind::Bool | Kind::Text) => {
            out.push_str(if bit { "true" } else { "false" });
        }
        (ValueRef::Record(_) | ValueRef::Array(_), _) => eval::write_json(value, out),
        (value, _) => eval::write_text(value, out),
    }
}

/// An array in the text format of the server: `{1,2,NULL}`, `{"a","b"}`.
fn write_array(items: &[Value], kind: Kind, out: &mut String) {
    out.push('{');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        match item.view() {
            ValueRef::Null => out.push_str("NULL"),
            item => {
                let mut text = String::new();
                write_scalar(item, kind, &mut text);
                out.push('"');
                for letter in text.chars() {
                    if matches!(letter, '"' | '\\') {
                        out.push('\\');
                    }
                    out.push(letter);
                }
                out.push('"');
            }
        }
    }
    out.push('}');
}
