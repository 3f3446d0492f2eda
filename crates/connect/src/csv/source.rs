//! A CSV file as a source of events.

use std::io::{self, Read};
use std::ops::Range;

use highwater_engine::{Column, ColumnBuilder};

use super::split::{Field, Split, split};
use crate::bytes::{FileBytes, OpenFile};
use crate::lines::ReadError;
use crate::source::{BadEvent, BadKind, CsvFormat, Events, Level, Source, SourceOptions, sample};
use crate::table::Table;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const BLOCK_BYTES: usize = 1 << 20;
/// A longer record is taken for one with an unclosed quote.
pub(crate) const RECORD_BYTES_MAX: usize = 8 << 20;

pub(crate) struct CsvSource {
    file: OpenFile,
    bytes: Box<dyn Read + Send>,
    format: CsvFormat,
    options: SourceOptions,
    /// Known after the first record.
    table: Option<Table>,
    /// Bytes read and not yet returned are `buffer[start..]`.
    buffer: Vec<u8>,
    start: usize,
    line: u64,
    ended: bool,
    failed: Option<io::Error>,
}

/// A record of the current batch.
struct Record {
    start: usize,
    end: usize,
    line: u64,
}

impl CsvSource {
    pub(crate) fn new(bytes: FileBytes, format: CsvFormat, options: SourceOptions) -> CsvSource {
        CsvSource {
            file: bytes.file,
            bytes: bytes.bytes,
            format,
            options,
            table: None,
            buffer: Vec::new(),
            start: 0,
            line: 1,
            ended: false,
            failed: None,
        }
    }

    /// Reads once more, appending to the buffer.
    fn read(&mut self) {
        let first = self.line == 1 && self.start == 0 && self.buffer.is_empty();
        self.buffer.drain(..self.start);
        self.start = 0;
        let from = self.buffer.len();
        self.buffer.resize(from + BLOCK_BYTES, 0);
        let mut end = from;
        while end < self.buffer.len() && !self.ended {
            match self.bytes.read(&mut self.buffer[end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.failed = Some(error);
                }
            }
        }
        self.buffer.truncate(end);
        if first && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.start = BYTE_ORDER_MARK.len();
        }
    }

    /// The first record that is not blank, as names or as a number of columns.
    fn read_header(&mut self) -> Result<(), ReadError> {
        let mut fields = Vec::new();
        loop {
            let last = self.ended;
            let (at, delimiter) = (self.start, self.format.delimiter);
            match split(&self.buffer, at, delimiter, last, &mut fields) {
                Split::Blank(next) if next > at => {
                    self.line += 1;
                    self.start = next;
                }
                Split::Blank(_) | Split::Unfinished { .. } if !self.ended => self.read(),
                Split::Blank(_) => return Ok(()),
                Split::Record(next) => return self.take_header(&fields, next),
                Split::Unfinished { .. } | Split::AfterQuote(..) => {
                    return Err(self.bad_header("its quotes are not closed properly".into()));
                }
            }
        }
    }

    fn take_header(&mut self, fields: &[Field], next: usize) -> Result<(), ReadError> {
        let numbered = |i: usize| format!("column{}", i + 1);
        let mut names: Vec<String> = (0..fields.len()).map(numbered).collect();
        if self.format.header {
            let Ok(text) = std::str::from_utf8(&self.buffer[..next]) else {
                return Err(self.bad_header("it is not valid UTF-8".into()));
            };
            for (name, field) in names.iter_mut().zip(fields) {
                let given = field.text(text);
                if !given.trim().is_empty() {
                    *name = given.into_owned();
                }
            }
            self.line += newlines(&self.buffer[self.start..next]);
            self.start = next;
        }
        let folded: Vec<String> = match self.options.level {
            Level::V1_0 => names.iter().map(|name| name.to_lowercase()).collect(),
            _ => names.clone(),
        };
        for (i, name) in folded.iter().enumerate() {
            if folded[..i].contains(name) {
                return Err(self.bad_header(format!("it names the column {name:?} twice")));
            }
        }
        self.table = Some(Table::new(names, true, &self.options));
        Ok(())
    }

    fn bad_header(&mut self, reason: String) -> ReadError {
        self.buffer.clear();
        self.start = 0;
        self.ended = true;
        self.failed = None;
        ReadError::Header {
            file: self.file.path.clone(),
            reason,
        }
    }

    /// Everything in the buffer up to the end of the last complete record.
    fn decode(&mut self, table: &Table) -> Events {
        let mut columns: Vec<ColumnBuilder> = Vec::new();
        let needed: Vec<bool> = (0..table.names().len()).map(|i| table.needs(i)).collect();
        columns.resize_with(needed.len(), ColumnBuilder::default);
        let mut records: Vec<Record> = Vec::new();
        let mut bad = Vec::new();
        let mut fields = Vec::new();
        let limit = table.text_bytes_max;
        loop {
            let at = self.start;
            let outcome = split(
                &self.buffer,
                at,
                self.format.delimiter,
                self.ended,
                &mut fields,
            );
            let mut complain = |end: usize, reason: String| {
                bad.push(BadEvent {
                    line: self.line,
                    kind: BadKind::InvalidData,
                    reason,
                    text: sample(line_of(&self.buffer[at..end]), limit),
                });
            };
            let next = match outcome {
                Split::Blank(next) if next == at => break,
                Split::Blank(next) => next,
                Split::Record(next) => {
                    match self.push_record(at..next, &fields, &needed, &mut columns) {
                        Ok(record) => records.push(record),
                        Err(reason) => complain(next, reason),
                    }
                    next
                }
                Split::AfterQuote(place, next) => {
                    let reason = format!(
                        "column {}: text follows a closing quote; write a quote inside a field twice",
                        place - at + 1
                    );
                    complain(next, reason);
                    next
                }
                Split::Unfinished { quoted } => {
                    let too_long = self.buffer.len() - at > RECORD_BYTES_MAX;
                    if !(self.ended || too_long) || self.failed.is_some() {
                        break;
                    }
                    let line = memchr::memchr(b'\n', &self.buffer[at..]);
                    let next = line.map_or(self.buffer.len(), |end| at + end + 1);
                    complain(
                        next,
                        match quoted {
                            true => "a quote is opened and never closed".into(),
                            false => format!("the record is longer than {RECORD_BYTES_MAX} bytes"),
                        },
                    );
                    next
                }
            };
            self.line += newlines(&self.buffer[at..next]);
            self.start = next;
        }
        let columns = columns.into_iter().zip(&needed);
        let columns = columns.map(|(column, needed)| match needed {
            true => column.finish(),
            false => Column::Null(records.len()),
        });
        self.events(table, columns.collect(), &records, bad)
    }

    /// Appends the needed fields of a record. The error says why it is not a record of the table.
    fn push_record(
        &self,
        range: Range<usize>,
        fields: &[Field],
        needed: &[bool],
        columns: &mut [ColumnBuilder],
    ) -> Result<Record, String> {
        let text = std::str::from_utf8(&self.buffer[range.clone()]).map_err(
            |_| "the record is not valid UTF-8; convert the file, for example with iconv",
        )?;
        let (found, expected) = (fields.len(), columns.len());
        if found != expected {
            return Err(format!(
                "the record has {found} fields, but there are {expected} columns"
            ));
        }
        for (i, field) in fields.iter().enumerate().filter(|(i, _)| needed[*i]) {
            let field = Field {
                start: field.start - range.start,
                end: field.end - range.start,
                ..*field
            };
            columns[i].push_text(&field.text(text));
        }
        Ok(Record {
            start: range.start,
            end: range.end,
            line: self.line,
        })
    }

    /// The events of decoded records; `bad` gets rows that are not records.
    fn events(
        &self,
        table: &Table,
        columns: Vec<Column>,
        records: &[Record],
        mut bad: Vec<BadEvent>,
    ) -> Events {
        let selected = table.select(columns, records.len(), Vec::new());
        bad.extend(selected.bad.into_iter().map(|row| {
            let record = &records[row.row];
            let text = line_of(&self.buffer[record.start..record.end]);
            BadEvent {
                line: record.line,
                kind: row.kind,
                reason: row.reason,
                text: sample(text, table.text_bytes_max),
            }
        }));
        bad.sort_by_key(|bad| bad.line);
        let line = |row: &u32| records[*row as usize].line;
        Events {
            rows: selected.good.len(),
            lines: selected.good.iter().map(line).collect(),
            columns: selected.columns,
            bad,
        }
    }
}

/// Without the newline at its end.
fn line_of(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

impl Source for CsvSource {
    fn next_batch(&mut self) -> Result<Option<Events>, ReadError> {
        if !self.ended {
            self.read();
        } else if self.start >= self.buffer.len() || self.failed.is_some() {
            return match self.failed.take() {
                Some(source) => {
                    self.start = self.buffer.len();
                    Err(self.file.read_error(source))
                }
                None => Ok(None),
            };
        }
        if self.table.is_none() {
            self.read_header()?;
        }
        let Some(table) = self.table.take() else {
            self.start = self.buffer.len();
            return Ok(Some(Events::default_for(&self.options)));
        };
        let events = self.decode(&table);
        self.table = Some(table);
        Ok(Some(events))
    }

    fn file(&self) -> &OpenFile {
        &self.file
    }
}

impl Events {
    /// No events, with the requested columns.
    pub(crate) fn default_for(options: &SourceOptions) -> Events {
        Events {
            columns: options.fields.iter().map(|_| Column::Null(0)).collect(),
            ..Events::default()
        }
    }
}
