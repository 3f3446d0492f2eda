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

/// The states of one aggregate, by the slot of its group.
pub(crate) enum SlidingAggregate {
    /// COUNT(*): the events inside, which groups count.
    Events,
    /// COUNT of values.
    Counts(Vec<i64>),
    Totals(Vec<Total>),
    Extremes(Vec<Extreme>, Ordering),
    /// How often each value is in the window.
    Distinct(Vec<HashMap<Box<[u8]>, u64, FixedState>>),
    Scripts(Vec<RollingScript>),
    Folded,
}

/// One cache line.
#[derive(Clone, Default)]
#[repr(align(64))]
pub(crate) struct Total {
    values: u64,
    ints: i128,
    floats: u64,
    /// The exact sum of the floats that are multiples of 2^-64, in such units.
    fixed: i128,
    /// That of the others.
    exact: Option<Box<ExactSum>>,
}

/// 2^64: the unit of [`Total::fixed`] is one part of it.
const UNITS: f64 = 18_446_744_073_709_551_616.0;
/// No sum of as many as there can be overflows.
const FIXED_MAX: f64 = 1_073_741_824.0;

/// 2^20: floats that are whole in parts of it are converted by way of 64 bits, which is faster.
const PARTS: f64 = 1_048_576.0;

/// A float in units of 2^-64, if that is exact.
#[inline]
fn to_fixed(value: f64) -> Option<i128> {
    let parts = value * PARTS;
    let whole = parts as i64;
    if whole as f64 == parts && value.abs() < FIXED_MAX {
        return Some(i128::from(whole) << 44);
    }
    to_small_units(value)
}

#[inline(never)]
fn to_small_units(value: f64) -> Option<i128> {
    if value.abs() >= FIXED_MAX {
        return None;
    }
    let units = value * UNITS;
    let whole = units as i128;
    (whole as f64 == units).then_some(whole)
}

/// MIN and MAX. Values are numbered as they enter, and leave in that order.
#[derive(Default)]
pub(crate) struct Extreme {
    candidates: Candidates,
    entered: i64,
    left: i64,
}

/// Whether an aggregate needs the values of events.
pub(crate) fn reads_events(spec: &Aggregate) -> bool {
    !matches!(SlidingAggregate::new(spec), SlidingAggregate::Events)
}

impl SlidingAggregate {
    pub(super) fn new(spec: &Aggregate) -> SlidingAggregate {
        match (&spec.function, &spec.argument) {
            (AggregateFunction::Count, None) => SlidingAggregate::Events,
            (AggregateFunction::Count, Some(_)) => SlidingAggregate::Counts(Vec::new()),
            (AggregateFunction::CountDistinct, _) => SlidingAggregate::Distinct(Vec::new()),
            (AggregateFunction::Sum | AggregateFunction::Avg, _) => {
                SlidingAggregate::Totals(Vec::new())
            }
            (AggregateFunction::Min, _) => SlidingAggregate::Extremes(Vec::new(), Ordering::Less),
            (AggregateFunction::Max, _) => {
                SlidingAggregate::Extremes(Vec::new(), Ordering::Greater)
            }
            (AggregateFunction::User(_), _) => SlidingAggregate::Scripts(Vec::new()),
            _ => SlidingAggregate::Folded,
        }
    }

    /// Makes room for the groups of so many slots; never shrinks.
    #[inline]
    pub(super) fn grow(&mut self, slots: usize) {
        fn to<T>(states: &mut Vec<T>, slots: usize, fresh: impl FnMut() -> T) {
            if states.len() < slots {
                states.resize_with(slots, fresh);
            }
        }
        match self {
            SlidingAggregate::Events | SlidingAggregate::Folded => {}
            SlidingAggregate::Counts(counts) => to(counts, slots, i64::default),
            SlidingAggregate::Totals(totals) => to(totals, slots, Total::default),
            SlidingAggregate::Extremes(extremes, _) => to(extremes, slots, Extreme::default),
            SlidingAggregate::Distinct(values) => to(values, slots, HashMap::default),
            SlidingAggregate::Scripts(scripts) => to(scripts, slots, RollingScript::default),
        }
    }

    /// Touches the states of slots, for all of them together, so that cache misses overlap.
    pub(super) fn prefetch(&self, slots: impl Iterator<Item = u32>) {
        if let SlidingAggregate::Totals(totals) = self {
            let values = slots.map(|slot| totals[slot as usize].values);
            std::hint::black_box(values.fold(0, u64::wrapping_add));
        }
    }

    /// Forgets everything; the events inside have left.
    pub(super) fn clear(&mut self, slot: usize) {
        match self {
            SlidingAggregate::Events | SlidingAggregate::Folded => {}
            SlidingAggregate::Counts(counts) => counts[slot] = 0,
            SlidingAggregate::Totals(totals) => totals[slot] = Total::default(),
            SlidingAggregate::Extremes(extremes, _) => extremes[slot] = Extreme::default(),
            SlidingAggregate::Distinct(values) => values[slot].clear(),
            SlidingAggregate::Scripts(scripts) => scripts[slot] = RollingScript::default(),
        }
    }

    pub(super) fn enter(&mut self, slot: usize, value: &Value) {
        match self {
            SlidingAggregate::Counts(counts) => counts[slot] += i64::from(!value.is_null()),
            SlidingAggregate::Totals(totals) => totals[slot].enter(value),
            SlidingAggregate::Extremes(extremes, wanted) => extremes[slot].enter(*wanted, value),
            SlidingAggregate::Distinct(values) => {
                if let Some(key) = key_of(value) {
                    *values[slot].entry(key).or_default() += 1;
                }
            }
            SlidingAggregate::Events | SlidingAggregate::Scripts(_) | SlidingAggregate::Folded => {}
        }
    }

    /// Events leave in the order in which they entered.
    pub(super) fn leave(&mut self, slot: usize, value: &Value) {
        match self {
            SlidingAggregate::Counts(counts) => counts[slot] -= i64::from(!value.is_null()),
            SlidingAggregate::Totals(totals) => totals[slot].leave(value),
            SlidingAggregate::Extremes(extremes, _) => extremes[slot].leave(),
            SlidingAggregate::Distinct(values) => {
                let Some(key) = key_of(value) else { return };
                if let Some(count) = values[slot].get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        values[slot].remove(&key);
                    }
                }
            }
            SlidingAggregate::Events | SlidingAggregate::Scripts(_) | SlidingAggregate::Folded => {}
        }
    }

    /// The aggregate of the `inside` events that are in the window; `None` if it must be folded.
    pub(super) fn result(
        &self,
        slot: usize,
        inside: u32,
        spec: &Aggregate,
    ) -> Option<Result<Value, FailureReason>> {
        match self {
            SlidingAggregate::Events => Some(Ok(Value::Int(inside.into()))),
            SlidingAggregate::Counts(counts) => Some(Ok(Value::Int(counts[slot]))),
            SlidingAggregate::Distinct(values) => Some(Ok(Value::Int(values[slot].len() as i64))),
            SlidingAggregate::Totals(totals) => {
                let total = &totals[slot];
                Some(accumulate::of_totals(
                    &spec.function,
                    total.ints,
                    total.float(),
                    total.values,
                ))
            }
            SlidingAggregate::Extremes(extremes, wanted) => {
                Some(Ok(extremes[slot].candidates.best(*wanted)))
            }
            SlidingAggregate::Scripts(_) | SlidingAggregate::Folded => None,
        }
    }

    /// The approximate size of a group's state, without its values.
    pub(super) fn state_bytes(&self) -> usize {
        match self {
            SlidingAggregate::Events | SlidingAggregate::Folded => 0,
            SlidingAggregate::Counts(_) => size_of::<i64>(),
            SlidingAggregate::Totals(_) => size_of::<Total>(),
            SlidingAggregate::Extremes(..) => size_of::<Extreme>(),
            SlidingAggregate::Distinct(_) => size_of::<HashMap<Box<[u8]>, u64, FixedState>>(),
            SlidingAggregate::Scripts(_) => size_of::<RollingScript>(),
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
                match to_fixed(*f) {
                    Some(units) => self.fixed += units,
                    None => self.exact.get_or_insert_with(new_sum).add(*f),
                }
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
                match (to_fixed(*f), &mut self.exact) {
                    (Some(units), _) => self.fixed -= units,
                    (None, Some(exact)) if self.floats > 0 => exact.subtract(*f),
                    (None, _) => self.exact = None,
                }
                if self.floats == 0 {
                    self.exact = None;
                }
            }
            _ => return,
        }
        self.values -= 1;
    }

    /// All of them, if any is a float.
    fn float(&self) -> Option<f64> {
        if self.floats == 0 {
            return None;
        }
        let units = self.ints.checked_mul(1 << 64);
        let units = units.and_then(|units| units.checked_add(self.fixed));
        if let (None, Some(units)) = (&self.exact, units) {
            // Rounds once, and a power of two changes no digit.
            return Some(units as f64 / UNITS);
        }
        let mut sum = self.exact.clone().unwrap_or_else(new_sum);
        sum.add_int(self.ints);
        sum.add_scaled(self.fixed, 1.0 / UNITS);
        Some(sum.round())
    }
}

fn new_sum() -> Box<ExactSum> {
    Box::new(ExactSum::new())
}

impl Extreme {
    /// `wanted`: how a value compares with one that it makes needless.
    fn enter(&mut self, wanted: Ordering, value: &Value) {
        self.entered += 1;
        self.candidates.enter(wanted, self.entered, value.view());
    }

    fn leave(&mut self) {
        self.left += 1;
        self.candidates.leave(self.left);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number() -> impl Strategy<Value = Value> {
        prop_oneof![
            (-1000_i64..1000).prop_map(|quarters| Value::Float(quarters as f64 / 4.0)),
            any::<i64>().prop_map(Value::Int),
            (-1e12..1e12).prop_map(Value::Float),
            prop::sample::select(vec![0.1, -0.0, 1e300, -1e300, 1e-300, 5e-324, 1e18, 0.3])
                .prop_map(Value::Float),
            Just(Value::Null),
        ]
    }

    proptest! {
        /// Removed values leave no error behind, and a sum equals that of [`ExactSum`] to the bit.
        #[test]
        fn totals_are_exact(values in prop::collection::vec(number(), 1..40), left in 0_usize..40) {
            let mut total = Total::default();
            values.iter().for_each(|value| total.enter(value));
            let left = left.min(values.len());
            values[..left].iter().for_each(|value| total.leave(value));
            let (mut exact, mut floats) = (ExactSum::new(), 0);
            for value in &values[left..] {
                match value {
                    Value::Int(int) => exact.add_int(i128::from(*int)),
                    Value::Float(float) => {
                        floats += 1;
                        exact.add(*float);
                    }
                    _ => {}
                }
            }
            let expected = (floats > 0).then(|| exact.round().to_bits());
            prop_assert_eq!(total.float().map(f64::to_bits), expected);
        }
    }
}
