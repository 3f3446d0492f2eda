//! CSV: runs of records, each with the header prepended. Positions are bytes.
//!
//! A record may span lines, so only complete records are taken; errors in a record are reported by the reader of the
//! value. An unclosed quote would block everything after it, so beyond a limit its line is taken alone.

use std::path::Path;

use super::text_reader::TextReader;
use super::{FileSlice, SLICE_BYTES, SliceKind, SliceOptions, SliceReader, VALUE_BYTES};
use crate::csv::{RECORD_BYTES_MAX, Split, split};
use crate::{CsvFormat, ReadError};

pub(super) struct RecordReader {
    text: TextReader,
    csv: CsvFormat,
    /// `None` until the header has been read.
    header: Option<Vec<u8>>,
}

impl RecordReader {
    pub(super) fn open(
        path: &Path,
        csv: CsvFormat,
        options: &SliceOptions,
        from: u64,
    ) -> Result<RecordReader, ReadError> {
        let mut records = RecordReader {
            text: TextReader::open(path, options, 0)?,
            csv,
            header: None,
        };
        if from > 0 {
            // The header was there when this file was first sliced; its line ending no longer matters.
            records.take_header(true);
            records.text = TextReader::open(path, options, from)?;
        }
        Ok(records)
    }

    /// The length of the record at `at`, its newline included; `None` if it does not end.
    fn record(&mut self, at: usize, last: bool) -> Option<RecordEnd> {
        let mut fields = Vec::new();
        loop {
            let (rest, ended) = (self.text.unread(), self.text.is_complete(last));
            let found = match split(rest, at, self.csv.delimiter, ended, &mut fields) {
                Split::Blank(next) if next == at => None,
                Split::Blank(next) => Some(RecordEnd {
                    is_blank: true,
                    ..RecordEnd::at(next)
                }),
                Split::Record(next) => Some(RecordEnd {
                    fields: fields.len(),
                    ..RecordEnd::at(next)
                }),
                Split::AfterQuote(_, next) => Some(RecordEnd::at(next)),
                Split::Unfinished { .. } => {
                    let given_up = ended || rest.len() - at > RECORD_BYTES_MAX;
                    let line = memchr::memchr(b'\n', &rest[at..]);
                    let next = line.map_or(rest.len(), |newline| at + newline + 1);
                    given_up.then_some(RecordEnd {
                        is_open: true,
                        ..RecordEnd::at(next)
                    })
                }
            };
            if found.is_some() || self.text.ended {
                return found;
            }
            self.text.fill();
        }
    }

    /// Finds the header, or makes one from the number of fields. `false` if there is none yet.
    fn take_header(&mut self, last: bool) -> bool {
        while self.header.is_none() {
            let Some(found) = self.record(0, last) else {
                return false;
            };
            if found.is_blank {
                self.text.consume(found.next);
            } else if self.csv.header {
                let mut header = self.text.unread()[..found.next].to_vec();
                if header.last() != Some(&b'\n') {
                    header.push(b'\n');
                }
                self.header = Some(header);
                self.text.consume(found.next);
            } else {
                self.header = Some(self.numbered(found.fields.max(1)));
            }
        }
        true
    }

    fn numbered(&self, fields: usize) -> Vec<u8> {
        let names: Vec<String> = (1..=fields).map(|n| format!("column{n}")).collect();
        let delimiter = char::from(self.csv.delimiter).to_string();
        (names.join(&delimiter) + "\n").into_bytes()
    }
}

#[derive(Clone, Copy)]
struct RecordEnd {
    next: usize,
    fields: usize,
    is_blank: bool,
    /// The record has no end in sight; this is the first line of the data searched.
    is_open: bool,
}

impl RecordEnd {
    fn at(next: usize) -> RecordEnd {
        RecordEnd {
            next,
            fields: 0,
            is_blank: false,
            is_open: false,
        }
    }
}

impl SliceReader for RecordReader {
    fn next(&mut self, last: bool) -> Result<Option<FileSlice>, ReadError> {
        if !self.take_header(last) {
            return self.text.at_end();
        }
        let header = self.header.clone().unwrap_or_default();
        let delimiter = self.csv.delimiter;
        let mut slice = FileSlice::new(SliceKind::Csv { delimiter }, 0);
        while slice.bytes() < SLICE_BYTES {
            let (mut end, mut has_records) = (0, false);
            while end < VALUE_BYTES {
                let Some(found) = self.record(end, last) else {
                    break;
                };
                has_records |= !found.is_blank;
                end = found.next;
                if found.is_open {
                    break;
                }
            }
            if end == 0 {
                break;
            }
            if has_records {
                slice.push(&[&header, &self.text.unread()[..end]]);
            }
            self.text.consume(end);
        }
        slice.next = self.text.at;
        match slice.bytes() > 0 {
            true => Ok(Some(slice)),
            false => self.text.at_end(),
        }
    }

    fn at(&self) -> u64 {
        self.text.at
    }
}
