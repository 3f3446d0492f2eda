//! Running aggregates, one value per group, updated a run of rows at a time.
//!
//! Integer sums have 128 bits, so only a result can overflow and no intermediate sum. Float sums add in the order of the
//! rows, which is time order, and partial panes in the order of the partitions: results do not depend on chunk boundaries.
//!
//! Every aggregate takes one column. Aggregates that need more than a value (the event's time, its rank) take a column of
//! arrays, see [`packed`]; so operators that buffer events store one value per aggregate.

mod collect;
mod counts;
mod distinct;
mod extreme;
mod moments;
mod packed;
mod percentile;
mod script;
mod top;
mod total;
mod totals;

use std::borrow::Cow;

use highwater_query::plan::{Aggregate, AggregateFunction};

use highwater_codec::{DecodeError, Reader};

use super::DataErrors;
use crate::chunk::Chunk;
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, EvalError, Faults};
use crate::value::{Value, ValueRef};

use collect::Lists;
use counts::Counts;
use distinct::Distinct;
use extreme::Extremes;
use moments::{Moments, Spread};
use percentile::Percentiles;
pub(crate) use script::{RollingScript, ScriptAggregates, event};
use top::TopValues;
use total::Total;
use totals::Totals;

/// Why there is no result.
pub(crate) type FailureReason = Cow<'static, str>;

#[derive(Clone, Debug)]
pub(crate) enum Accumulator {
    Count(Counts),
    Distinct(Vec<Distinct>),
    Sum(Totals),
    Avg(Totals),
    Extreme(Extremes),
    Spread(Spread, Vec<Moments>),
    Percentile(Percentiles),
    Collect(Lists),
    TopValues(TopValues),
    User(ScriptAggregates),
}

/// The argument of an aggregate over a chunk, in the types that the aggregate takes.
pub(crate) fn argument(spec: &Aggregate, chunk: &Chunk, faults: &mut Faults) -> Option<Column> {
    let value = spec
        .argument
        .as_ref()
        .map(|argument| eval::evaluate(argument, chunk, faults));
    match spec.function {
        AggregateFunction::Count => value,
        AggregateFunction::CountDistinct => value,
        AggregateFunction::Collect => Some(packed::values(value.as_ref(), chunk, true)),
        AggregateFunction::User(_) => Some(packed::values(value.as_ref(), chunk, false)),
        AggregateFunction::CollectTop(_) | AggregateFunction::TopOne => {
            Some(packed::ranked(spec, value.as_ref(), chunk, faults))
        }
        AggregateFunction::Min | AggregateFunction::Max => {
            Some(fitting(spec, value?, !spec.as_text, false, faults))
        }
        AggregateFunction::Sum
        | AggregateFunction::Avg
        | AggregateFunction::StDev
        | AggregateFunction::StDevP
        | AggregateFunction::Var
        | AggregateFunction::VarP
        | AggregateFunction::PercentileCont(_)
        | AggregateFunction::PercentileDisc(_) => Some(fitting(spec, value?, true, true, faults)),
    }
}

/// Converts text to numbers (`to_number`) and rejects other values (`sums`).
fn fitting(
    spec: &Aggregate,
    column: Column,
    to_number: bool,
    sums: bool,
    faults: &mut Faults,
) -> Column {
    let fits = match &column {
        Column::Null(_) | Column::Int(_) | Column::Float(_) => true,
        Column::Time(_) | Column::Bit(_) => !sums,
        Column::Text(_) => !to_number,
        Column::Dynamic(_) => false,
    };
    if fits {
        return column;
    }
    let mut builder = ColumnBuilder::with_capacity(column.len());
    for row in 0..column.len() {
        match fit(column.get(row), to_number, sums) {
            Ok(value) => builder.push(value),
            Err(reason) => {
                builder.push_null();
                if !faults.failed(row) {
                    faults.add(row, spec.span, reason);
                }
            }
        }
    }
    builder.finish()
}

fn fit(value: ValueRef<'_>, to_number: bool, sums: bool) -> Result<ValueRef<'_>, EvalError> {
    match value {
        ValueRef::Text(_) if to_number => eval::to_number(value),
        ValueRef::Bit(b) if sums => Ok(ValueRef::Int(b.into())),
        ValueRef::Time(_) if sums => eval::to_number(value),
        ValueRef::Record(_) | ValueRef::Array(_) => eval::to_number(value),
        other => Ok(other),
    }
}

impl Accumulator {
    /// The state per group in bytes, without lists of values.
    pub(crate) fn slot_bytes(&self) -> usize {
        match self {
            Accumulator::Count(_) => size_of::<i64>(),
            Accumulator::Distinct(_) => size_of::<Distinct>(),
            Accumulator::Sum(_) | Accumulator::Avg(_) => size_of::<Total>(),
            Accumulator::Extreme(_) => size_of::<Value>(),
            Accumulator::Spread(..) => size_of::<Moments>(),
            Accumulator::Percentile(_)
            | Accumulator::Collect(_)
            | Accumulator::TopValues(_)
            | Accumulator::User(..) => size_of::<Vec<Value>>(),
        }
    }

    pub(crate) fn new(spec: &Aggregate) -> Accumulator {
        match &spec.function {
            AggregateFunction::Count => Accumulator::Count(Counts::default()),
            AggregateFunction::CountDistinct => Accumulator::Distinct(Vec::new()),
            AggregateFunction::Sum => Accumulator::Sum(Totals::default()),
            AggregateFunction::Avg => Accumulator::Avg(Totals::default()),
            AggregateFunction::Min => Accumulator::Extreme(Extremes::least()),
            AggregateFunction::Max => Accumulator::Extreme(Extremes::most()),
            AggregateFunction::StDev => Accumulator::Spread(Spread::DEVIATION, Vec::new()),
            AggregateFunction::StDevP => Accumulator::Spread(Spread::DEVIATION_OF_ALL, Vec::new()),
            AggregateFunction::Var => Accumulator::Spread(Spread::VARIANCE, Vec::new()),
            AggregateFunction::VarP => Accumulator::Spread(Spread::VARIANCE_OF_ALL, Vec::new()),
            AggregateFunction::PercentileCont(_) | AggregateFunction::PercentileDisc(_) => {
                Accumulator::Percentile(Percentiles::new(spec))
            }
            AggregateFunction::Collect => Accumulator::Collect(Lists::default()),
            AggregateFunction::CollectTop(_) | AggregateFunction::TopOne => {
                Accumulator::TopValues(TopValues::new(spec))
            }
            AggregateFunction::User(name) => Accumulator::User(ScriptAggregates::new(name)),
        }
    }

    /// Grows the state to `groups` groups.
    pub(crate) fn grow(&mut self, groups: usize) {
        match self {
            Accumulator::Count(counts) => counts.grow(groups),
            Accumulator::Distinct(sets) => sets.resize_with(groups, Distinct::default),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => totals.grow(groups),
            Accumulator::Extreme(extremes) => extremes.grow(groups),
            Accumulator::Spread(_, moments) => moments.resize(groups, Moments::default()),
            Accumulator::Percentile(percentiles) => percentiles.grow(groups),
            Accumulator::Collect(lists)
            | Accumulator::User(ScriptAggregates { events: lists, .. }) => lists.grow(groups),
            Accumulator::TopValues(ranked) => ranked.grow(groups),
        }
    }

    /// Frees unused capacity: no more groups will come.
    pub(crate) fn shrink(&mut self) {
        match self {
            Accumulator::Count(counts) => counts.shrink(),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => totals.shrink(),
            Accumulator::Extreme(extremes) => extremes.shrink(),
            _ => {}
        }
    }

    /// A copy of the given groups, in that order.
    pub(crate) fn pick(&self, slots: &[u32]) -> Accumulator {
        match self {
            Accumulator::Count(counts) => Accumulator::Count(counts.pick(slots)),
            Accumulator::Distinct(sets) => Accumulator::Distinct(pick(sets, slots)),
            Accumulator::Sum(totals) => Accumulator::Sum(totals.pick(slots)),
            Accumulator::Avg(totals) => Accumulator::Avg(totals.pick(slots)),
            Accumulator::Extreme(extremes) => Accumulator::Extreme(extremes.pick(slots)),
            Accumulator::Spread(spread, moments) => {
                Accumulator::Spread(*spread, pick(moments, slots))
            }
            Accumulator::Percentile(percentiles) => Accumulator::Percentile(Percentiles {
                values: pick(&percentiles.values, slots),
                ..*percentiles
            }),
            Accumulator::Collect(lists) => Accumulator::Collect(Lists(pick(&lists.0, slots))),
            Accumulator::User(scripted) => Accumulator::User(scripted.pick(slots)),
            Accumulator::TopValues(ranked) => Accumulator::TopValues(TopValues {
                shown: ranked.shown,
                descending: ranked.descending.clone(),
                best: pick(&ranked.best, slots),
            }),
        }
    }

    /// Resets the given groups for reuse.
    pub(crate) fn clear(&mut self, slots: &[u32]) {
        let slots = slots.iter().map(|&slot| slot as usize);
        match self {
            Accumulator::Count(counts) => slots.for_each(|slot| counts.clear(slot)),
            Accumulator::Distinct(sets) => slots.for_each(|slot| sets[slot] = Distinct::default()),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => {
                slots.for_each(|slot| totals.clear(slot));
            }
            Accumulator::Extreme(extremes) => slots.for_each(|slot| extremes.clear(slot)),
            Accumulator::Spread(_, moments) => {
                slots.for_each(|slot| moments[slot] = Moments::default());
            }
            Accumulator::Percentile(percentiles) => slots.for_each(|slot| percentiles.clear(slot)),
            Accumulator::Collect(lists)
            | Accumulator::User(ScriptAggregates { events: lists, .. }) => {
                slots.for_each(|slot| lists.clear(slot));
            }
            Accumulator::TopValues(ranked) => slots.for_each(|slot| ranked.clear(slot)),
        }
    }

    /// Swaps two groups.
    pub(crate) fn swap(&mut self, a: u32, b: u32) {
        let (a, b) = (a as usize, b as usize);
        match self {
            Accumulator::Count(counts) => counts.swap(a, b),
            Accumulator::Distinct(sets) => sets.swap(a, b),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => totals.swap(a, b),
            Accumulator::Extreme(extremes) => extremes.swap(a, b),
            Accumulator::Spread(_, moments) => moments.swap(a, b),
            Accumulator::Percentile(percentiles) => percentiles.values.swap(a, b),
            Accumulator::Collect(lists)
            | Accumulator::User(ScriptAggregates { events: lists, .. }) => lists.0.swap(a, b),
            Accumulator::TopValues(ranked) => ranked.best.swap(a, b),
        }
    }

    /// Adds the rows from `start` on, row `start + i` to group `slots[i]`. `None` is COUNT(*).
    pub(crate) fn update(
        &mut self,
        slots: &[u32],
        start: usize,
        argument: Option<&Column>,
    ) -> Result<(), EvalError> {
        if let Accumulator::Count(counts) = self {
            counts.update(slots, start, argument);
            return Ok(());
        }
        let Some(column) = argument else {
            return Ok(());
        };
        match self {
            Accumulator::Count(_) => {}
            Accumulator::Distinct(sets) => distinct::update(sets, slots, start, column),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => {
                totals.update(slots, start, column);
            }
            Accumulator::Extreme(extremes) => return extremes.update(slots, start, column),
            Accumulator::Spread(_, moments) => moments::update(moments, slots, start, column),
            Accumulator::Percentile(percentiles) => percentiles.update(slots, start, column),
            Accumulator::Collect(lists)
            | Accumulator::User(ScriptAggregates { events: lists, .. }) => {
                lists.update(slots, start, column);
            }
            Accumulator::TopValues(ranked) => ranked.update(slots, start, column),
        }
        Ok(())
    }

    /// Merges the state of `other`, its group `i` into group `slots[i]`.
    pub(crate) fn absorb(&mut self, other: &Accumulator, slots: &[u32]) -> Result<(), EvalError> {
        match (self, other) {
            (Accumulator::Count(ours), Accumulator::Count(theirs)) => ours.absorb(theirs, slots),
            (Accumulator::Distinct(ours), Accumulator::Distinct(theirs)) => {
                for (&slot, set) in slots.iter().zip(theirs) {
                    ours[slot as usize].absorb(set);
                }
            }
            (Accumulator::Sum(ours), Accumulator::Sum(theirs))
            | (Accumulator::Avg(ours), Accumulator::Avg(theirs)) => ours.absorb(theirs, slots),
            (Accumulator::Extreme(ours), Accumulator::Extreme(theirs)) => {
                return ours.absorb(theirs, slots);
            }
            (Accumulator::Spread(_, ours), Accumulator::Spread(_, theirs)) => {
                for (&slot, moments) in slots.iter().zip(theirs) {
                    ours[slot as usize].absorb(moments);
                }
            }
            (Accumulator::Percentile(ours), Accumulator::Percentile(theirs)) => {
                ours.absorb(theirs, slots);
            }
            (Accumulator::Collect(ours), Accumulator::Collect(theirs))
            | (
                Accumulator::User(ScriptAggregates { events: ours, .. }),
                Accumulator::User(ScriptAggregates { events: theirs, .. }),
            ) => {
                ours.absorb(theirs, slots);
            }
            (Accumulator::TopValues(ours), Accumulator::TopValues(theirs)) => {
                ours.absorb(theirs, slots)
            }
            _ => unreachable!("shares of one window have the same aggregates"),
        }
        Ok(())
    }

    pub(crate) fn result(&self, slot: usize) -> Result<Value, FailureReason> {
        match self {
            Accumulator::Count(counts) => Ok(Value::Int(counts.get(slot))),
            Accumulator::Distinct(sets) => Ok(Value::Int(sets[slot].len() as i64)),
            Accumulator::Sum(totals) => totals.get(slot).sum(),
            Accumulator::Avg(totals) => totals.get(slot).avg(),
            Accumulator::Extreme(extremes) => Ok(extremes.get(slot).to_value()),
            Accumulator::Spread(spread, moments) => moments[slot].result(*spread),
            Accumulator::Percentile(percentiles) => percentiles.result(slot),
            Accumulator::Collect(lists) => Ok(lists.array(slot)),
            Accumulator::TopValues(ranked) => Ok(ranked.result(slot)),
            Accumulator::User(scripted) => scripted.result(slot),
        }
    }

    /// Whether a result can fail.
    pub(crate) fn can_fail(&self) -> bool {
        match self {
            Accumulator::Count(_)
            | Accumulator::Distinct(_)
            | Accumulator::Extreme(_)
            | Accumulator::Collect(_)
            | Accumulator::TopValues(_) => false,
            Accumulator::Sum(_)
            | Accumulator::Avg(_)
            | Accumulator::Spread(..)
            | Accumulator::Percentile(_)
            | Accumulator::User(..) => true,
        }
    }

    /// Appends the result of a group to a column; NULL if there is none.
    pub(crate) fn write(&self, slot: usize, column: &mut ColumnBuilder) {
        match self {
            Accumulator::Extreme(extremes) => column.push(extremes.get(slot)),
            other => column.push_owned(other.result(slot).unwrap_or_default()),
        }
    }

    /// The results of several groups as a column; failures are recorded.
    pub(crate) fn results(&self, spec: &Aggregate, slots: &[u32], faults: &mut Faults) -> Column {
        if let Accumulator::Count(counts) = self {
            let counts = slots.iter().map(|&slot| counts.get(slot as usize));
            return Column::from_ints(counts.collect());
        }
        let mut builder = ColumnBuilder::with_capacity(slots.len());
        for (row, &slot) in slots.iter().enumerate() {
            match self.result(slot as usize) {
                Ok(value) => builder.push_owned(value),
                Err(reason) => {
                    builder.push_null();
                    faults.add(row, spec.span, EvalError::Aggregate { reason });
                }
            }
        }
        builder.finish()
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        match self {
            Accumulator::Count(counts) => counts.snapshot(out),
            Accumulator::Distinct(sets) => sets.iter().for_each(|set| set.snapshot(out)),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => totals.snapshot(out),
            Accumulator::Extreme(extremes) => extremes.snapshot(out),
            Accumulator::Spread(_, moments) => {
                moments.iter().for_each(|moments| moments.snapshot(out));
            }
            Accumulator::Percentile(percentiles) => percentiles.snapshot(out),
            Accumulator::Collect(lists)
            | Accumulator::User(ScriptAggregates { events: lists, .. }) => lists.snapshot(out),
            Accumulator::TopValues(ranked) => ranked.snapshot(out),
        }
    }

    pub(crate) fn restore(
        &mut self,
        groups: usize,
        from: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        self.grow(groups);
        match self {
            Accumulator::Count(counts) => counts.restore(from)?,
            Accumulator::Distinct(sets) => {
                for set in sets {
                    *set = Distinct::restore(from)?;
                }
            }
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => totals.restore(from)?,
            Accumulator::Extreme(extremes) => extremes.restore(from)?,
            Accumulator::Spread(_, moments) => {
                for moments in moments {
                    *moments = Moments::restore(from)?;
                }
            }
            Accumulator::Percentile(percentiles) => percentiles.restore(from)?,
            Accumulator::Collect(lists)
            | Accumulator::User(ScriptAggregates { events: lists, .. }) => lists.restore(from)?,
            Accumulator::TopValues(ranked) => ranked.restore(from)?,
        }
        Ok(())
    }
}

fn pick<T: Clone>(all: &[T], slots: &[u32]) -> Vec<T> {
    slots
        .iter()
        .map(|&slot| all[slot as usize].clone())
        .collect()
}

fn finite(value: f64, otherwise: &'static str) -> Result<Value, FailureReason> {
    if value.is_finite() {
        Ok(Value::Float(value))
    } else {
        Err(otherwise.into())
    }
}

/// SUM or AVG of `count` numbers with the sum `ints` or, if there are floats among them, `float`.
pub(crate) fn of_totals(
    function: &AggregateFunction,
    ints: i128,
    float: Option<f64>,
    count: u64,
) -> Result<Value, FailureReason> {
    let total = Total::of(ints, float, count);
    match function {
        AggregateFunction::Avg => total.avg(),
        _ => total.sum(),
    }
}

/// Counts values that MIN or MAX could not compare.
pub(crate) fn note(
    outcome: Result<(), EvalError>,
    spec: &Aggregate,
    time: highwater_time::Instant,
    errors: &mut DataErrors,
) {
    if let Err(reason) = outcome {
        errors.add(time, spec.span, || reason.to_string());
    }
}
