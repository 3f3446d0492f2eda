//! Decodes the values of records into columns of events.
//!
//! A value is like a small file: usually one JSON object, but it may span lines, hold an array of objects, or be CSV or
//! Avro. Plain objects are collected as lines and decoded together, so that a record costs as much as a line of a file;
//! any other value is decoded alone.

use std::path::Path;

use highwater_engine::Column;

use crate::bytes::FileBytes;
use crate::file_slice::{SliceKind, TableValue};
use crate::json::{Batch, Decoder, Objects};
use crate::source::{
    BadEvent, BadKind, Compression, CsvFormat, Events, Format, SourceOptions, sample, source_of,
};

/// Takes the values of records and returns the events in them.
pub struct ValueDecoder {
    encoding: Encoding,
    /// Per collected event, the number of its value.
    numbers: Vec<u64>,
    bad: Vec<BadEvent>,
    text_bytes_max: usize,
}

enum Encoding {
    Json {
        decoder: Box<Decoder>,
        batch: Batch,
        lines: Vec<u8>,
        /// Every value is one line of a file, and an array is not a list of events.
        of_file: bool,
    },
    Other {
        /// `None` for tables.
        format: Option<Format>,
        options: SourceOptions,
        parts: Vec<Events>,
        bytes: usize,
    },
}

/// A longer value is not split.
const VALUE_BYTES_MAX: usize = 64 << 20;

impl ValueDecoder {
    /// JSON unless the options name another format; `None` for Parquet, which is a format of files.
    pub fn new(options: SourceOptions) -> Option<ValueDecoder> {
        let format = options.format.unwrap_or(Format::Json);
        (format != Format::Parquet).then(|| ValueDecoder::of(Some(format), options))
    }

    /// For values that a [`FileSlicer`](crate::FileSlicer) made from a file, whatever format the options name.
    pub fn of_slices(kind: SliceKind, mut options: SourceOptions) -> ValueDecoder {
        options.compression = Compression::None;
        let format = match kind {
            SliceKind::Json => Some(Format::Json),
            SliceKind::Csv { delimiter } => Some(Format::Csv(CsvFormat {
                delimiter,
                header: true,
            })),
            SliceKind::Table => None,
        };
        let mut values = ValueDecoder::of(format, options);
        if let Encoding::Json { of_file, .. } = &mut values.encoding {
            *of_file = true;
        }
        values
    }

    /// Without a format the values are tables.
    fn of(format: Option<Format>, options: SourceOptions) -> ValueDecoder {
        let packed = !matches!(options.compression, Compression::None | Compression::ByName);
        let text_bytes_max = options.text_bytes_max();
        let encoding = match format {
            Some(Format::Json | Format::JsonLines) if !packed => {
                let mut batch = Batch::tracking_lines(options.fields.len());
                batch.sample_bytes = text_bytes_max;
                let declared = options.declared.unwrap_or_default();
                let decoder = Decoder::with_rules(options.fields, options.level, &declared);
                Encoding::Json {
                    decoder: Box::new(decoder),
                    batch,
                    lines: Vec::new(),
                    of_file: false,
                }
            }
            format => Encoding::Other {
                format,
                options,
                parts: Vec::new(),
                bytes: 0,
            },
        };
        ValueDecoder {
            encoding,
            numbers: Vec::new(),
            bad: Vec::new(),
            text_bytes_max,
        }
    }

    /// Takes a value. Its events and errors have `number` in place of a line; numbers grow.
    pub fn push(&mut self, value: &[u8], number: u64) {
        match &mut self.encoding {
            Encoding::Json { lines, of_file, .. } => match *of_file || is_one_line(value) {
                true => {
                    lines.extend_from_slice(value);
                    lines.push(b'\n');
                    self.numbers.push(number);
                }
                false => self.take_apart(value, number),
            },
            Encoding::Other { .. } => self.read_alone(value, number),
        }
    }

    /// How many bytes have been collected.
    pub fn bytes(&self) -> usize {
        match &self.encoding {
            Encoding::Json { lines, .. } => lines.len(),
            Encoding::Other { bytes, .. } => *bytes,
        }
    }

    /// The events of all values since the last call, in order.
    pub fn finish(&mut self) -> Events {
        let mut events = match &mut self.encoding {
            Encoding::Json {
                decoder,
                batch,
                lines,
                ..
            } => {
                decoder.decode(lines, 1, batch);
                lines.clear();
                let mut events = Events::from(batch.finish());
                let number = |line: u64| self.numbers[line as usize - 1];
                events
                    .lines
                    .iter_mut()
                    .for_each(|line| *line = number(*line));
                events
                    .bad
                    .iter_mut()
                    .for_each(|bad| bad.line = number(bad.line));
                events
            }
            Encoding::Other { parts, bytes, .. } => {
                *bytes = 0;
                joined(&std::mem::take(parts))
            }
        };
        self.numbers.clear();
        events.bad.append(&mut self.bad);
        events.bad.sort_by_key(|bad| bad.line);
        events
    }

    /// Rewrites a value that is not an object on one line as a line per object.
    fn take_apart(&mut self, value: &[u8], number: u64) {
        let Encoding::Json { lines, .. } = &mut self.encoding else {
            return;
        };
        let source = std::io::Cursor::new(value.to_vec());
        let mut objects = Objects::new(Box::new(source), value.len() + 1, VALUE_BYTES_MAX);
        loop {
            match objects.next_block() {
                Ok(Some(block)) => {
                    lines.extend_from_slice(block.bytes);
                    self.numbers.extend(block.starts.iter().map(|_| number));
                }
                Ok(None) => return,
                Err(error) => return self.refuse(value, number, error.to_string()),
            }
        }
    }

    fn read_alone(&mut self, value: &[u8], number: u64) {
        let Encoding::Other {
            format,
            options,
            parts,
            bytes,
        } = &mut self.encoding
        else {
            return;
        };
        *bytes += value.len();
        let Some(format) = format else {
            return match TableValue::decode(value) {
                Ok(part) => parts.push(part.select(options, number)),
                Err(error) => self.refuse(value, number, error.to_string()),
            };
        };
        let opened =
            FileBytes::of_value(Path::new("the value"), value.to_vec(), options.compression);
        let mut source = match opened.and_then(|bytes| source_of(bytes, *format, options.clone())) {
            Ok(source) => source,
            Err(error) => return self.refuse(value, number, error.to_string()),
        };
        loop {
            match source.next_batch() {
                Ok(Some(mut events)) => {
                    events.lines.iter_mut().for_each(|line| *line = number);
                    events.bad.iter_mut().for_each(|bad| bad.line = number);
                    parts.push(events);
                }
                Ok(None) => return,
                Err(error) => return self.refuse(value, number, error.to_string()),
            }
        }
    }

    fn refuse(&mut self, value: &[u8], number: u64, reason: String) {
        self.bad.push(BadEvent {
            line: number,
            kind: BadKind::InvalidData,
            reason,
            text: sample(value, self.text_bytes_max),
        });
    }
}

/// Whether the decoder can take the value as it is: not an array, and no newline inside.
fn is_one_line(value: &[u8]) -> bool {
    let starts = value.first().is_some_and(|byte| *byte == b'{');
    starts && memchr::memchr(b'\n', value).is_none()
}

fn joined(parts: &[Events]) -> Events {
    let rows = (0..).zip(parts);
    let rows: Vec<(u32, u32)> = rows
        .flat_map(|(part, events)| (0..events.rows as u32).map(move |row| (part, row)))
        .collect();
    let width = parts.first().map_or(0, |part| part.columns.len());
    let column = |column: usize| {
        let columns: Vec<&Column> = parts.iter().map(|part| &part.columns[column]).collect();
        Column::interleave(&columns, &rows)
    };
    Events {
        columns: (0..width).map(column).collect(),
        rows: rows.len(),
        lines: parts.iter().flat_map(|part| part.lines.clone()).collect(),
        bad: parts.iter().flat_map(|part| part.bad.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Field;
    use highwater_engine::ValueRef;

    fn values(format: Format) -> ValueDecoder {
        let mut options = SourceOptions::of(vec![Field::Path(vec!["a".into()])]);
        options.format = Some(format);
        ValueDecoder::new(options).unwrap()
    }

    /// Numbers and values of `a`, and the numbers of bad values.
    fn seen(values: &mut ValueDecoder) -> (Vec<(u64, String)>, Vec<u64>) {
        let events = values.finish();
        let shown = |row: usize| match events.columns[0].get(row) {
            ValueRef::Int(value) => value.to_string(),
            ValueRef::Text(text) => text.to_owned(),
            other => format!("{other:?}"),
        };
        let rows = (0..events.rows).map(|row| (events.lines[row], shown(row)));
        (
            rows.collect(),
            events.bad.iter().map(|bad| bad.line).collect(),
        )
    }

    fn numbered(rows: &[(u64, &str)]) -> Vec<(u64, String)> {
        let rows = rows.iter();
        rows.map(|(number, text)| (*number, (*text).to_owned()))
            .collect()
    }

    #[test]
    fn an_object_an_array_and_an_object_over_lines_are_events_of_their_values() {
        let mut values = values(Format::Json);
        values.push(b"{\"a\":1}", 40);
        values.push(b"[{\"a\":2},\n {\"a\":3}]", 41);
        values.push(b"{\n \"a\":\n 4}\n", 43);
        values.push(b"{\"a\":5}\n{\"a\":6}", 44);
        values.push(b"  {\"a\":7}", 45);
        let rows = [
            (40, "1"),
            (41, "2"),
            (41, "3"),
            (43, "4"),
            (44, "5"),
            (44, "6"),
            (45, "7"),
        ];
        assert_eq!(seen(&mut values), (numbered(&rows), vec![]));
        assert_eq!(seen(&mut values), (vec![], vec![]), "they come once");
    }

    #[test]
    fn a_bad_value_takes_no_other_with_it() {
        let mut values = values(Format::Json);
        values.push(b"{\"a\":1}", 0);
        values.push(b"{\"a\":", 1);
        values.push(b"\xff{}", 2);
        values.push(b"7", 3);
        values.push(b"{\"a\":\"x\ny\"}", 4);
        values.push(b"", 5);
        values.push(b"{\"a\":2}", 6);
        let (rows, bad) = seen(&mut values);
        assert_eq!(rows, numbered(&[(0, "1"), (6, "2")]));
        assert_eq!(bad, [1, 2, 3, 4]);
    }

    #[test]
    fn csv_has_its_header_in_every_value() {
        let mut values = values(Format::Csv(CsvFormat::default()));
        values.push(b"a,b\n1,2\n3,4\n", 7);
        values.push(b"b,a\n1,2\n", 8);
        let rows = [(7, "1"), (7, "3"), (8, "2")];
        assert_eq!(seen(&mut values), (numbered(&rows), vec![]));
        assert!(
            ValueDecoder::new(SourceOptions {
                format: Some(Format::Parquet),
                ..SourceOptions::default()
            })
            .is_none()
        );
    }
}
