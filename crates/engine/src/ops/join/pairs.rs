//! The output of a join: pairs of row references first, columns when there are enough pairs.
//!
//! Pairs are in result order. A left row that may be unmatched is in the list too, at the position of its result, and
//! is removed if one of the pairs before it satisfies the residual condition, which is evaluated here for many pairs at
//! once.

use highwater_query::Span;
use highwater_query::plan::{Pred, Side};

use super::super::{Context, Item};
use super::STEP;
use super::side::{BufferedChunk, JoinSide, RowRef};
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

/// A column of the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputColumn {
    pub from: Side,
    /// Its index among the buffered columns of that side.
    pub column: usize,
    /// A key of the left that the right row has as well, in memory that was just touched.
    pub shared_key: Option<usize>,
}

/// Turns pairs into rows.
#[derive(Debug)]
pub(super) struct JoinOutput {
    pub columns: Vec<OutputColumn>,
    pub residual: Option<Pred>,
    pub outer: bool,
    pub span: Span,
}

impl JoinOutput {
    /// Emits the results of `pairs` and clears them. Returns whether the join may continue.
    pub(super) fn flush(
        &self,
        pairs: &mut Vec<Pair>,
        left: &mut JoinSide,
        right: &JoinSide,
        context: &mut Context<'_>,
    ) -> bool {
        for batch in pairs.chunks(context.budget.piece_rows()) {
            let sources = PairSources::new(batch, left, right);
            let bytes = sources.bytes(&self.columns);
            if !context.budget.charge(bytes, STEP, Some(self.span)) {
                break;
            }
            let rows = match &self.residual {
                None => self.chunk(batch, &sources),
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

    fn gather(&self, pairs: &[Pair], left: &JoinSide, right: &JoinSide) -> Chunk {
        self.chunk(pairs, &PairSources::new(pairs, left, right))
    }

    fn chunk(&self, pairs: &[Pair], sources: &PairSources<'_>) -> Chunk {
        let columns = self.columns.iter().map(|of| sources.column(*of));
        Chunk::new(
            pairs.iter().map(|pair| pair.time).collect(),
            columns.collect(),
        )
    }
}

/// Where the rows of some pairs are.
struct PairSources<'a> {
    left: SideChunks<'a>,
    right: SideChunks<'a>,
    left_rows: Vec<(u32, u32)>,
    right_rows: Vec<(u32, u32)>,
    /// Every left row has a right one.
    all_matched: bool,
}

/// The values of a result column: rows of parts.
struct ColumnSource<'a> {
    parts: Vec<&'a Column>,
    rows: &'a [(u32, u32)],
}

impl<'a> PairSources<'a> {
    fn new(pairs: &[Pair], left: &'a JoinSide, right: &'a JoinSide) -> PairSources<'a> {
        let (mut left, mut right) = (SideChunks::new(left), SideChunks::new(right));
        let left_rows = pairs.iter().map(|pair| left.row(pair.left)).collect();
        let right_rows = pairs.iter().map(|pair| {
            pair.right
                .map_or(SideChunks::NOTHING, |row_ref| right.row(row_ref))
        });
        let right_rows: Vec<(u32, u32)> = right_rows.collect();
        PairSources {
            all_matched: !right_rows.contains(&SideChunks::NOTHING),
            left,
            right,
            left_rows,
            right_rows,
        }
    }

    fn source(&self, of: OutputColumn) -> ColumnSource<'_> {
        let (side, rows) = match of.from {
            Side::Left => (&self.left, &self.left_rows),
            Side::Right => (&self.right, &self.right_rows),
        };
        let parts = side.parts(|chunk| chunk.columns.get(of.column));
        if let Some(key) = of.shared_key
            && self.all_matched
        {
            let shared = self.right.parts(|chunk| chunk.key_columns.get(key));
            if have_equal_values(parts.iter().chain(&shared)) {
                return ColumnSource {
                    parts: shared,
                    rows: &self.right_rows,
                };
            }
        }
        ColumnSource { parts, rows }
    }

    /// About the size of the rows.
    fn bytes(&self, columns: &[OutputColumn]) -> usize {
        let texts = columns.iter().map(|of| {
            let ColumnSource { parts, rows } = self.source(*of);
            if !parts.iter().any(|part| matches!(part, Column::Text(_))) {
                return 0;
            }
            let rows = rows.iter().filter(|row| **row != SideChunks::NOTHING);
            rows.map(|&(part, row)| parts[part as usize].value_bytes(row as usize))
                .sum()
        });
        let fixed = self.left_rows.len() * (columns.len() + 1) * size_of::<i64>();
        fixed + texts.sum::<usize>()
    }

    fn column(&self, of: OutputColumn) -> Column {
        let ColumnSource { mut parts, rows } = self.source(of);
        if of.from == Side::Left || self.all_matched {
            return match parts.is_empty() {
                true => Column::Null(0),
                false => Column::interleave(&parts, rows),
            };
        }
        let nothing = Column::Null(1);
        let last = parts.len() as u32;
        parts.push(&nothing);
        let rows: Vec<(u32, u32)> = rows
            .iter()
            .map(|&(part, row)| (part.min(last), row))
            .collect();
        Column::interleave(&parts, &rows)
    }
}

/// Whether equal keys of these columns are the same values: of one type that has one form for each value.
fn have_equal_values<'a>(mut columns: impl Iterator<Item = &'a &'a Column>) -> bool {
    let exact =
        |column: &Column| matches!(column, Column::Int(_) | Column::Text(_) | Column::Time(_));
    let Some(first) = columns.next().filter(|first| exact(first)) else {
        return false;
    };
    let kind = std::mem::discriminant(*first);
    columns.all(|column| std::mem::discriminant(*column) == kind)
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

    /// A column of each of the chunks.
    fn parts(&self, column: impl Fn(&'a BufferedChunk) -> Option<&'a Column>) -> Vec<&'a Column> {
        let stored = self.side.chunks();
        let chunks = self.chunks.iter();
        chunks.filter_map(|&chunk| column(&stored[chunk])).collect()
    }
}
