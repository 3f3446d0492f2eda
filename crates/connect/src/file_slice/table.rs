//! Typed rows of files that cannot be split. Positions count rows and errors.
//!
//! A value holds column names, rows and errors; `docs/formats/files.md` draws it.

use std::path::Path;
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::codec::{ReadValue, WriteValue};
use highwater_engine::{Column, ColumnBuilder, Record, ValueRef};

use super::{
    FileSlice, LINE_BYTES_MAX, SLICE_BYTES, SliceKind, SliceOptions, SliceReader, VALUE_BYTES,
};
use crate::ReadError;
use crate::json::Field;
use crate::source::{BadEvent, BadKind, Events, Format, Source, SourceOptions, open, sample};
use crate::table::Table;

pub(super) struct TableReader {
    source: Box<dyn Source>,
    /// Rows and errors that were read and not yet returned.
    events: Events,
    /// How many of them were returned.
    row: usize,
    passed: u64,
    from: u64,
}

impl TableReader {
    pub(super) fn open(
        path: &Path,
        format: Format,
        options: &SliceOptions,
        from: u64,
    ) -> Result<TableReader, ReadError> {
        let options = SourceOptions {
            format: Some(format),
            compression: options.compression,
            level: options.level,
            declared: None,
            fields: vec![Field::Whole],
            keep_text: true,
        };
        Ok(TableReader {
            source: open(path, options)?,
            events: Events::default(),
            row: 0,
            passed: 0,
            from,
        })
    }

    /// Reads until there is something to return. `false` at the end.
    fn read(&mut self) -> Result<bool, ReadError> {
        while self.row >= self.events.rows && self.events.bad.is_empty() {
            let Some(events) = self.source.next_batch()? else {
                return Ok(false);
            };
            (self.events, self.row) = (events, 0);
            self.skip();
        }
        Ok(true)
    }

    /// Skips what was returned before: first errors, then rows, in the order in which they are returned.
    fn skip(&mut self) {
        let mut left = self.from.saturating_sub(self.passed);
        let bad = (self.events.bad.len() as u64).min(left);
        self.events.bad.drain(..bad as usize);
        left -= bad;
        let rows = (self.events.rows as u64).min(left);
        self.row = rows as usize;
        self.passed += bad + rows;
    }

    /// The rows of one value, all with the same columns.
    fn take_value(&mut self) -> Vec<u8> {
        let mut bad = std::mem::take(&mut self.events.bad);
        let (mut rows, first) = (Rows::default(), self.row);
        self.passed += bad.len() as u64;
        while self.row < self.events.rows && rows.values.len() < VALUE_BYTES {
            if let Some(ValueRef::Record(record)) =
                self.events.columns.first().map(|c| c.get(self.row))
            {
                if !rows.fits(record) {
                    break;
                }
                if let Err(reason) = rows.push(record) {
                    bad.push(BadEvent {
                        line: self.events.lines[self.row],
                        kind: BadKind::InvalidData,
                        reason,
                        text: String::new(),
                    });
                }
            }
            self.row += 1;
        }
        self.passed += (self.row - first) as u64;
        encode(&rows, &bad)
    }
}

/// Rows with the same columns.
#[derive(Default)]
pub(super) struct Rows {
    names: Vec<Arc<str>>,
    values: Vec<u8>,
    count: usize,
}

impl Rows {
    fn fits(&self, record: &Record) -> bool {
        self.count == 0 || names(record).eq(&self.names)
    }

    fn push(&mut self, record: &Record) -> Result<(), String> {
        let before = self.values.len();
        record
            .iter()
            .for_each(|(_, value)| self.values.value(value.view()));
        if self.values.len() - before > LINE_BYTES_MAX {
            self.values.truncate(before);
            return Err(format!("the event is longer than {LINE_BYTES_MAX} bytes"));
        }
        if self.count == 0 {
            self.names = names(record).cloned().collect();
        }
        self.count += 1;
        Ok(())
    }
}

fn names(record: &Record) -> impl Iterator<Item = &Arc<str>> {
    record.iter().map(|(name, _)| name)
}

impl SliceReader for TableReader {
    fn next(&mut self, _: bool) -> Result<Option<FileSlice>, ReadError> {
        let mut slice = FileSlice::new(SliceKind::Table, 0);
        while slice.bytes() < SLICE_BYTES && (slice.bytes() == 0 || self.row < self.events.rows) {
            if !self.read()? {
                break;
            }
            let value = self.take_value();
            slice.push(&[&value]);
        }
        slice.next = self.passed;
        Ok((slice.bytes() > 0).then_some(slice))
    }

    fn at(&self) -> u64 {
        self.passed.max(self.from)
    }
}

const KINDS: [BadKind; 5] = [
    BadKind::InvalidData,
    BadKind::TypeConversion,
    BadKind::MissingColumns,
    BadKind::InvalidHeader,
    BadKind::InvalidCompression,
];

pub(super) fn encode(rows: &Rows, bad: &[BadEvent]) -> Vec<u8> {
    let mut out = Vec::new();
    out.count(rows.names.len());
    rows.names.iter().for_each(|name| out.text(name));
    out.count(rows.count);
    out.raw(&rows.values);
    out.count(bad.len());
    for bad in bad {
        let kind = KINDS.iter().position(|kind| *kind == bad.kind);
        out.u8(kind.unwrap_or(0) as u8);
        out.text(&bad.reason);
        out.text(&bad.text);
    }
    out
}

/// A decoded value.
pub(crate) struct TableValue {
    pub names: Vec<String>,
    pub columns: Vec<Column>,
    pub rows: usize,
    pub bad: Vec<(BadKind, String, String)>,
}

impl TableValue {
    pub(crate) fn decode(value: &[u8]) -> Result<TableValue, DecodeError> {
        let mut from = Reader::new(value);
        let names: Vec<String> = (0..from.count()?)
            .map(|_| from.text().map(str::to_owned))
            .collect::<Result<_, _>>()?;
        let rows = from.count()?;
        let mut columns: Vec<ColumnBuilder> = Vec::new();
        columns.resize_with(names.len(), ColumnBuilder::default);
        for _ in 0..rows {
            for column in &mut columns {
                column.push_owned(from.value()?);
            }
        }
        let bad = (0..from.count()?).map(|_| {
            let kind = KINDS.get(usize::from(from.u8()?));
            let kind = *kind.ok_or(DecodeError::Invalid("an error has an unknown kind"))?;
            Ok((kind, from.text()?.to_owned(), from.text()?.to_owned()))
        });
        Ok(TableValue {
            bad: bad.collect::<Result<_, DecodeError>>()?,
            columns: columns.into_iter().map(ColumnBuilder::finish).collect(),
            names,
            rows,
        })
    }

    /// The valid events, all under one number.
    pub(crate) fn select(self, options: &SourceOptions, number: u64) -> Events {
        let table = Table::new(self.names, false, options);
        let mut events = table.events(self.columns, self.rows, Vec::new(), |_| number);
        let bad = self.bad.into_iter().map(|(kind, reason, text)| BadEvent {
            line: number,
            kind,
            reason,
            text: sample(text.as_bytes(), table.text_bytes_max),
        });
        events.bad.splice(0..0, bad);
        events
    }
}
