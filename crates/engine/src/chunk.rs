//! A chunk: rows as columns, each row with its timestamp, in time order.

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, ScalarBuffer};
use highwater_time::{Instant, LaneWatermark};

use crate::column::Column;

/// How many rows a source aims to put into one chunk.
pub const CHUNK_ROWS: usize = 8192;

#[derive(Clone, Debug)]
pub struct Chunk {
    /// The timestamp of each row in ticks, never decreasing (with substreams, within a lane).
    pub times: ScalarBuffer<i64>,
    pub columns: Vec<Column>,
    /// The lanes of the rows; `None` without substreams.
    pub lanes: Option<ChunkLanes>,
    /// The input event of each row; kept only if window entries are traced.
    pub origins: Option<ScalarBuffer<u64>>,
}

/// The lanes of the rows of a chunk, and the watermarks between the rows.
#[derive(Clone, Debug, Default)]
pub struct ChunkLanes {
    /// The lane of each row.
    pub of_row: Vec<u32>,
    /// In order; `before_row` counts rows of this chunk.
    pub watermarks: Vec<LaneWatermark>,
    /// The keys of new lanes, in order; only if a later step joins substreams.
    pub names: Vec<LaneName>,
}

/// Assigns a lane number to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneName {
    /// The number of watermarks of the chunk before this name. Names need no order among the rows between two
    /// watermarks, because a lane is reassigned only after a watermark.
    pub after: usize,
    pub lane: u32,
    pub key: Arc<[u8]>,
}

impl Chunk {
    pub fn new(times: ScalarBuffer<i64>, columns: Vec<Column>) -> Chunk {
        debug_assert!(columns.iter().all(|c| c.len() == times.len()));
        Chunk {
            times,
            columns,
            lanes: None,
            origins: None,
        }
    }

    pub fn rows(&self) -> usize {
        self.times.len()
    }

    /// About the size of the rows; see `Column::approximate_bytes`.
    pub fn approximate_bytes(&self) -> usize {
        let columns = self.columns.iter().map(Column::approximate_bytes);
        columns.sum::<usize>() + self.rows() * size_of::<i64>()
    }

    pub fn time(&self, row: usize) -> Instant {
        Instant::from_ticks(self.times[row])
    }

    /// The rows that `mask` selects. Watermarks stay, before the next remaining row.
    pub fn filter(&self, mask: &BooleanBuffer) -> Chunk {
        let rows: Vec<u32> = mask.set_indices().map(|row| row as u32).collect();
        if rows.len() == self.rows() {
            return self.clone();
        }
        Chunk {
            times: rows.iter().map(|&row| self.times[row as usize]).collect(),
            columns: self
                .columns
                .iter()
                .map(|column| column.take(&rows))
                .collect(),
            lanes: self.lanes.as_ref().map(|lanes| lanes.take(&rows)),
            origins: self
                .origins
                .as_ref()
                .map(|o| rows.iter().map(|&r| o[r as usize]).collect()),
        }
    }

    /// A range of rows, without lanes.
    pub fn slice(&self, start: usize, len: usize) -> Chunk {
        let columns = self.columns.iter().map(|c| c.slice(start, len));
        Chunk {
            times: self.times.slice(start, len),
            columns: columns.collect(),
            lanes: None,
            origins: self.origins.as_ref().map(|o| o.slice(start, len)),
        }
    }

    /// Gathers rows (chunk, row) of several chunks, without lanes.
    pub fn interleave(chunks: &[&Chunk], rows: &[(u32, u32)]) -> Chunk {
        let times = rows
            .iter()
            .map(|&(c, r)| chunks[c as usize].times[r as usize])
            .collect();
        Chunk::gather(chunks, rows, times)
    }

    /// Like [`Chunk::interleave`], with other timestamps.
    pub fn gather(chunks: &[&Chunk], rows: &[(u32, u32)], times: ScalarBuffer<i64>) -> Chunk {
        let width = chunks.first().map_or(0, |chunk| chunk.columns.len());
        let columns = (0..width)
            .map(|column| {
                let parts: Vec<&Column> = chunks.iter().map(|c| &c.columns[column]).collect();
                Column::interleave(&parts, rows)
            })
            .collect();
        let origins: Option<Vec<_>> = chunks.iter().map(|chunk| chunk.origins.as_ref()).collect();
        let origins = origins.map(|o| {
            rows.iter()
                .map(|&(c, r)| o[c as usize][r as usize])
                .collect()
        });
        Chunk {
            times,
            columns,
            lanes: None,
            origins,
        }
    }

    /// The same rows with other columns.
    pub fn with_columns(&self, columns: Vec<Column>) -> Chunk {
        Chunk {
            times: self.times.clone(),
            columns,
            lanes: self.lanes.clone(),
            origins: self.origins.clone(),
        }
    }
}

impl ChunkLanes {
    /// Appends a name after the watermarks so far.
    pub(crate) fn push_name(&mut self, name: &LaneName) {
        self.names.push(LaneName {
            after: self.watermarks.len(),
            ..name.clone()
        });
    }

    /// Whether there are watermarks or names, even without rows.
    pub(crate) fn has_updates(&self) -> bool {
        !self.watermarks.is_empty() || !self.names.is_empty()
    }

    fn take(&self, rows: &[u32]) -> ChunkLanes {
        let before = |old: usize| rows.partition_point(|&row| (row as usize) < old);
        ChunkLanes {
            of_row: rows.iter().map(|&row| self.of_row[row as usize]).collect(),
            watermarks: self
                .watermarks
                .iter()
                .map(|mark| LaneWatermark {
                    before_row: before(mark.before_row),
                    ..*mark
                })
                .collect(),
            names: self.names.clone(),
        }
    }
}
