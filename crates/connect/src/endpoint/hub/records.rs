//! The rows of a write as records: a line of JSON each and, if the output names a key column, a key. The row number is
//! added as a header when a batch is sent.

use std::ops::Range;

use highwater_engine::{Chunk, eval};
use highwater_log::batch::{HEADER_LEN, NewRecord};
use highwater_query::plan::Name;

use crate::json::JsonWriter;
use crate::rows::RowNames;

/// The header with the row number, in digits.
pub(super) const ROW_HEADER: &str = "row";

/// The size of a record beside its key and value, at most.
const RECORD_BYTES: usize = 64;

pub(super) struct Records {
    names: RowNames,
    writer: JsonWriter,
    /// Lines of JSON with their newlines.
    lines: Vec<u8>,
    keys: String,
    /// The end of each row's key; `None` for a row without one. Empty if no row has a key.
    key_ends: Vec<Option<usize>>,
}

impl Records {
    pub(super) fn new(names: Vec<Name>) -> Records {
        Records {
            names: RowNames::new(names.clone()),
            writer: JsonWriter::new(names),
            lines: Vec::new(),
            keys: String::new(),
            key_ends: Vec::new(),
        }
    }

    pub(super) fn may_have(&self, name: &str) -> bool {
        self.names.may_have(name)
    }

    pub(super) fn encode(&mut self, chunk: &Chunk, rows: Range<usize>, key: Option<&str>) {
        self.lines.clear();
        self.writer.write_rows(chunk, rows.clone(), &mut self.lines);
        self.keys.clear();
        self.key_ends.clear();
        let Some(name) = key else { return };
        for row in rows {
            let value = self.names.value(chunk, row, name);
            eval::write_text(value, &mut self.keys);
            let end = (!value.is_null()).then_some(self.keys.len());
            self.key_ends.push(end);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NewRecord<'_>> {
        // Newlines inside values are escaped, so a line is a row.
        let ends = memchr::memchr_iter(b'\n', &self.lines);
        let keys = self.key_ends.iter().copied().chain(std::iter::repeat(None));
        let (mut line, mut key) = (0, 0);
        ends.zip(keys).map(move |(line_end, key_end)| {
            let value = &self.lines[line..line_end];
            line = line_end + 1;
            let key = key_end.map(|end| {
                let bytes = &self.keys.as_bytes()[key..end];
                key = end;
                bytes
            });
            NewRecord {
                key,
                value: Some(value),
                headers: &[],
            }
        })
    }
}

/// The size of a batch with this one record, at most.
pub(super) fn size(record: &NewRecord<'_>) -> usize {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    HEADER_LEN + RECORD_BYTES + length(record.key) + length(record.value)
}
