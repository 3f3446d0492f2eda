//! JOIN of two streams: pairs of rows that lie close in time and agree in their keys.
//!
//! A result is known when the later of its two rows is, and a row of a LEFT JOIN is known to stay alone once the last
//! partner could have come. Rows wait until both streams have passed them. Then they are taken up time by time: the
//! rows of one time look for partners among the earlier ones of the other side, which are kept for as long as the bounds
//! allow. **Results come in order of time, then left row, then right row**, whatever was pushed when: all that happens
//! at one time is put in that order before the next time is looked at.
//!
//! With `low <= time(right) - time(left) <= high`, a left row is kept until time passes `left + high`, and a right row
//! until time passes `right - low`. One that can only meet earlier rows is not kept at all.

mod alone;
mod index;
mod pairs;
mod side;

use highwater_codec::{DecodeError, Reader};
use highwater_query::plan::{Expr, JoinNode, Side as From, TimeBound};
use highwater_time::CombinedWatermark;

use super::merge::{restore_clock, snapshot_clock};
use super::{Context, Item, Member, Operator};
use crate::chunk::CHUNK_ROWS;
use crate::value::ValueRef;
use alone::Waiting;
use pairs::{Pair, Shape};
use side::{Place, Side};

/// What a kept row takes, without its values.
pub(super) const ROW_BYTES: usize = side::ROW_BYTES;

#[derive(Debug)]
pub(crate) struct Join {
    clock: CombinedWatermark,
    left: Side,
    right: Side,
    low: i64,
    high: i64,
    /// Conditions on times that do not follow from `low` and `high`.
    checks: Vec<Check>,
    shape: Shape,
    /// The kept rows of the left that may stay alone.
    waiting: Waiting,
    /// Results not yet emitted; empty between pushes.
    pairs: Vec<Pair>,
    /// How many of the next rows of each side have been warmed up.
    warm: [usize; 2],
}

/// `low <= time(right) - <left> <= high`.
#[derive(Debug)]
struct Check {
    /// A kept column of the left; `None`: the time of the row.
    left: Option<usize>,
    low: i64,
    high: i64,
}

impl Join {
    pub fn new(node: &JoinNode) -> Join {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let columns = node.columns.iter().map(|&(from, column)| match from {
            From::Left => (from, place_of(column, &mut left)),
            From::Right => (from, place_of(column, &mut right)),
        });
        let columns = columns.collect();
        let (low, high) = (node.low.ticks(), node.high.ticks());
        let implied =
            |check: &Check| check.left.is_none() && check.low <= low && high <= check.high;
        let checks = node.bounds.iter().map(|bound| Check::new(bound, &mut left));
        let checks: Vec<Check> = checks.filter(|check| !implied(check)).collect();
        let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = node.keys.iter().cloned().unzip();
        Join {
            clock: CombinedWatermark::new(2),
            left: Side::new(left_keys, left, node.outer),
            right: Side::new(right_keys, right, false),
            low,
            high,
            waiting: Waiting::new(checks.is_empty(), high),
            checks,
            shape: Shape {
                columns,
                residual: node.residual.clone(),
                outer: node.outer,
            },
            pairs: Vec::new(),
            warm: [0; 2],
        }
    }

    fn advance(&mut self, watermark: i64, context: &mut Context<'_>) {
        loop {
            let time = self.left.next_time().min(self.right.next_time());
            if time >= watermark {
                break;
            }
            self.warm_up();
            self.pass(time);
            self.rights(time);
            self.lefts(time);
            if self.pairs.len() >= CHUNK_ROWS {
                self.flush(context);
            }
        }
        self.pass(watermark);
        self.flush(context);
        self.left.compact();
        self.right.compact();
    }

    /// Gets ready for the next rows of each side, some at a time.
    fn warm_up(&mut self) {
        for (side, rows) in [&self.left, &self.right].into_iter().zip(&mut self.warm) {
            if *rows == 0 {
                let upcoming = side.upcoming();
                self.left.warm(upcoming);
                self.right.warm(upcoming);
                *rows = upcoming.len();
            }
        }
    }

    /// Everything before `time` has happened.
    fn pass(&mut self, time: i64) {
        if self.shape.outer {
            self.settle(|due| due < time);
        }
        let gone = self.left.forget_before(time.saturating_sub(self.high));
        self.waiting.forget(gone);
        self.right.forget_before(time.saturating_add(self.low));
    }

    /// Puts kept rows in line that stay alone unless they have met a partner by when they are `due`.
    fn settle(&mut self, due: impl Fn(i64) -> bool) {
        while let Some((alone_at, row)) = self.waiting.first(&self.left) {
            if !due(alone_at) {
                return;
            }
            self.waiting.settle_first();
            if let Some((_, place)) = self.left.kept_row(row) {
                self.alone(alone_at, place);
            }
        }
    }

    /// The last time at which a row of the left could meet a partner, or its own time.
    fn due(&self, time: i64, left: Place) -> i64 {
        let last = |check: &Check| match check.from(&self.left, left, time) {
            Some(from) => from.saturating_add(check.high),
            None => i64::MIN,
        };
        let high = time.saturating_add(self.high);
        let due = self.checks.iter().map(last).fold(high, i64::min);
        due.max(time)
    }

    fn alone(&mut self, time: i64, left: Place) {
        if !self.left.is_matched(left) {
            self.pairs.push(Pair {
                time,
                left,
                right: None,
            });
        }
    }

    /// Takes up the rows of the right at `time`: they meet earlier rows of the left.
    fn rights(&mut self, time: i64) {
        let before = self.pairs.len();
        let mut rows = 0;
        while let Some(next) = self.right.next_at(time) {
            self.warm[1] = self.warm[1].saturating_sub(1);
            let Some((hash, key)) = self.right.key(next) else {
                continue;
            };
            rows += 1;
            let (pairs, checks, chunks) = (&mut self.pairs, &self.checks, &self.left);
            let newest = time.saturating_sub(self.low);
            let start = pairs.len();
            self.left.find(hash, key, |left_time, left| {
                let holds = |check: &Check| check.holds(chunks, left, left_time, time);
                if left_time <= newest && checks.iter().all(holds) {
                    pairs.push(Pair {
                        time,
                        left,
                        right: Some(next.place),
                    });
                }
            });
            pairs[start..].reverse();
            if self.low <= 0 {
                self.right.keep(next, time);
            }
        }
        self.mark(before);
        let met = self.pairs.len();
        if self.shape.outer {
            self.settle(|due| due == time);
        }
        // Pairs of one left row stand in the order of the right already, and it stays alone after all of them.
        if rows > 1 || (met > before && self.pairs.len() > met) {
            let first = self.left.first();
            self.pairs[before..]
                .sort_by_key(|pair| (pair.left.chunk.wrapping_sub(first), pair.left.row));
        }
    }

    /// Takes up the rows of the left at `time`: they meet rows of the right up to the same time.
    fn lefts(&mut self, time: i64) {
        while let Some(next) = self.left.next_at(time) {
            self.warm[0] = self.warm[0].saturating_sub(1);
            let before = self.pairs.len();
            let key = self.left.key(next);
            let has_key = key.is_some();
            if let (Some((hash, key)), true) = (key, self.low <= 0) {
                let (pairs, checks, chunks) = (&mut self.pairs, &self.checks, &self.left);
                let newest = time.saturating_add(self.high);
                self.right.find(hash, key, |right_time, right| {
                    let holds = |check: &Check| check.holds(chunks, next.place, time, right_time);
                    if right_time <= newest && checks.iter().all(holds) {
                        pairs.push(Pair {
                            time,
                            left: next.place,
                            right: Some(right),
                        });
                    }
                });
                pairs[before..].reverse();
            }
            self.mark(before);
            let due = self.due(time, next.place);
            if due > time && (has_key || self.shape.outer) {
                self.left.keep(next, time);
                if self.shape.outer {
                    self.waiting.add(due, &self.left);
                }
            } else if self.shape.outer {
                self.alone(time, next.place);
            }
        }
    }

    /// Notes that rows of the left have met a partner, where nothing else must hold.
    fn mark(&mut self, from: usize) {
        if self.shape.outer && self.shape.residual.is_none() {
            for pair in &self.pairs[from..] {
                self.left.mark_matched(pair.left);
            }
        }
    }

    fn flush(&mut self, context: &mut Context<'_>) {
        self.shape
            .flush(&mut self.pairs, &mut self.left, &self.right, context);
        self.left.drop_chunks();
        self.right.drop_chunks();
    }
}

impl Check {
    fn new(bound: &TimeBound, kept: &mut Vec<usize>) -> Check {
        Check {
            left: bound.left_column.map(|column| place_of(column, kept)),
            low: bound.low.map_or(i64::MIN, |low| low.ticks()),
            high: bound.high.map_or(i64::MAX, |high| high.ticks()),
        }
    }

    /// What distances are measured from, for one row of the left; nothing if it is NULL.
    #[inline]
    fn from(&self, side: &Side, left: Place, left_time: i64) -> Option<i64> {
        let Some(column) = self.left else {
            return Some(left_time);
        };
        match side.chunk(left.chunk).columns[column].get(left.row as usize) {
            ValueRef::Time(time) => Some(time.ticks()),
            _ => None,
        }
    }

    fn holds(&self, side: &Side, left: Place, left_time: i64, right_time: i64) -> bool {
        self.from(side, left, left_time).is_some_and(|from| {
            let distance = right_time.saturating_sub(from);
            self.low <= distance && distance <= self.high
        })
    }
}

/// The place of `column` among the kept ones; from now on it is one of them.
fn place_of(column: usize, kept: &mut Vec<usize>) -> usize {
    kept.iter()
        .position(|known| *known == column)
        .unwrap_or_else(|| {
            kept.push(column);
            kept.len() - 1
        })
}

impl Member for Join {
    fn wakes(&self) -> Option<i64> {
        let ahead = self.left.next_time().min(self.right.next_time());
        let alone = self.waiting.first(&self.left).map(|(due, _)| due);
        let left = self
            .left
            .kept_row(0)
            .map(|(t, _)| t.saturating_add(self.high));
        let right = self
            .right
            .kept_row(0)
            .map(|(t, _)| t.saturating_sub(self.low));
        let ahead = (ahead < i64::MAX).then_some(ahead);
        let alone = alone.filter(|_| self.shape.outer);
        [ahead, alone, left, right].into_iter().flatten().min()
    }
}

impl Operator for Join {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>) {
        match (item, port) {
            (Item::Rows(chunk), 0) => self.left.push(chunk, context),
            (Item::Rows(chunk), _) => self.right.push(chunk, context),
            (Item::Watermark(watermark), port) => {
                if let Some(watermark) = self.clock.advance(port, watermark) {
                    self.advance(watermark.ticks(), context);
                    context.out.push(Item::Watermark(watermark));
                }
            }
            (Item::Shares(_), _) => unreachable!("rows are joined, never shares"),
        }
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        snapshot_clock(&self.clock, out);
        self.left.snapshot(out);
        self.right.snapshot(out);
        self.waiting.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        restore_clock(&mut self.clock, from)?;
        self.left.restore(from)?;
        self.right.restore(from)?;
        self.waiting.restore(&self.left, from)?;
        self.pairs.clear();
        Ok(())
    }
}
