//! Numbers the revisions of the rows of one statement.
//!
//! A row that was sent early and is not final yet is *open*. An early row that equals the last revision of its row is
//! not sent again. When an open row is no longer among the early rows and has not become final, because a HAVING no
//! longer holds, say, it is withdrawn: a row with its identity alone, and NULL in `_final`. After that it may come
//! back, from revision 0 on.

use std::collections::HashMap;

use arrow_array::BooleanArray;
use arrow_buffer::BooleanBuffer;
use foldhash::fast::FixedState;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::codec::{ReadValue, WriteValue};
use highwater_engine::{Chunk, Column, ColumnBuilder};
use highwater_query::plan::Name;
use highwater_time::{Duration, Instant};

use super::EarlyStatement;
use super::statement::RowIdentity;

pub(crate) struct Revisions {
    pub every: Duration,
    after: Duration,
    /// `None` if the statement has final rows only.
    identity: Option<RowIdentity>,
    /// The columns that are written, of the statement's.
    written: Vec<usize>,
    /// The number of the statement's columns.
    width: usize,
    /// By the encoded values of the identity.
    open: HashMap<Vec<u8>, OpenRow, FixedState>,
    /// Reused for the encoded identity of a row.
    key: Vec<u8>,
    /// Reused for the encoded values of a row.
    values: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenRow {
    /// The number of the next revision.
    next: i64,
    /// The first revision time that saw the row.
    since: Instant,
    /// The last one that did.
    seen: Instant,
    /// Of the last revision; meaningless before the first.
    hash: u64,
}

impl Revisions {
    pub(crate) fn new(statement: &EarlyStatement) -> Revisions {
        let names = statement.names.iter().enumerate();
        let written = names.filter(|(_, name)| !matches!(name, Name::Hidden(_)));
        Revisions {
            every: statement.settings.every,
            after: statement.settings.after,
            identity: statement.identity.clone().ok(),
            written: written.map(|(column, _)| column).collect(),
            width: statement.names.len(),
            open: HashMap::default(),
            key: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Final rows, with the columns of revisions.
    pub(crate) fn final_rows(&mut self, chunk: Chunk) -> Chunk {
        let rows = chunk.rows();
        let numbers = (0..rows).map(|row| {
            if self.open.is_empty() {
                return 0;
            }
            self.read_key(&chunk, row);
            self.open.remove(&self.key).map_or(0, |open| open.next)
        });
        let numbers = numbers.collect();
        with_revisions(chunk, numbers, Column::Bit(vec![true; rows].into()))
    }

    /// The early rows of `chunk` at `time` that differ from their last revision, with the columns of revisions.
    pub(crate) fn early_rows(&mut self, time: Instant, chunk: &Chunk) -> Chunk {
        let (mut numbers, mut is_new) = (Vec::new(), Vec::with_capacity(chunk.rows()));
        for row in 0..chunk.rows() {
            let number = self.next_revision(time, chunk, row);
            is_new.push(number.is_some());
            numbers.extend(number);
        }
        let finals = vec![false; numbers.len()];
        let chunk = match numbers.len() == is_new.len() {
            true => chunk.clone(),
            false => chunk.filter(&BooleanBuffer::from(is_new)),
        };
        with_revisions(chunk, numbers, Column::Bit(finals.into()))
    }

    /// The number of the revision that the row is, if it is a new one.
    fn next_revision(&mut self, time: Instant, chunk: &Chunk, row: usize) -> Option<i64> {
        let window_size = self.identity.as_ref()?.windows.of(chunk, row)?.size();
        self.read_key(chunk, row);
        let hash = self.row_hash(chunk, row);
        let open = match self.open.get_mut(&self.key) {
            Some(open) => open,
            None => {
                let new = OpenRow {
                    next: 0,
                    since: time,
                    seen: Instant::BEFORE_ALL,
                    hash: 0,
                };
                self.open.entry(self.key.clone()).or_insert(new)
            }
        };
        // Of several rows of one identity the first is open.
        if std::mem::replace(&mut open.seen, time) == time {
            return None;
        }
        let begin = window_size.map_or(open.since, |size| chunk.time(row) - size);
        let is_young = self.after > Duration::ZERO && time < begin + self.after;
        if is_young || (open.next > 0 && open.hash == hash) {
            return None;
        }
        (open.hash, open.next) = (hash, open.next + 1);
        Some(open.next - 1)
    }

    /// The open rows that were not among the early rows of `time`; all of them without a time. They are open no longer.
    pub(crate) fn withdraw(&mut self, time: Option<Instant>) -> Option<Chunk> {
        let gone = |open: &OpenRow| time.is_none_or(|time| open.seen != time);
        let keys = self.open.iter().filter(|(_, open)| gone(open));
        let mut keys: Vec<Vec<u8>> = keys.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        let identity = self.identity.as_ref()?;
        let mut columns = ColumnBuilder::of_width(identity.columns.len());
        let mut numbers = Vec::new();
        for key in keys {
            let Some(open) = self.open.remove(&key).filter(|open| open.next > 0) else {
                continue;
            };
            numbers.push(open.next);
            let mut values = Reader::new(&key);
            for column in &mut columns {
                let value = values.value();
                column.push_owned(value.expect("the key was encoded here"));
            }
        }
        let rows = numbers.len();
        let mut all = vec![Column::Null(rows); self.width];
        for (column, values) in identity.columns.iter().zip(columns) {
            all[*column] = values.finish();
        }
        let times = vec![time.unwrap_or(Instant::BEFORE_ALL).ticks(); rows];
        let withdrawn = Column::Bit(BooleanArray::from(vec![None; rows]));
        let chunk = with_revisions(Chunk::new(times.into(), all), numbers, withdrawn);
        (rows > 0).then_some(chunk)
    }

    /// Encodes the identity of a row.
    fn read_key(&mut self, chunk: &Chunk, row: usize) {
        self.key.clear();
        for column in self.identity.iter().flat_map(|identity| &identity.columns) {
            self.key.value(chunk.columns[*column].get(row));
        }
    }

    fn row_hash(&mut self, chunk: &Chunk, row: usize) -> u64 {
        self.values.clear();
        for column in &self.written {
            self.values.value(chunk.columns[*column].get(row));
        }
        hash(&self.values)
    }

    /// About the size of the state; see `Operator::state_bytes`.
    pub(crate) fn state_bytes(&self) -> usize {
        let key_bytes = self.open.keys().map(Vec::len).sum::<usize>();
        key_bytes + self.open.len() * (size_of::<OpenRow>() + size_of::<Vec<u8>>())
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        let mut open: Vec<(&Vec<u8>, &OpenRow)> = self.open.iter().collect();
        open.sort_unstable_by_key(|(key, _)| *key);
        out.count(open.len());
        for (key, open) in open {
            out.blob(key);
            out.i64(open.next);
            out.i64(open.since.ticks());
            out.i64(open.seen.ticks());
            out.u64(open.hash);
        }
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.open.clear();
        let width = self
            .identity
            .as_ref()
            .map_or(0, |identity| identity.columns.len());
        for _ in 0..from.count()? {
            let key = from.blob()?.to_vec();
            let mut values = Reader::new(&key);
            for _ in 0..width {
                values.value()?;
            }
            values.end()?;
            let open = OpenRow {
                next: from.i64()?,
                since: Instant::from_ticks(from.i64()?),
                seen: Instant::from_ticks(from.i64()?),
                hash: from.u64()?,
            };
            self.open.insert(key, open);
        }
        Ok(())
    }
}

fn with_revisions(chunk: Chunk, numbers: Vec<i64>, finals: Column) -> Chunk {
    let mut columns = chunk.columns.clone();
    columns.extend([Column::from_ints(numbers), finals]);
    chunk.with_columns(columns)
}

/// A multiplicative hash over the length and words of eight bytes, the last one filled with zeros. Checkpoints hold its
/// values, so it must not change with a library.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ (product >> 32)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]);
    let start = mix(0xcbf2_9ce4_8422_2325, bytes.len() as u64);
    words.fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use highwater_engine::{Value, ValueRef};

    use super::super::statement::{WindowKind, Windows};
    use super::*;

    fn revisions(after: i64) -> Revisions {
        Revisions {
            every: Duration::from_secs(1),
            after: Duration::from_secs(after),
            identity: Some(RowIdentity {
                columns: vec![0],
                windows: Windows::One(WindowKind::Session),
            }),
            written: vec![0, 1],
            width: 2,
            open: HashMap::default(),
            key: Vec::new(),
            values: Vec::new(),
        }
    }

    fn at(seconds: i64) -> Instant {
        Instant::from_unix_millis(seconds * 1000)
    }

    /// Rows of a key and a number.
    fn rows(rows: &[(&str, i64)]) -> Chunk {
        let times: Vec<i64> = rows.iter().map(|_| at(100).ticks()).collect();
        let keys = rows.iter().map(|(key, _)| Value::Text((*key).into()));
        let numbers = rows.iter().map(|(_, number)| *number).collect();
        let keys = Column::Dynamic(std::sync::Arc::new(keys.collect()));
        Chunk::new(times.into(), vec![keys, Column::from_ints(numbers)])
    }

    /// Key, revision and whether it is final.
    fn shown(chunk: &Chunk) -> Vec<(String, i64, Option<bool>)> {
        let row = |row: usize| {
            let values: Vec<ValueRef<'_>> = chunk.columns.iter().map(|c| c.get(row)).collect();
            let ValueRef::Text(key) = values[0] else {
                panic!("no key")
            };
            let ValueRef::Int(number) = values[2] else {
                panic!("no revision")
            };
            let is_final = match values[3] {
                ValueRef::Bit(bit) => Some(bit),
                _ => None,
            };
            (key.to_owned(), number, is_final)
        };
        (0..chunk.rows()).map(row).collect()
    }

    fn row(key: &str, number: i64, is_final: Option<bool>) -> (String, i64, Option<bool>) {
        (key.to_owned(), number, is_final)
    }

    #[test]
    fn hashes_in_checkpoints_keep_their_values() {
        assert_eq!(hash(b""), 0x8603_89c5_7a9c_1205);
        assert_eq!(hash(b"abcdefghi"), 0x4c75_cc2c_69d6_28c0);
        assert_ne!(hash(b"a"), hash(b"a\0"));
    }

    // proves E1
    #[test]
    fn the_final_row_is_the_last_revision() {
        let mut revisions = revisions(0);
        let first = revisions.early_rows(at(1), &rows(&[("a", 1), ("b", 1)]));
        let (a, b) = (row("a", 0, Some(false)), row("b", 0, Some(false)));
        assert_eq!(shown(&first), [a, b]);
        let second = revisions.early_rows(at(2), &rows(&[("a", 2), ("b", 1)]));
        assert_eq!(shown(&second), [row("a", 1, Some(false))], "b is unchanged");
        let last = revisions.final_rows(rows(&[("a", 2), ("b", 1), ("c", 1)]));
        let finals = [("a", 2), ("b", 1), ("c", 0)];
        assert_eq!(
            shown(&last),
            finals.map(|(key, number)| row(key, number, Some(true)))
        );
        assert!(revisions.open.is_empty());
        assert!(revisions.withdraw(None).is_none());
    }

    #[test]
    fn a_row_that_is_neither_final_nor_early_any_more_is_withdrawn_and_may_come_back() {
        let mut revisions = revisions(0);
        revisions.early_rows(at(1), &rows(&[("a", 1), ("b", 1)]));
        assert!(revisions.withdraw(Some(at(1))).is_none());
        revisions.early_rows(at(2), &rows(&[("b", 2)]));
        let mut state = Vec::new();
        revisions.snapshot(&mut state);
        let mut restored = self::revisions(0);
        restored.restore(&mut Reader::new(&state)).unwrap();
        assert_eq!(restored.open, revisions.open);
        let withdrawn = restored.withdraw(Some(at(2))).unwrap();
        assert_eq!(shown(&withdrawn), [row("a", 1, None)]);
        assert!(withdrawn.columns[1].is_null(0), "only its identity is left");
        let back = restored.early_rows(at(3), &rows(&[("a", 1), ("b", 2)]));
        assert_eq!(shown(&back), [row("a", 0, Some(false))]);
    }

    #[test]
    fn no_row_is_early_before_it_has_been_there_for_a_while() {
        let mut revisions = revisions(2);
        let early = |revisions: &mut Revisions, second| {
            shown(&revisions.early_rows(at(second), &rows(&[("a", second)])))
        };
        assert_eq!(early(&mut revisions, 1), []);
        assert_eq!(early(&mut revisions, 2), []);
        assert_eq!(early(&mut revisions, 3), [row("a", 0, Some(false))]);
        let mut quiet = self::revisions(2);
        early(&mut quiet, 1);
        assert!(quiet.withdraw(Some(at(2))).is_none(), "it was never given");
    }
}
