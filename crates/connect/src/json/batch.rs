//! Decoded events that become a chunk.

use highwater_engine::{CHUNK_ROWS, Column, ColumnBuilder};

use super::fault::BadLine;
use crate::source::SAMPLE_BYTES_MAX;

/// Columns under construction, one for each field of the decoder that fills them.
#[derive(Debug)]
pub struct Batch {
    pub(crate) columns: Vec<ColumnBuilder>,
    pub(crate) rows: usize,
    /// `None` unless the batch tracks lines.
    pub(crate) lines: Option<Vec<u64>>,
    pub(crate) bad: Vec<BadLine>,
    /// How much of a bad line is kept.
    pub(crate) sample_bytes: usize,
}

/// The events of a finished batch, and its bad lines.
#[derive(Clone, Debug, Default)]
pub struct DecodedBatch {
    pub columns: Vec<Column>,
    pub rows: usize,
    /// The line number of each row; empty unless the batch tracks lines.
    pub lines: Vec<u64>,
    pub bad: Vec<BadLine>,
}

impl Batch {
    /// For a decoder of this many fields.
    pub fn new(fields: usize) -> Batch {
        Batch {
            columns: builders(fields),
            rows: 0,
            lines: None,
            bad: Vec::new(),
            sample_bytes: SAMPLE_BYTES_MAX,
        }
    }

    /// Also keeps the line number of each row, for tracing single events.
    pub fn tracking_lines(fields: usize) -> Batch {
        Batch {
            lines: Some(Vec::new()),
            ..Batch::new(fields)
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the events and starts a new batch.
    pub fn finish(&mut self) -> DecodedBatch {
        let fresh = builders(self.columns.len());
        let columns = std::mem::replace(&mut self.columns, fresh);
        DecodedBatch {
            columns: columns.into_iter().map(ColumnBuilder::finish).collect(),
            rows: std::mem::take(&mut self.rows),
            lines: self.lines.as_mut().map(std::mem::take).unwrap_or_default(),
            bad: std::mem::take(&mut self.bad),
        }
    }
}

fn builders(fields: usize) -> Vec<ColumnBuilder> {
    (0..fields)
        .map(|_| ColumnBuilder::with_capacity(CHUNK_ROWS))
        .collect()
}
