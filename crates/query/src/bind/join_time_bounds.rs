//! Time bounds between the rows of a join.
//!
//! Between streams, ON must bound the distance in time on both sides, or every event would have to be kept for ever.
//! Bounds combine: if a bounds b and b bounds c, then a bounds c. JoinedSources rows have a time too, the later one of
//! the two, from which the next join measures its state.

use highwater_time::{Duration, TICKS_PER_DAY};

use crate::ast::CompareOp;

pub(super) const DISTANCE_MAX: f64 = 7.0 * TICKS_PER_DAY as f64;

/// The times of the sources of a FROM clause, and of the rows of its joins.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeBounds {
    /// `farthest[a][b]`: the most ticks by which the time of `b` can exceed that of `a`.
    farthest: Vec<Vec<f64>>,
}

/// `low <= to - from <= high`, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DistanceRange {
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl DistanceRange {
    /// The distances that satisfy the comparison with `ticks`. A distance is a whole number of ticks, so a strict bound
    /// is also an inclusive one (A-07: elapsed time, not boundaries crossed).
    pub(super) fn of(op: CompareOp, ticks: f64) -> Option<DistanceRange> {
        let (low, high) = match op {
            CompareOp::Lt => (None, Some(ticks.ceil() - 1.0)),
            CompareOp::Le => (None, Some(ticks.floor())),
            CompareOp::Gt => (Some(ticks.floor() + 1.0), None),
            CompareOp::Ge => (Some(ticks.ceil()), None),
            CompareOp::Eq => (Some(ticks.ceil()), Some(ticks.floor())),
            CompareOp::Ne => return None,
        };
        Some(DistanceRange { low, high })
    }

    /// Of `from - to`.
    pub(super) fn reversed(self) -> DistanceRange {
        DistanceRange {
            low: self.high.map(|high| -high),
            high: self.low.map(|low| -low),
        }
    }

    pub(super) fn and(self, other: DistanceRange) -> DistanceRange {
        let both = |a: Option<f64>, b: Option<f64>, pick: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (a, b) => a.or(b),
        };
        DistanceRange {
            low: both(self.low, other.low, f64::max),
            high: both(self.high, other.high, f64::min),
        }
    }
}

/// Why the bounds of a join are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundsError {
    Neither,
    NotEarly,
    NotLate,
    TooFar,
    /// No two events can be that far apart.
    Never,
}

impl TimeBounds {
    pub(super) fn add(&mut self) -> usize {
        let new = self.farthest.len();
        self.farthest
            .iter_mut()
            .for_each(|row| row.push(f64::INFINITY));
        let mut row = vec![f64::INFINITY; new + 1];
        row[new] = 0.0;
        self.farthest.push(row);
        new
    }

    pub(super) fn limit(&mut self, from: usize, to: usize, range: DistanceRange) {
        if let Some(high) = range.high {
            self.farthest[from][to] = self.farthest[from][to].min(high);
        }
        if let Some(low) = range.low {
            self.farthest[to][from] = self.farthest[to][from].min(-low);
        }
    }

    /// Derives bounds from bounds.
    pub(super) fn close(&mut self) {
        let times = self.farthest.len();
        for via in 0..times {
            for from in 0..times {
                for to in 0..times {
                    let way = self.farthest[from][via] + self.farthest[via][to];
                    self.farthest[from][to] = self.farthest[from][to].min(way);
                }
            }
        }
    }

    /// Whether the distance between the two sources is bounded.
    pub(super) fn check(&self, from: usize, to: usize) -> Result<(), BoundsError> {
        let contradiction = (0..self.farthest.len()).any(|at| self.farthest[at][at] < 0.0);
        let (after, before) = (self.farthest[from][to], self.farthest[to][from]);
        match (after.is_finite(), before.is_finite()) {
            (true, true) if contradiction => Err(BoundsError::Never),
            (true, true) if after <= DISTANCE_MAX && before <= DISTANCE_MAX => Ok(()),
            (true, true) => Err(BoundsError::TooFar),
            (false, false) => Err(BoundsError::Neither),
            (true, false) => Err(BoundsError::NotEarly),
            (false, true) => Err(BoundsError::NotLate),
        }
    }

    /// `low <= to - from <= high`, if it is bounded.
    pub(super) fn between(&self, from: usize, to: usize) -> Option<(f64, f64)> {
        let (low, high) = (-self.farthest[to][from], self.farthest[from][to]);
        (low.is_finite() && high.is_finite()).then_some((low, high))
    }

    /// The time of the joined rows of `left` and `right`, whose distance is between `low` and `high`. An unmatched row
    /// has the last time at which a match could have come.
    pub(super) fn joined(&mut self, left: usize, right: usize, low: f64, high: f64) -> usize {
        let row = self.add();
        let after = |most: f64| DistanceRange {
            low: Some(0.0),
            high: Some(most.max(0.0)),
        };
        self.limit(left, row, after(high));
        self.limit(right, row, after(-low));
        row
    }
}

/// A bounded number of ticks.
pub(super) fn duration(ticks: f64) -> Duration {
    Duration::from_ticks(ticks as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S1
    #[test]
    fn strict_bounds_leave_out_a_tick_and_fractions_round_inwards() {
        let range = |low, high| Some(DistanceRange { low, high });
        assert_eq!(
            DistanceRange::of(CompareOp::Lt, 50.0),
            range(None, Some(49.0))
        );
        assert_eq!(
            DistanceRange::of(CompareOp::Lt, 0.5),
            range(None, Some(0.0))
        );
        assert_eq!(
            DistanceRange::of(CompareOp::Le, 0.5),
            range(None, Some(0.0))
        );
        assert_eq!(
            DistanceRange::of(CompareOp::Gt, 50.0),
            range(Some(51.0), None)
        );
        assert_eq!(
            DistanceRange::of(CompareOp::Ge, -0.5),
            range(Some(-0.0), None)
        );
        assert_eq!(
            DistanceRange::of(CompareOp::Eq, 7.0),
            range(Some(7.0), Some(7.0))
        );
        assert_eq!(DistanceRange::of(CompareOp::Ne, 7.0), None);
    }

    // proves S1
    #[test]
    fn the_rows_of_a_join_are_as_late_as_the_later_source() {
        let mut times = TimeBounds::default();
        let (a, b, c) = (times.add(), times.add(), times.add());
        let range = |low, high| DistanceRange {
            low: Some(low),
            high: Some(high),
        };
        times.limit(a, b, range(-3.0, 5.0));
        times.close();
        let row = times.joined(a, b, -3.0, 5.0);
        times.limit(a, c, range(0.0, 10.0));
        times.close();
        assert_eq!(times.check(a, c), Ok(()));
        assert_eq!(times.between(row, c), Some((-5.0, 10.0)));
    }
}
