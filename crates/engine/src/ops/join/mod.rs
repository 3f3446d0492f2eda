//! JOIN of two streams: pairs of rows with equal keys and close times.
//!
//! A pair is emitted at the time of its later row, and an unmatched row of a LEFT JOIN once no match can come. Rows
//! wait until both streams have passed them. Then they are processed time by time: the rows of one time are matched
//! with earlier rows of the other side, which are buffered for as long as the bounds allow. **Results are ordered by
//! time, then left row, then right row**, regardless of the order of input: all results of one time are sorted before
//! the next time is processed.
//!
//! With `low <= time(right) - time(left) <= high`, a left row is buffered until time passes `left + high`, and a right
//! row until time passes `right - low`. Rows that can only match earlier rows are not buffered, nor are right rows that
//! can only match left rows of their own time when there are none.

mod block_ring;
mod buffered_rows;
mod index;
mod pairs;
mod side;
mod unmatched;

use highwater_codec::{DecodeError, Reader};
use highwater_query::plan::{Expr, ExprKind, JoinNode, Side, TimeBound};
use highwater_time::{CombinedWatermark, Duration};

use super::merge::{restore_watermark, snapshot_watermark};
use super::{Context, Item, KeyOperator, Operator};
use crate::chunk::CHUNK_ROWS;
use crate::value::ValueRef;
use pairs::{JoinOutput, OutputColumn, Pair};
use side::{JoinSide, RowRef};
use unmatched::UnmatchedQueue;

const STEP: &str = "JOIN";

/// The size of a buffered row without its values.
pub(super) const ROW_BYTES: usize = buffered_rows::ROW_BYTES;

#[derive(Debug)]
pub(crate) struct Join {
    combined_watermark: CombinedWatermark,
    left: JoinSide,
    right: JoinSide,
    low: i64,
    high: i64,
    /// Conditions on times that `low` and `high` do not imply.
    checks: Vec<TimeCheck>,
    output: JoinOutput,
    /// The buffered left rows that may stay unmatched.
    unmatched: UnmatchedQueue,
    /// Results not yet emitted; empty between pushes.
    pairs: Vec<Pair>,
    /// How many of the next rows of each side are prefetched.
    prefetched: [usize; 2],
}

/// `low <= time(right) - <left> <= high`.
#[derive(Debug)]
struct TimeCheck {
    /// A buffered column of the left; `None` for the time of the row.
    left: Option<usize>,
    low: i64,
    high: i64,
}

impl Join {
    pub(crate) fn new(node: &JoinNode) -> Join {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let columns = node.columns.iter().map(|&(from, column)| OutputColumn {
            from,
            column: match from {
                Side::Left => column_index(column, &mut left),
                Side::Right => column_index(column, &mut right),
            },
            shared_key: (from == Side::Left)
                .then(|| shared_key(node, column))
                .flatten(),
        });
        let columns: Vec<OutputColumn> = columns.collect();
        let shares_keys = columns.iter().any(|of| of.shared_key.is_some());
        let (low, high) = (node.low.ticks(), node.high.ticks());
        let implied =
            |check: &TimeCheck| check.left.is_none() && check.low <= low && high <= check.high;
        let checks = node
            .bounds
            .iter()
            .map(|bound| TimeCheck::new(bound, &mut left));
        let checks: Vec<TimeCheck> = checks.filter(|check| !implied(check)).collect();
        let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = node.keys.iter().cloned().unzip();
        let mut join = Join {
            combined_watermark: CombinedWatermark::new(2),
            left: JoinSide::new(left_keys, left),
            right: JoinSide::new(right_keys, right),
            low,
            high,
            unmatched: UnmatchedQueue::new(checks.is_empty(), high),
            checks,
            output: JoinOutput {
                columns,
                residual: node.residual.clone(),
                outer: node.outer,
                span: node.span,
            },
            pairs: Vec::new(),
            prefetched: [0; 2],
        };
        join.left.track_matches = node.outer;
        join.right.keep_key_columns = shares_keys;
        join
    }

    fn advance(&mut self, watermark: i64, context: &mut Context<'_>) {
        loop {
            let time = self.left.next_time().min(self.right.next_time());
            if time >= watermark {
                break;
            }
            self.prefetch_rows();
            self.pass(time);
            self.match_right_rows(time, context);
            self.match_left_rows(time, context);
            if self.pairs.len() >= CHUNK_ROWS && !self.flush(context) {
                return;
            }
            if context.budget.is_exhausted() {
                return;
            }
        }
        self.pass(watermark);
        self.flush(context);
        self.left.compact();
        self.right.compact();
    }

    /// Prefetches the index entries of the next rows of each side.
    fn prefetch_rows(&mut self) {
        for (side, rows) in [&self.left, &self.right]
            .into_iter()
            .zip(&mut self.prefetched)
        {
            if *rows == 0 {
                let upcoming = side.upcoming();
                self.left.prefetch(upcoming);
                self.right.prefetch(upcoming);
                *rows = upcoming.len();
            }
        }
    }

    /// Emits unmatched rows due before `time` and drops buffered rows that cannot match any more.
    fn pass(&mut self, time: i64) {
        if self.output.outer {
            self.push_unmatched_due(|due| due < time);
        }
        let gone = self.left.drop_before(time.saturating_sub(self.high));
        self.unmatched.forget(gone);
        self.right.drop_before(time.saturating_add(self.low));
    }

    /// Appends the `due` rows that may be unmatched; matched ones are removed later.
    fn push_unmatched_due(&mut self, due: impl Fn(i64) -> bool) {
        while let Some((due_at, row)) = self.unmatched.first(&self.left) {
            if !due(due_at) {
                return;
            }
            self.unmatched.pop_first();
            if let Some((_, row_ref)) = self.left.buffered_row(row) {
                self.push_unmatched(due_at, row_ref);
            }
        }
    }

    /// The last time at which a left row can match, or its own time.
    fn due(&self, time: i64, left: RowRef) -> i64 {
        let last = |check: &TimeCheck| match check.from(&self.left, left, time) {
            Some(from) => from.saturating_add(check.high),
            None => i64::MIN,
        };
        let high = time.saturating_add(self.high);
        let due = self.checks.iter().map(last).fold(high, i64::min);
        due.max(time)
    }

    fn push_unmatched(&mut self, time: i64, left: RowRef) {
        if !self.left.is_matched(left) {
            self.pairs.push(Pair {
                time,
                left,
                right: None,
            });
        }
    }

    /// Matches the right rows at `time` with earlier left rows.
    fn match_right_rows(&mut self, time: i64, context: &Context<'_>) {
        let before = self.pairs.len();
        let mut rows = 0;
        while let Some(next) = self.right.next_at(time) {
            self.prefetched[1] = self.prefetched[1].saturating_sub(1);
            let Some(key) = self.right.key(next) else {
                continue;
            };
            rows += 1;
            let (pairs, checks, chunks) = (&mut self.pairs, &self.checks, &self.left);
            let newest = time.saturating_sub(self.low);
            let start = pairs.len();
            self.left.find(key, |left_time, left| {
                let holds = |check: &TimeCheck| check.holds(chunks, left, left_time, time);
                if left_time <= newest && checks.iter().all(holds) {
                    pairs.push(Pair {
                        time,
                        left,
                        right: Some(next.row_ref),
                    });
                }
            });
            pairs[start..].reverse();
            if self.low < 0 || (self.low == 0 && self.left.next_time() == time) {
                self.right.keep(next, time);
            }
            if !self.has_room(context) {
                return;
            }
        }
        self.set_matched(before);
        let met = self.pairs.len();
        if self.output.outer {
            self.push_unmatched_due(|due| due == time);
        }
        // Pairs of one left row are already ordered by right row, and its unmatched result comes last.
        if rows > 1 || (met > before && self.pairs.len() > met) {
            let first = self.left.first();
            self.pairs[before..]
                .sort_by_key(|pair| (pair.left.chunk.wrapping_sub(first), pair.left.row));
        }
    }

    /// Matches the left rows at `time` with right rows up to the same time.
    fn match_left_rows(&mut self, time: i64, context: &Context<'_>) {
        while let Some(next) = self.left.next_at(time) {
            self.prefetched[0] = self.prefetched[0].saturating_sub(1);
            let before = self.pairs.len();
            let key = self.left.key(next);
            let has_key = key.is_some();
            if let (Some(key), true) = (key, self.low <= 0) {
                let (pairs, checks, chunks) = (&mut self.pairs, &self.checks, &self.left);
                let newest = time.saturating_add(self.high);
                self.right.find(key, |right_time, right| {
                    let holds =
                        |check: &TimeCheck| check.holds(chunks, next.row_ref, time, right_time);
                    if right_time <= newest && checks.iter().all(holds) {
                        pairs.push(Pair {
                            time,
                            left: next.row_ref,
                            right: Some(right),
                        });
                    }
                });
                pairs[before..].reverse();
            }
            self.set_matched(before);
            let due = self.due(time, next.row_ref);
            if due > time && (has_key || self.output.outer) {
                self.left.keep(next, time);
                if self.output.outer {
                    self.unmatched.add(due, &self.left);
                }
            } else if self.output.outer {
                self.push_unmatched(time, next.row_ref);
            }
            if !self.has_room(context) {
                return;
            }
        }
    }

    /// Whether the pairs of one time, which are emitted together, stay within the budget.
    #[inline]
    fn has_room(&self, context: &Context<'_>) -> bool {
        let bytes = size_of_val(&self.pairs[..]);
        context.budget.has(bytes) || context.budget.charge(bytes, STEP, Some(self.output.span))
    }

    /// Marks the left rows of the new pairs as matched, if there is no residual condition.
    fn set_matched(&mut self, from: usize) {
        if self.output.outer && self.output.residual.is_none() {
            for pair in &self.pairs[from..] {
                self.left.set_matched(pair.left);
            }
        }
    }

    /// Returns whether the join may continue.
    fn flush(&mut self, context: &mut Context<'_>) -> bool {
        let goes_on = self
            .output
            .flush(&mut self.pairs, &mut self.left, &self.right, context);
        self.left.drop_chunks();
        self.right.drop_chunks();
        goes_on
    }
}

impl TimeCheck {
    fn new(bound: &TimeBound, kept: &mut Vec<usize>) -> TimeCheck {
        TimeCheck {
            left: bound.left_column.map(|column| column_index(column, kept)),
            low: bound.low.map_or(i64::MIN, |low| low.ticks()),
            high: bound.high.map_or(i64::MAX, |high| high.ticks()),
        }
    }

    /// The time from which distances of a left row are measured; `None` if it is NULL.
    #[inline]
    fn from(&self, side: &JoinSide, left: RowRef, left_time: i64) -> Option<i64> {
        let Some(column) = self.left else {
            return Some(left_time);
        };
        match side.chunk(left.chunk).columns[column].get(left.row as usize) {
            ValueRef::Time(time) => Some(time.ticks()),
            _ => None,
        }
    }

    fn holds(&self, side: &JoinSide, left: RowRef, left_time: i64, right_time: i64) -> bool {
        self.from(side, left, left_time).is_some_and(|from| {
            let distance = right_time.saturating_sub(from);
            self.low <= distance && distance <= self.high
        })
    }
}

/// The key that is a column of the left, if its value can be taken from the right row instead: where right rows are
/// always the later ones, they were touched last.
fn shared_key(node: &JoinNode, left_column: usize) -> Option<usize> {
    let column = |expr: &Expr| match expr.kind {
        ExprKind::Column(column) => Some(column),
        _ => None,
    };
    let is_it =
        |(left, right): &(Expr, Expr)| column(left) == Some(left_column) && column(right).is_some();
    let later = node.low >= Duration::ZERO;
    node.keys.iter().position(is_it).filter(|_| later)
}

/// The index of `column` among the buffered ones; adds it if needed.
fn column_index(column: usize, kept: &mut Vec<usize>) -> usize {
    kept.iter()
        .position(|known| *known == column)
        .unwrap_or_else(|| {
            kept.push(column);
            kept.len() - 1
        })
}

impl KeyOperator for Join {
    fn next_due(&self) -> Option<i64> {
        let ahead = self.left.next_time().min(self.right.next_time());
        let alone = self.unmatched.first(&self.left).map(|(due, _)| due);
        let left = self
            .left
            .buffered_row(0)
            .map(|(t, _)| t.saturating_add(self.high));
        let right = self
            .right
            .buffered_row(0)
            .map(|(t, _)| t.saturating_sub(self.low));
        let ahead = (ahead < i64::MAX).then_some(ahead);
        let alone = alone.filter(|_| self.output.outer);
        [ahead, alone, left, right].into_iter().flatten().min()
    }
}

impl Operator for Join {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>) {
        match (item, port) {
            (Item::Rows(chunk), 0) => self.left.push(chunk, context),
            (Item::Rows(chunk), _) => self.right.push(chunk, context),
            (Item::Watermark(watermark), port) => {
                if let Some(watermark) = self.combined_watermark.advance(port, watermark) {
                    self.advance(watermark.ticks(), context);
                    context.out.push(Item::Watermark(watermark));
                }
            }
            (Item::PartialPanes(_), _) => unreachable!("rows are joined, never shares"),
        }
    }

    fn state_bytes(&self) -> usize {
        self.left.state_bytes() + self.right.state_bytes()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        snapshot_watermark(&self.combined_watermark, out);
        self.left.snapshot(out);
        self.right.snapshot(out);
        self.unmatched.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        restore_watermark(&mut self.combined_watermark, from)?;
        self.left.restore(from)?;
        self.right.restore(from)?;
        self.unmatched.restore(&self.left, from)?;
        self.pairs.clear();
        Ok(())
    }
}
