//! The rows of a write as records: a line of JSON each and, if the output has one, a key. The row number is added as a
//! header when a batch is sent. A withdrawn row is a record without a value, which compaction takes for a deletion.

use std::ops::Range;

use highwater_engine::{Chunk, Record, Value, eval};
use highwater_log::batch::{HEADER_LEN, NewRecord};
use highwater_query::plan::Name;

use super::super::FINAL_COLUMN;
use crate::json::JsonWriter;
use crate::rows::RowNames;

/// The header with the row number, in digits.
pub(super) const ROW_HEADER: &str = "row";

/// The header with the output, where the log does not know its producer.
pub(super) const ORIGIN_HEADER: &str = "output";

/// The size of a record beside its key and value, at most.
const RECORD_BYTES: usize = 64;

/// The key of records.
#[derive(Clone, Debug)]
pub(super) enum RecordKey {
    None,
    /// The text of a column.
    Column(String),
    /// These columns as one line of JSON.
    Columns(Vec<String>),
}

pub(super) struct Records {
    names: RowNames,
    key: RecordKey,
    /// Rows with NULL in this column are withdrawn.
    finality: Option<&'static str>,
    writer: JsonWriter,
    /// Lines of JSON with their newlines.
    lines: Vec<u8>,
    keys: String,
    /// The end of each row's key; `None` for a row without one. Empty if no row has a key.
    key_ends: Vec<Option<usize>>,
    /// Whether each row is withdrawn; empty if none can be.
    withdrawn: Vec<bool>,
}

impl Records {
    /// `has_revisions`: rows are sent before they are final.
    pub(super) fn new(names: Vec<Name>, key: RecordKey, has_revisions: bool) -> Records {
        Records {
            names: RowNames::new(names.clone()),
            key,
            finality: has_revisions.then_some(FINAL_COLUMN),
            writer: JsonWriter::new(names),
            lines: Vec::new(),
            keys: String::new(),
            key_ends: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    pub(super) fn may_have(&self, name: &str) -> bool {
        self.names.may_have(name)
    }

    pub(super) fn encode(&mut self, chunk: &Chunk, rows: Range<usize>) {
        self.lines.clear();
        self.writer.write_rows(chunk, rows.clone(), &mut self.lines);
        self.withdrawn.clear();
        if let Some(finality) = self.finality {
            let is_withdrawn = |row| self.names.value(chunk, row, finality).is_null();
            self.withdrawn.extend(rows.clone().map(is_withdrawn));
        }
        self.keys.clear();
        self.key_ends.clear();
        for row in rows {
            match &self.key {
                RecordKey::None => return,
                RecordKey::Column(name) => {
                    let value = self.names.value(chunk, row, name);
                    eval::write_text(value, &mut self.keys);
                    let end = (!value.is_null()).then_some(self.keys.len());
                    self.key_ends.push(end);
                }
                RecordKey::Columns(names) => {
                    let fields = names.iter().map(|name| {
                        let value = self.names.value(chunk, row, name);
                        (name.as_str().into(), value.to_value())
                    });
                    let record = Record::from_fields(fields.collect());
                    let record = Value::Record(record.into());
                    eval::write_json(record.view(), &mut self.keys);
                    self.key_ends.push(Some(self.keys.len()));
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NewRecord<'_>> {
        // Newlines inside values are escaped, so a line is a row.
        let ends = memchr::memchr_iter(b'\n', &self.lines);
        let keys = self.key_ends.iter().copied().chain(std::iter::repeat(None));
        let withdrawn = self.withdrawn.iter().copied();
        let withdrawn = withdrawn.chain(std::iter::repeat(false));
        let (mut line, mut key) = (0, 0);
        let rows = ends.zip(keys).zip(withdrawn);
        rows.map(move |((line_end, key_end), is_withdrawn)| {
            let value = (!is_withdrawn).then_some(&self.lines[line..line_end]);
            line = line_end + 1;
            let key = key_end.map(|end| {
                let bytes = &self.keys.as_bytes()[key..end];
                key = end;
                bytes
            });
            NewRecord {
                key,
                value,
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
