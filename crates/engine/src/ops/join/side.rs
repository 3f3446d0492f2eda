//! One side of a join: rows that wait for the watermark, and buffered rows that later rows of the other side may match.
//!
//! Rows stay in their chunks, reduced to the needed columns. Their times and keys are in the chunk until the watermark
//! has passed it, and then in their entries among the [`BufferedRows`].

use std::collections::VecDeque;

use highwater_codec::{DecodeError, Reader, Writer};

use arrow_buffer::ScalarBuffer;
use highwater_query::plan::Expr;

use super::super::row_keys::{HashedKey, RowKeys};
use super::super::{Context, DataErrors};
use super::buffered_rows::{BufferedRow, BufferedRows, PREFETCH_ROWS, ROW_BYTES};
use crate::chunk::{CHUNK_ROWS, Chunk};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};

/// A row: the number of its chunk (wrapping at 32 bits) and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowRef {
    pub chunk: u32,
    pub row: u32,
}

/// A chunk reduced to the columns that the join needs.
#[derive(Debug)]
pub(super) struct BufferedChunk {
    rows: usize,
    /// Empty once the watermark has passed all rows.
    waiting: WaitingRows,
    pub columns: Vec<Column>,
    /// The columns of the keys; empty unless kept.
    pub key_columns: Vec<Column>,
    /// Which rows are matched; empty unless tracked.
    matched: Vec<bool>,
}

/// The times and keys of the rows of a chunk.
#[derive(Debug, Default)]
struct WaitingRows {
    times: ScalarBuffer<i64>,
    keys: RowKeys,
}

#[derive(Debug)]
pub(super) struct JoinSide {
    keys: Vec<Expr>,
    /// The buffered columns of the input chunks.
    columns: Vec<usize>,
    /// Whether to track which rows are matched.
    pub track_matches: bool,
    /// Whether results take values from the keys of this side.
    pub keep_key_columns: bool,
    chunks: VecDeque<BufferedChunk>,
    /// The number of the first chunk.
    first: u32,
    /// The first row that the watermark has not passed: (index in `chunks`, row).
    ahead: (usize, usize),
    rows: BufferedRows,
    /// Keys of one class may differ; see [`RowKeys`].
    converted: bool,
}

/// The next row that the watermark has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextRow {
    pub row_ref: RowRef,
    /// The index of its chunk, valid until chunks are dropped.
    chunk: usize,
}

impl JoinSide {
    pub(super) fn new(keys: Vec<Expr>, columns: Vec<usize>) -> JoinSide {
        JoinSide {
            keys,
            columns,
            track_matches: false,
            keep_key_columns: false,
            chunks: VecDeque::new(),
            first: 0,
            ahead: (0, 0),
            rows: BufferedRows::new(),
            converted: false,
        }
    }

    /// Adds rows; drops and counts those whose keys fail.
    pub(super) fn push(&mut self, chunk: Chunk, context: &mut Context<'_>) {
        let (chunk, key_columns) = prepare(&self.keys, chunk, context.errors);
        let columns: Vec<&Column> = self.columns.iter().map(|&c| &chunk.columns[c]).collect();
        let mut from = 0;
        while from < chunk.rows() {
            let keys = RowKeys::new(&key_columns, from, chunk.rows());
            let len = keys.len();
            let whole = len == chunk.rows();
            let cut = |column: &Column| match whole {
                true => column.clone(),
                false => column.slice(from, len),
            };
            self.converted |= keys.is_converted();
            let kept = if self.keep_key_columns {
                &key_columns[..]
            } else {
                &[]
            };
            self.chunks.push_back(BufferedChunk {
                matched: vec![false; if self.track_matches { len } else { 0 }],
                rows: len,
                columns: columns.iter().map(|column| cut(column)).collect(),
                key_columns: kept.iter().map(cut).collect(),
                waiting: WaitingRows {
                    times: chunk.times.slice(from, len),
                    keys,
                },
            });
            from += len;
        }
    }

    /// The time of the next row, or the end of time.
    #[inline]
    pub(super) fn next_time(&self) -> i64 {
        let (chunk, row) = self.ahead;
        let chunk = self.chunks.get(chunk);
        chunk.map_or(i64::MAX, |chunk| chunk.waiting.times[row])
    }

    /// Takes the next row if its time is `time`.
    #[inline]
    pub(super) fn next_at(&mut self, time: i64) -> Option<NextRow> {
        let (chunk, row) = self.ahead;
        let stored = self.chunks.get(chunk)?;
        if stored.waiting.times[row] != time {
            return None;
        }
        self.ahead = match row + 1 < stored.rows {
            true => (chunk, row + 1),
            false => (chunk + 1, 0),
        };
        let row_ref = RowRef {
            chunk: self.first.wrapping_add(chunk as u32),
            row: row as u32,
        };
        Some(NextRow { row_ref, chunk })
    }

    /// Hash and key of a row, unless one of its keys is NULL.
    #[inline]
    pub(super) fn key(&self, next: NextRow) -> Option<HashedKey<'_>> {
        let keys = &self.chunks[next.chunk].waiting.keys;
        keys.hashed_key(next.row_ref.row as usize)
    }

    /// Buffers a row for later rows of the other side.
    pub(super) fn keep(&mut self, next: NextRow, time: i64) {
        let keys = &self.chunks[next.chunk].waiting.keys;
        let key = keys.hashed_key(next.row_ref.row as usize);
        self.rows.push(time, next.row_ref, key);
    }

    /// Visits the buffered rows with an equal key, newest first.
    #[inline]
    pub(super) fn find(&self, key: HashedKey<'_>, visit: impl FnMut(i64, RowRef)) {
        self.rows.find(key, self.converted, visit);
    }

    /// The hashes of the next rows, at most [`PREFETCH_ROWS`].
    pub(super) fn upcoming(&self) -> &[u64] {
        let (chunk, row) = self.ahead;
        self.chunks.get(chunk).map_or(&[], |stored| {
            let hashes = &stored.waiting.keys.hashes()[row..];
            &hashes[..hashes.len().min(PREFETCH_ROWS)]
        })
    }

    /// Touches the memory that lookups of these hashes will touch.
    pub(super) fn prefetch(&self, hashes: &[u64]) {
        self.rows.prefetch(hashes);
    }

    /// The number of buffered rows.
    pub(super) fn buffered(&self) -> usize {
        self.rows.len()
    }

    /// Time and position of a buffered row, counted from the oldest.
    pub(super) fn buffered_row(&self, index: usize) -> Option<(i64, RowRef)> {
        self.rows.get(index).map(|kept| (kept.time, kept.row_ref))
    }

    /// Drops the buffered rows before `time` and returns their number.
    pub(super) fn drop_before(&mut self, time: i64) -> usize {
        self.rows.drop_before(time)
    }

    pub(super) fn chunk(&self, number: u32) -> &BufferedChunk {
        &self.chunks[number.wrapping_sub(self.first) as usize]
    }

    pub(super) fn chunks(&self) -> &VecDeque<BufferedChunk> {
        &self.chunks
    }

    /// The number of the first chunk.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn set_matched(&mut self, row_ref: RowRef) {
        let chunk = row_ref.chunk.wrapping_sub(self.first) as usize;
        self.chunks[chunk].matched[row_ref.row as usize] = true;
    }

    pub(super) fn is_matched(&self, row_ref: RowRef) -> bool {
        self.chunk(row_ref.chunk).matched[row_ref.row as usize]
    }

    /// Drops chunks without buffered or waiting rows, and the times and keys of rows that do not wait any more.
    pub(super) fn drop_chunks(&mut self) {
        let passed = self.chunks.range_mut(..self.ahead.0).rev();
        passed
            .take_while(|chunk| !chunk.waiting.times.is_empty())
            .for_each(|chunk| chunk.waiting = WaitingRows::default());
        let kept = self
            .rows
            .get(0)
            .map(|kept| kept.row_ref.chunk.wrapping_sub(self.first) as usize);
        let done = kept.unwrap_or(self.ahead.0).min(self.ahead.0);
        self.chunks.drain(..done);
        self.first = self.first.wrapping_add(done as u32);
        self.ahead.0 -= done;
    }

    /// Merges small chunks at the end, so that a stream of single rows does not cost a chunk per row. Every row is
    /// moved a few times at most, as each merge at least doubles its chunk.
    ///
    /// Invalidates all [`RowRef`]s outside of this side.
    pub(super) fn compact(&mut self) {
        let end = self.ahead.0;
        if end < 2 {
            return;
        }
        let (mut start, mut size) = (end - 1, self.chunks[end - 1].rows);
        while start > 0 {
            let before = self.chunks[start - 1].rows;
            if size + before > CHUNK_ROWS || before > 2 * size {
                break;
            }
            size += before;
            start -= 1;
        }
        if start + 1 < end {
            self.merge_chunks(start, end);
        }
    }

    /// Merges the buffered rows of chunks that the watermark has passed into one chunk.
    fn merge_chunks(&mut self, start: usize, end: usize) {
        let first = self.first;
        let chunk_of = |kept: &BufferedRow| kept.row_ref.chunk.wrapping_sub(first) as usize;
        let from = self.rows.partition_point(|kept| chunk_of(kept) < start);
        let to = self.rows.partition_point(|kept| chunk_of(kept) < end);
        let (mut rows, mut matched) = (Vec::new(), Vec::new());
        for kept in self.rows.range_mut(from..to) {
            let (chunk, row) = (chunk_of(kept), kept.row_ref.row);
            if self.track_matches {
                matched.push(self.chunks[chunk].matched[row as usize]);
            }
            kept.row_ref = RowRef {
                chunk: first.wrapping_add(start as u32),
                row: rows.len() as u32,
            };
            rows.push(((chunk - start) as u32, row));
        }
        let parts: Vec<&BufferedChunk> = self.chunks.range(start..end).collect();
        let columns = (0..self.columns.len()).map(|column| {
            let parts: Vec<&Column> = parts.iter().map(|part| &part.columns[column]).collect();
            Column::interleave(&parts, &rows)
        });
        let key_columns = (0..parts[0].key_columns.len()).map(|key| {
            let parts: Vec<&Column> = parts.iter().map(|part| &part.key_columns[key]).collect();
            Column::interleave(&parts, &rows)
        });
        let merged = BufferedChunk {
            rows: rows.len(),
            waiting: WaitingRows::default(),
            columns: columns.collect(),
            key_columns: key_columns.collect(),
            matched,
        };
        self.chunks.drain(start..end);
        let mut gone = end - start;
        if !rows.is_empty() {
            self.chunks.insert(start, merged);
            gone -= 1;
        }
        self.ahead.0 -= gone;
        for kept in self.rows.range_mut(to..self.rows.len()) {
            kept.row_ref.chunk = kept.row_ref.chunk.wrapping_sub(gone as u32);
        }
    }

    pub(super) fn state_bytes(&self) -> usize {
        let columns = self.chunks.iter().flat_map(|chunk| &chunk.columns);
        self.rows.len() * ROW_BYTES + columns.map(Column::approximate_bytes).sum::<usize>()
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.rows.len());
        for (kept, key) in self.rows.iter() {
            self.snapshot_row(kept.time, key, kept.row_ref, out);
        }
        let (chunk, row) = self.ahead;
        let start = |at: usize| if at == chunk { row } else { 0 };
        let unmatched = chunk..self.chunks.len();
        out.count(
            unmatched
                .clone()
                .map(|at| self.chunks[at].rows - start(at))
                .sum(),
        );
        for at in unmatched {
            let stored = &self.chunks[at];
            for row in start(at)..stored.rows {
                let row_ref = RowRef {
                    chunk: self.first.wrapping_add(at as u32),
                    row: row as u32,
                };
                let key = stored.waiting.keys.key(row);
                self.snapshot_row(stored.waiting.times[row], key, row_ref, out);
            }
        }
    }

    fn snapshot_row(&self, time: i64, key: Option<&[u8]>, row_ref: RowRef, out: &mut Vec<u8>) {
        let (stored, row) = (self.chunk(row_ref.chunk), row_ref.row as usize);
        out.i64(time);
        out.u8(u8::from(self.track_matches && stored.matched[row]));
        match key {
            None => out.u8(0),
            Some(key) => {
                out.u8(1);
                out.blob(key);
            }
        }
        stored
            .columns
            .iter()
            .for_each(|column| out.value(column.get(row)));
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.chunks.clear();
        self.rows.clear();
        self.converted = false;
        self.ahead = (0, 0);
        self.restore_rows(from)?;
        while self.next_time() < i64::MAX {
            let time = self.next_time();
            while let Some(next) = self.next_at(time) {
                self.keep(next, time);
            }
        }
        self.restore_rows(from)
    }

    /// The key columns of stored keys.
    fn decoded_keys(&self, keys: &RowKeys) -> Vec<Column> {
        let width = if self.keep_key_columns {
            self.keys.len()
        } else {
            0
        };
        let mut columns = ColumnBuilder::of_width(width);
        for row in 0..keys.len() {
            let mut key = keys.key(row).unwrap_or_default();
            let columns = columns.iter_mut();
            columns.for_each(|column| column.push(eval::decode_key(&mut key)));
        }
        columns.into_iter().map(ColumnBuilder::finish).collect()
    }

    fn restore_rows(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut left = from.count()?;
        while left > 0 {
            let rows = left.min(CHUNK_ROWS);
            let mut times = Vec::with_capacity(rows);
            let mut keys = RowKeys::default();
            let mut matched = Vec::new();
            let mut columns: Vec<ColumnBuilder> = self
                .columns
                .iter()
                .map(|_| ColumnBuilder::with_capacity(rows))
                .collect();
            for _ in 0..rows {
                times.push(from.i64()?);
                let met = from.u8()? != 0;
                if self.track_matches {
                    matched.push(met);
                }
                match from.u8()? {
                    0 => keys.push_none(),
                    _ => keys.push(from.blob()?),
                }
                for column in &mut columns {
                    column.push_owned(from.value()?);
                }
            }
            self.converted |= keys.is_converted();
            self.chunks.push_back(BufferedChunk {
                rows,
                columns: columns.into_iter().map(ColumnBuilder::finish).collect(),
                key_columns: self.decoded_keys(&keys),
                waiting: WaitingRows {
                    times: times.into(),
                    keys,
                },
                matched,
            });
            left -= rows;
        }
        Ok(())
    }
}

/// Evaluates the keys; rows on which one fails are counted and left out.
fn prepare(keys: &[Expr], chunk: Chunk, errors: &mut DataErrors) -> (Chunk, Vec<Column>) {
    let evaluate = |chunk: &Chunk, faults: &mut Faults| -> Vec<Column> {
        eval::evaluate_all(keys, chunk, faults)
    };
    let mut faults = Faults::new(chunk.rows());
    let columns = evaluate(&chunk, &mut faults);
    if faults.is_silent() {
        return (chunk, columns);
    }
    let good = faults.good();
    let columns = columns.iter().map(|column| column.filter(&good)).collect();
    (errors.drop_failed_rows(chunk, &faults), columns)
}
