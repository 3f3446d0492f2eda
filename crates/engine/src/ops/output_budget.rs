//! The limit on the rows that a pipeline makes of one push.
//!
//! A join of many rows with many, an array that is applied to itself or a long series of windows turns a small input
//! into any number of rows, all of which are made before the push returns. An operator that multiplies rows charges
//! them here first, a chunk at a time. Once the limit is reached it makes no more, the caller discards the output of
//! the push, and the job fails: the state of the pipeline is not valid any more.

use std::cell::Cell;
use std::sync::Arc;

use highwater_query::Span;

use crate::chunk::CHUNK_ROWS;
use crate::column::Column;
use crate::work_limit::{PIECE_ROWS, WorkLimit};

/// The remaining budget for the rows of a push.
#[derive(Debug)]
pub struct OutputBudget {
    bytes_max: usize,
    left: Cell<usize>,
    overflow: Cell<Option<OutputOverflow>>,
    /// The limit of the whole run, if it has one.
    work_limit: Option<Arc<WorkLimit>>,
}

/// The step that made too many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputOverflow {
    /// The kind of the step.
    pub step: &'static str,
    /// Its position in the query.
    pub span: Option<Span>,
    pub bytes_max: usize,
}

impl Default for OutputBudget {
    fn default() -> OutputBudget {
        OutputBudget::new(usize::MAX)
    }
}

impl OutputBudget {
    pub(crate) fn new(bytes_max: usize) -> OutputBudget {
        OutputBudget {
            bytes_max,
            left: Cell::new(bytes_max),
            overflow: Cell::new(None),
            work_limit: None,
        }
    }

    /// For a run whose rows count together, in all pipelines and pushes.
    pub(crate) fn of_run(limit: Arc<WorkLimit>) -> OutputBudget {
        OutputBudget {
            work_limit: Some(limit),
            ..OutputBudget::default()
        }
    }

    /// A budget of its own with the same limit.
    pub(crate) fn with_same_limit(&self) -> OutputBudget {
        OutputBudget {
            work_limit: self.work_limit.clone(),
            ..OutputBudget::new(self.bytes_max)
        }
    }

    pub(crate) fn work_limit(&self) -> Option<&WorkLimit> {
        self.work_limit.as_deref()
    }

    /// The most rows that are emitted as one chunk.
    pub(crate) fn piece_rows(&self) -> usize {
        match self.work_limit {
            Some(_) => PIECE_ROWS,
            None => CHUNK_ROWS,
        }
    }

    /// Before a push.
    pub(crate) fn renew(&self) {
        self.left.set(self.bytes_max);
    }

    pub(crate) fn overflow(&self) -> Option<OutputOverflow> {
        self.overflow.get()
    }

    /// Whether no more rows may be made.
    pub(crate) fn is_exhausted(&self) -> bool {
        let limit = self.work_limit();
        self.overflow.get().is_some() || limit.is_some_and(WorkLimit::is_reached)
    }

    /// Charges rows before they are made; `false` if they must not be made.
    pub(crate) fn charge(&self, bytes: usize, step: &'static str, span: Option<Span>) -> bool {
        if let Some(limit) = &self.work_limit {
            limit.charge(bytes as u64);
            return !limit.is_reached();
        }
        match self.left.get().checked_sub(bytes) {
            Some(left) if self.overflow.get().is_none() => {
                self.left.set(left);
                true
            }
            _ => {
                let bytes_max = self.bytes_max;
                let first = self.overflow.get();
                self.overflow.set(first.or(Some(OutputOverflow {
                    step,
                    span,
                    bytes_max,
                })));
                false
            }
        }
    }

    /// Whether so many bytes could be charged.
    #[inline]
    pub(crate) fn has(&self, bytes: usize) -> bool {
        let left = match self.work_limit() {
            Some(limit) => limit.bytes_left(),
            None => self.left.get(),
        };
        bytes <= left
    }
}

/// About the size of copies of rows of a column.
pub(super) fn copied_bytes(column: &Column, rows: impl ExactSizeIterator<Item = usize>) -> usize {
    match column {
        Column::Text(_) => rows.map(|row| column.value_bytes(row)).sum(),
        _ => rows.len() * size_of::<i64>(),
    }
}
