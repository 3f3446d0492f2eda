//! The output of a join: pairs of row references first, columns when there are enough pairs.
//!
//! Pairs are in result order. A left row that may be unmatched is in the list too, at the position of its result, and is
//! removed if one of the pairs before it satisfies the residual condition, which is evaluated here for many pairs at once.

use highwater_query::Span;
use highwater_query::plan::{Pred, Side};

use super::super::{Context, Item};
use super::STEP;
use super::side::{JoinSide, RowRef};
use crate::chunk::Chunk;
use crate::column::Column;
use crate::eval::{self, Faults};

#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub time: i64,
    pub left: RowRef,
    /// `None` for a left row that may be unmatched.
    pub right: Option<RowRef>,
}

/// Turns pairs into rows.
#[derive(Debug)]
pub(super) struct JoinOutput {
    /// The result columns, by their index among the buffered columns of each side.
    pub columns: Vec<(Side, usize)>,
    pub residual: Option<Pred>,
    pub outer: bool,
    pub span: Span,
}

impl JoinOutput {
    /// Emits the results of `pairs` and clears them. Returns whether the join may go on.
    pub(super) fn flush(
        &self,
        pairs: &mut Vec<Pair>,
        left: &mut JoinSide,
        right: &JoinSide,
        context: &mut Context<'_>,
    ) -> bool {
        for batch in pairs.chunks(context.budget.piece_rows()) {
            let bytes = self.bytes(batch, left, right);
            if !context.budget.charge(bytes, STEP, Some(self.span)) {
                break;
            }
            let rows = match &self.residual {
                None => self.gather(batch, left, right),
                Some(residual) => self.filter_residual(residual, batch, left, right, context),
            };
            if rows.rows() > 0 {
                context.out.push(Item::Rows(rows));
            }
        }
        pairs.clear();
        !context.budget.is_exhausted()
    }

    fn filter_residual(
        &self,
        residual: &Pred,
        batch: &[Pair],
        left: &mut JoinSide,
        right: &JoinSide,
        context: &mut Context<'_>,
    ) -> Chunk {
        let pairs: Vec<Pair> = batch
            .iter()
            .filter(|pair| pair.right.is_some())
            .copied()
            .collect();
        let rows = self.gather(&pairs, left, right);
        let mut faults = Faults::new(rows.rows());
        let holds = eval::test(residual, &rows, &mut faults);
        context.errors.add_faults(&faults, |row| rows.time(row));
        if !self.outer {
            return rows.filter(&holds);
        }
        for row in holds.set_indices() {
            left.set_matched(pairs[row].left);
        }
        let mut held = holds.iter();
        let results: Vec<Pair> = batch
            .iter()
            .filter(|pair| match pair.right {
                Some(_) => held.next() == Some(true),
                None => !left.is_matched(pair.left),
            })
            .copied()
            .collect();
        self.gather(&results, left, right)
    }

    /// About the size of the rows of pairs.
    fn bytes(&self, pairs: &[Pair], left: &JoinSide, right: &JoinSide) -> usize {
        let texts = self.columns.iter().map(|&(from, column)| {
            let side = match from {
                Side::Left => left,
                Side::Right => right,
            };
            if !side.has_text(column) {
                return 0;
            }
            let rows = pairs.iter().filter_map(|pair| match from {
                Side::Left => Some(pair.left),
                Side::Right => pair.right,
            });
            rows.map(|row| side.chunk(row.chunk).columns[column].value_bytes(row.row as usize))
                .sum()
        });
        let fixed = pairs.len() * (self.columns.len() + 1) * size_of::<i64>();
        fixed + texts.sum::<usize>()
    }

    fn gather(&self, pairs: &[Pair], left: &JoinSide, right: &JoinSide) -> Chunk {
        let mut lefts = SideChunks::new(left);
        let mut rights = SideChunks::new(right);
        let left_rows: Vec<(u32, u32)> = pairs.iter().map(|pair| lefts.row(pair.left)).collect();
        let right_rows: Vec<(u32, u32)> = pairs
            .iter()
            .map(|pair| {
                pair.right
                    .map_or(SideChunks::NOTHING, |row_ref| rights.row(row_ref))
            })
            .collect();
        let columns = self.columns.iter().map(|&(from, column)| match from {
            Side::Left => lefts.column(column, &left_rows),
            Side::Right => rights.column(column, &right_rows),
        });
        let columns = columns.collect();
        Chunk::new(pairs.iter().map(|pair| pair.time).collect(), columns)
    }
}

/// The chunks of one side that some rows are in.
struct SideChunks<'a> {
    side: &'a JoinSide,
    /// For each chunk of the side its part, or none yet.
    of_chunk: Vec<u32>,
    chunks: Vec<usize>,
}

impl<'a> SideChunks<'a> {
    /// A row of NULLs.
    const NOTHING: (u32, u32) = (u32::MAX, 0);

    fn new(side: &'a JoinSide) -> SideChunks<'a> {
        SideChunks {
            side,
            of_chunk: vec![u32::MAX; side.chunks().len()],
            chunks: Vec::new(),
        }
    }

    fn row(&mut self, row_ref: RowRef) -> (u32, u32) {
        let chunk = row_ref.chunk.wrapping_sub(self.side.first()) as usize;
        let part = &mut self.of_chunk[chunk];
        if *part == u32::MAX {
            *part = self.chunks.len() as u32;
            self.chunks.push(chunk);
        }
        (*part, row_ref.row)
    }

    fn column(&self, column: usize, rows: &[(u32, u32)]) -> Column {
        let stored = self.side.chunks();
        let mut parts: Vec<&Column> = self
            .chunks
            .iter()
            .map(|&chunk| &stored[chunk].columns[column])
            .collect();
        let nothing = Column::Null(1);
        if !rows.iter().any(|row| row.0 == u32::MAX) {
            return match parts.is_empty() {
                true => Column::Null(0),
                false => Column::interleave(&parts, rows),
            };
        }
        let last = parts.len() as u32;
        parts.push(&nothing);
        let rows: Vec<(u32, u32)> = rows
            .iter()
            .map(|&(part, row)| (part.min(last), row))
            .collect();
        Column::interleave(&parts, &rows)
    }
}
