//! Aggregates of a sliding window that are updated as events enter and leave.
//!
//! Each is a function of the content alone. Counts, integer sums and exact float sums ([`ExactSum`]) can retract values
//! exactly. MIN and MAX keep the events that may still become the result. Scripts may be able to retract an event
//! ([`RollingScript`]). The others are recomputed at every change, at a cost proportional to the content: variances (a
//! float fold cannot be inverted), percentiles, lists, rankings and other scripts.

use std::cmp::Ordering;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_query::plan::{Aggregate, AggregateFunction};

use super::accumulate::{self, FailureReason, RollingScript};
use super::analytic::exact_sum::ExactSum;
use super::analytic::range_aggregate::Candidates;
use crate::eval;
use crate::value::Value;

pub(crate) enum SlidingAggregate {
    /// COUNT(*): events.
    Events(i64),
    /// COUNT of values.
    Count(i64),
    Total(Total),
    Extreme(Box<Extreme>),
    /// How often each value is in the window.
    Distinct(HashMap<Box<[u8]>, u64, FixedState>),
    Script(Box<RollingScript>),
    Folded,
}

#[derive(Default)]
pub(crate) struct Total {
    values: u64,
    ints: i128,
    floats: u64,
    exact: Option<Box<ExactSum>>,
}

/// MIN and MAX. Values are numbered as they enter, and leave in that order.
pub(crate) struct Extreme {
    /// How a value compares with one that it makes needless.
    wanted: Ordering,
    candidates: Candidates,
    entered: i64,
    left: i64,
}

impl SlidingAggregate {
    pub(super) fn new(spec: &Aggregate) -> SlidingAggregate {
        match (&spec.function, &spec.argument) {
            (AggregateFunction::Count, None) => SlidingAggregate::Events(0),
            (AggregateFunction::Count, Some(_)) => SlidingAggregate::Count(0),
            (AggregateFunction::CountDistinct, _) => SlidingAggregate::Distinct(HashMap::default()),
            (AggregateFunction::Sum | AggregateFunction::Avg, _) => {
                SlidingAggregate::Total(Total::default())
            }
            (AggregateFunction::Min, _) => SlidingAggregate::Extreme(Extreme::new(Ordering::Less)),
            (AggregateFunction::Max, _) => {
                SlidingAggregate::Extreme(Extreme::new(Ordering::Greater))
            }
            (AggregateFunction::User(_), _) => SlidingAggregate::Script(Box::default()),
            _ => SlidingAggregate::Folded,
        }
    }

    pub(super) fn enter(&mut self, value: &Value) {
        match self {
            SlidingAggregate::Events(count) => *count += 1,
            SlidingAggregate::Count(count) => *count += i64::from(!value.is_null()),
            SlidingAggregate::Total(total) => total.enter(value),
            SlidingAggregate::Extreme(extreme) => extreme.enter(value),
            SlidingAggregate::Distinct(values) => {
                if let Some(key) = key_of(value) {
                    *values.entry(key).or_default() += 1;
                }
            }
            SlidingAggregate::Script(_) | SlidingAggregate::Folded => {}
        }
    }

    /// Events leave in the order in which they entered.
    pub(super) fn leave(&mut self, value: &Value) {
        match self {
            SlidingAggregate::Events(count) => *count -= 1,
            SlidingAggregate::Count(count) => *count -= i64::from(!value.is_null()),
            SlidingAggregate::Total(total) => total.leave(value),
            SlidingAggregate::Extreme(extreme) => extreme.leave(),
            SlidingAggregate::Distinct(values) => {
                let Some(key) = key_of(value) else { return };
                if let Some(count) = values.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        values.remove(&key);
                    }
                }
            }
            SlidingAggregate::Script(_) | SlidingAggregate::Folded => {}
        }
    }

    /// The aggregate of what is inside; `None` if it must be folded.
    pub(super) fn result(&self, spec: &Aggregate) -> Option<Result<Value, FailureReason>> {
        match self {
            SlidingAggregate::Events(count) | SlidingAggregate::Count(count) => {
                Some(Ok(Value::Int(*count)))
            }
            SlidingAggregate::Distinct(values) => Some(Ok(Value::Int(values.len() as i64))),
            SlidingAggregate::Total(total) => {
                let (ints, values) = (total.ints, total.values);
                Some(accumulate::of_totals(
                    &spec.function,
                    ints,
                    total.float(),
                    values,
                ))
            }
            SlidingAggregate::Extreme(extreme) => extreme.result().map(Ok),
            SlidingAggregate::Script(_) | SlidingAggregate::Folded => None,
        }
    }
}

fn key_of(value: &Value) -> Option<Box<[u8]>> {
    if value.is_null() {
        return None;
    }
    let mut key = Vec::new();
    eval::encode_key(value.view(), &mut key);
    Some(key.into())
}

impl Total {
    fn enter(&mut self, value: &Value) {
        match value {
            Value::Int(i) => self.ints += i128::from(*i),
            Value::Float(f) => {
                self.floats += 1;
                let exact = || Box::new(ExactSum::new());
                self.exact.get_or_insert_with(exact).add(*f);
            }
            _ => return,
        }
        self.values += 1;
    }

    fn leave(&mut self, value: &Value) {
        match value {
            Value::Int(i) => self.ints -= i128::from(*i),
            Value::Float(f) => {
                self.floats -= 1;
                match &mut self.exact {
                    Some(exact) if self.floats > 0 => exact.subtract(*f),
                    _ => self.exact = None,
                }
            }
            _ => return,
        }
        self.values -= 1;
    }

    /// All of them, if any is a float.
    fn float(&self) -> Option<f64> {
        let mut sum = self.exact.clone()?;
        sum.add_int(self.ints);
        Some(sum.round())
    }
}

impl Extreme {
    fn new(wanted: Ordering) -> Box<Extreme> {
        Box::new(Extreme {
            wanted,
            candidates: Candidates::default(),
            entered: 0,
            left: 0,
        })
    }

    fn enter(&mut self, value: &Value) {
        self.entered += 1;
        (self.candidates).enter(self.wanted, self.entered, value.view());
    }

    fn leave(&mut self) {
        self.left += 1;
        self.candidates.leave(self.left);
    }

    /// `None` if there are values of several kinds: then the first one counts.
    fn result(&self) -> Option<Value> {
        let mut best = self.candidates.best();
        match (best.next(), best.next()) {
            (None, _) => Some(Value::Null),
            (Some(value), None) => Some(value.clone()),
            (Some(_), Some(_)) => None,
        }
    }
}
