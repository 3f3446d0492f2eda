//! CSV: runs of records, each with the header on top. Counts bytes.
//!
//! A record may span lines, so only whole records are taken; what is wrong with one is told by whoever reads the value. A
//! quote that is opened and never closed would hold up everything behind it: after a while its line is taken alone.

use std::path::Path;

use super::text::Text;
use super::{CUT_BYTES, Cut, CutKind, Cuts, Cutting, VALUE_BYTES};
use crate::csv::{RECORD_BYTES_MAX, Split, split};
use crate::{CsvFormat, ReadError};

pub(super) struct Records {
    text: Text,
    csv: CsvFormat,
    /// `None` until there is one.
    header: Option<Vec<u8>>,
}

impl Records {
    pub fn open(
        path: &Path,
        csv: CsvFormat,
        cutting: &Cutting,
        from: u64,
    ) -> Result<Records, ReadError> {
        let mut records = Records {
            text: Text::open(path, cutting, 0)?,
            csv,
            header: None,
        };
        if from > 0 {
            // There was one when this file was first cut, and what it ends with does not matter any more.
            records.take_header(true);
            records.text = Text::open(path, cutting, from)?;
        }
        Ok(records)
    }

    /// The length of the record at `at`, its newline included; `None` if it does not end.
    fn record(&mut self, at: usize, last: bool) -> Option<Found> {
        let mut fields = Vec::new();
        loop {
            let (rest, ended) = (self.text.rest(), self.text.is_complete(last));
            let found = match split(rest, at, self.csv.delimiter, ended, &mut fields) {
                Split::Blank(next) if next == at => None,
                Split::Blank(next) => Some(Found {
                    is_blank: true,
                    ..Found::at(next)
                }),
                Split::Record(next) => Some(Found {
                    fields: fields.len(),
                    ..Found::at(next)
                }),
                Split::AfterQuote(_, next) => Some(Found::at(next)),
                Split::Unfinished { .. } => {
                    let given_up = ended || rest.len() - at > RECORD_BYTES_MAX;
                    let line = memchr::memchr(b'\n', &rest[at..]);
                    let next = line.map_or(rest.len(), |newline| at + newline + 1);
                    given_up.then_some(Found {
                        is_open: true,
                        ..Found::at(next)
                    })
                }
            };
            if found.is_some() || self.text.ended {
                return found;
            }
            self.text.fill();
        }
    }

    /// Finds the header, or makes one of the number of fields. `false` if there is none yet.
    fn take_header(&mut self, last: bool) -> bool {
        while self.header.is_none() {
            let Some(found) = self.record(0, last) else {
                return false;
            };
            if found.is_blank {
                self.text.pass(found.next);
            } else if self.csv.header {
                let mut header = self.text.rest()[..found.next].to_vec();
                if header.last() != Some(&b'\n') {
                    header.push(b'\n');
                }
                self.header = Some(header);
                self.text.pass(found.next);
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
struct Found {
    next: usize,
    fields: usize,
    is_blank: bool,
    /// Its end was not found, and it is the first line of what was looked at.
    is_open: bool,
}

impl Found {
    fn at(next: usize) -> Found {
        Found {
            next,
            fields: 0,
            is_blank: false,
            is_open: false,
        }
    }
}

impl Cuts for Records {
    fn next(&mut self, last: bool) -> Result<Option<Cut>, ReadError> {
        if !self.take_header(last) {
            return self.text.at_end();
        }
        let header = self.header.clone().unwrap_or_default();
        let delimiter = self.csv.delimiter;
        let mut cut = Cut::new(CutKind::Csv { delimiter }, 0);
        while cut.bytes() < CUT_BYTES {
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
                cut.push(&[&header, &self.text.rest()[..end]]);
            }
            self.text.pass(end);
        }
        cut.next = self.text.at;
        match cut.bytes() > 0 {
            true => Ok(Some(cut)),
            false => self.text.at_end(),
        }
    }

    fn at(&self) -> u64 {
        self.text.at
    }
}
