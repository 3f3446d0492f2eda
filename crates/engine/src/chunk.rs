//! A chunk: rows of columns, each row with its time, in time order.

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, ScalarBuffer};
use highwater_time::{Instant, LaneWatermark};

use crate::column::Column;

/// How many rows a source aims to put into one chunk.
pub const CHUNK_ROWS: usize = 8192;

#[derive(Clone, Debug)]
pub struct Chunk {
    /// Ticks of each row's timestamp, never decreasing (within a lane, where there are lanes).
    pub times: ScalarBuffer<i64>,
    pub columns: Vec<Column>,
    /// Which clock each row goes by, where the input has substreams.
    pub lanes: Option<Lanes>,
    /// The input event that each row stems from; kept only when somebody asks for the fate of events.
    pub origins: Option<ScalarBuffer<u64>>,
}

/// Rows of several substreams in one chunk, and how their clocks moved between the rows.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// The lane of each row.
    pub of_row: Vec<u32>,
    /// Clock movements, in order; `before` counts rows of this chunk.
    pub watermarks: Vec<LaneWatermark>,
    /// What lanes stand for, in order; only where streams of several inputs meet further on.
    pub names: Vec<LaneName>,
}

/// Says which key a lane stands for from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneName {
    /// How many of the watermarks of the chunk come before. The rows between two watermarks need no order among the names: a lane
    /// goes to another key only after a mark.
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

    pub fn time(&self, row: usize) -> Instant {
        Instant::from_ticks(self.times[row])
    }

    /// The rows that `mask` selects. Marks stay, in front of the row that now follows them.
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
            lanes: self.lanes.as_ref().map(|lanes| lanes.keep(&rows)),
            origins: self
                .origins
                .as_ref()
                .map(|o| rows.iter().map(|&r| o[r as usize]).collect()),
        }
    }

    /// Some rows that follow each other. Lanes are left behind.
    pub fn slice(&self, start: usize, len: usize) -> Chunk {
        let columns = self.columns.iter().map(|c| c.slice(start, len));
        Chunk {
            times: self.times.slice(start, len),
            columns: columns.collect(),
            lanes: None,
            origins: self.origins.as_ref().map(|o| o.slice(start, len)),
        }
    }

    /// Rows gathered from several chunks, each named by (chunk, row). Lanes are left behind.
    pub fn interleave(chunks: &[&Chunk], rows: &[(u32, u32)]) -> Chunk {
        let times = rows
            .iter()
            .map(|&(c, r)| chunks[c as usize].times[r as usize])
            .collect();
        Chunk::gather(chunks, rows, times)
    }

    /// Like [`Chunk::interleave`], with times given.
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

impl Lanes {
    /// Passes a name on, after the watermarks so far.
    pub(crate) fn name(&mut self, name: &LaneName) {
        self.names.push(LaneName {
            after: self.watermarks.len(),
            ..name.clone()
        });
    }

    /// Whether there is something to tell even without rows.
    pub(crate) fn has_news(&self) -> bool {
        !self.watermarks.is_empty() || !self.names.is_empty()
    }

    fn keep(&self, rows: &[u32]) -> Lanes {
        let before = |old: usize| rows.partition_point(|&row| (row as usize) < old);
        Lanes {
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
