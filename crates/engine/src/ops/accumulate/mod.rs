//! Running aggregates, one value per group, updated a run of rows at a time.
//!
//! Integer sums have 128 bits, so only a result can overflow and no intermediate sum. Float sums add in the order of
//! the rows, which is time order, and partial panes in the order of the partitions: results do not depend on chunk
//! boundaries.
//!
//! Every aggregate takes one column. Aggregates that need more than a value (the event's time, its rank) take a column
//! of arrays, see [`packed`]; so operators that buffer events store one value per aggregate.

mod collect;
mod counts;
mod distinct;
mod extreme;
mod moments;
mod packed;
mod per_group;
mod percentile;
mod script;
mod top;
mod total;
mod totals;

use std::borrow::Cow;

use highwater_query::plan::{Aggregate, AggregateFunction};

use highwater_codec::{DecodeError, Reader};

use crate::chunk::Chunk;
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, EvalError, Faults};
use crate::value::{Value, ValueRef};

use collect::TimedValues;
use counts::Counts;
use distinct::Distinct;
use extreme::Extremes;
use moments::{Moments, Spread};
use per_group::PerGroup;
use percentile::{Numbers, Percentile};
pub(crate) use script::{RollingScript, ScriptAggregates, event};
use top::{Ranking, TopEvents};
use total::Total;
use totals::Totals;

/// Why there is no result.
pub(crate) type FailureReason = Cow<'static, str>;

#[derive(Clone, Debug)]
pub(crate) enum Accumulator {
    Count(Counts),
    Distinct(PerGroup<Distinct, ()>),
    Sum(Totals),
    Avg(Totals),
    Extreme(Extremes),
    Spread(PerGroup<Moments, Spread>),
    Percentile(PerGroup<Numbers, Percentile>),
    Collect(PerGroup<TimedValues, ()>),
    TopEvents(PerGroup<TopEvents, Ranking>),
    User(ScriptAggregates),
}

/// The same expression for the groups of any aggregate.
macro_rules! each_kind {
    ($accumulator:expr, $groups:ident => $do:expr) => {
        match $accumulator {
            Accumulator::Count($groups) => $do,
            Accumulator::Distinct($groups) => $do,
            Accumulator::Sum($groups) | Accumulator::Avg($groups) => $do,
            Accumulator::Extreme($groups) => $do,
            Accumulator::Spread($groups) => $do,
            Accumulator::Percentile($groups) => $do,
            Accumulator::Collect($groups)
            | Accumulator::User(ScriptAggregates {
                events: $groups, ..
            }) => $do,
            Accumulator::TopEvents($groups) => $do,
        }
    };
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
        AggregateFunction::Min | AggregateFunction::Max => Some(fitting(
            spec,
            value?,
            Conversion::of_ranked(spec.as_text, spec),
            faults,
        )),
        AggregateFunction::Sum
        | AggregateFunction::Avg
        | AggregateFunction::StDev
        | AggregateFunction::StDevP
        | AggregateFunction::Var
        | AggregateFunction::VarP
        | AggregateFunction::PercentileCont(_)
        | AggregateFunction::PercentileDisc(_) => {
            Some(fitting(spec, value?, Conversion::Sum, faults))
        }
    }
}

/// How values become the ones that an aggregate takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Conversion {
    /// Everything must be a number.
    Sum,
    /// Text is a number, a time or text, as it reads.
    Read,
    /// Text stays text: the query cast it so.
    Text,
    /// Text must be a number: the job is strict.
    Strict,
}

impl Conversion {
    /// That of values that are ordered.
    fn of_ranked(as_text: bool, spec: &Aggregate) -> Conversion {
        match (as_text, spec.strict_types) {
            (true, _) => Conversion::Text,
            (false, true) => Conversion::Strict,
            (false, false) => Conversion::Read,
        }
    }
}

/// Converts the argument of an aggregate; values that cannot be converted are faults.
fn fitting(
    spec: &Aggregate,
    column: Column,
    conversion: Conversion,
    faults: &mut Faults,
) -> Column {
    let fits = match &column {
        Column::Null(_) | Column::Int(_) | Column::Float(_) => true,
        Column::Time(_) | Column::Bit(_) => conversion != Conversion::Sum,
        Column::Text(_) => conversion == Conversion::Text,
        Column::Dynamic(_) | Column::Lazy(_) => false,
    };
    if fits {
        return column;
    }
    let mut builder = ColumnBuilder::with_capacity(column.len());
    for row in 0..column.len() {
        match fit(column.get(row), conversion) {
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

fn fit(value: ValueRef<'_>, conversion: Conversion) -> Result<ValueRef<'_>, EvalError> {
    match (value, conversion) {
        (ValueRef::Text(text), Conversion::Read) => Ok(eval::read_text(text)),
        (ValueRef::Text(_), Conversion::Text) => Ok(value),
        (ValueRef::Text(_), Conversion::Sum | Conversion::Strict) => eval::to_number(value),
        (ValueRef::Bit(b), Conversion::Sum) => Ok(ValueRef::Int(b.into())),
        (ValueRef::Time(_), Conversion::Sum) => eval::to_number(value),
        (ValueRef::Record(_) | ValueRef::Array(_), _) => eval::to_number(value),
        (other, _) => Ok(other),
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
            Accumulator::Spread(_) => size_of::<Moments>(),
            Accumulator::Percentile(_)
            | Accumulator::Collect(_)
            | Accumulator::TopEvents(_)
            | Accumulator::User(_) => size_of::<Vec<Value>>(),
        }
    }

    /// About the size of the state of `groups` groups.
    pub(crate) fn state_bytes(&self, groups: usize) -> usize {
        let lists = match self {
            Accumulator::Distinct(sets) => sets.list_bytes(),
            Accumulator::Percentile(numbers) => numbers.list_bytes(),
            Accumulator::Collect(lists)
            | Accumulator::User(ScriptAggregates { events: lists, .. }) => lists.list_bytes(),
            Accumulator::TopEvents(ranked) => ranked.list_bytes(),
            Accumulator::Count(_)
            | Accumulator::Sum(_)
            | Accumulator::Avg(_)
            | Accumulator::Extreme(_)
            | Accumulator::Spread(_) => 0,
        };
        groups * self.slot_bytes() + lists
    }

    pub(crate) fn new(spec: &Aggregate) -> Accumulator {
        let spread = |spread| Accumulator::Spread(PerGroup::new(spread));
        match &spec.function {
            AggregateFunction::Count => Accumulator::Count(Counts::default()),
            AggregateFunction::CountDistinct => Accumulator::Distinct(PerGroup::new(())),
            AggregateFunction::Sum => Accumulator::Sum(Totals::default()),
            AggregateFunction::Avg => Accumulator::Avg(Totals::default()),
            AggregateFunction::Min => Accumulator::Extreme(Extremes::least()),
            AggregateFunction::Max => Accumulator::Extreme(Extremes::most()),
            AggregateFunction::StDev => spread(Spread::DEVIATION),
            AggregateFunction::StDevP => spread(Spread::DEVIATION_OF_ALL),
            AggregateFunction::Var => spread(Spread::VARIANCE),
            AggregateFunction::VarP => spread(Spread::VARIANCE_OF_ALL),
            AggregateFunction::PercentileCont(_) | AggregateFunction::PercentileDisc(_) => {
                Accumulator::Percentile(PerGroup::new(Percentile::new(spec)))
            }
            AggregateFunction::Collect => Accumulator::Collect(PerGroup::new(())),
            AggregateFunction::CollectTop(_) | AggregateFunction::TopOne => {
                Accumulator::TopEvents(PerGroup::new(Ranking::new(spec)))
            }
            AggregateFunction::User(name) => Accumulator::User(ScriptAggregates::new(name)),
        }
    }

    /// Grows the state to `groups` groups.
    pub(crate) fn grow(&mut self, groups: usize) {
        each_kind!(self, all => all.grow(groups));
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
            Accumulator::Distinct(sets) => Accumulator::Distinct(sets.pick(slots)),
            Accumulator::Sum(totals) => Accumulator::Sum(totals.pick(slots)),
            Accumulator::Avg(totals) => Accumulator::Avg(totals.pick(slots)),
            Accumulator::Extreme(extremes) => Accumulator::Extreme(extremes.pick(slots)),
            Accumulator::Spread(moments) => Accumulator::Spread(moments.pick(slots)),
            Accumulator::Percentile(numbers) => Accumulator::Percentile(numbers.pick(slots)),
            Accumulator::Collect(lists) => Accumulator::Collect(lists.pick(slots)),
            Accumulator::TopEvents(ranked) => Accumulator::TopEvents(ranked.pick(slots)),
            Accumulator::User(scripted) => Accumulator::User(scripted.pick(slots)),
        }
    }

    /// Resets the given groups for reuse.
    pub(crate) fn clear(&mut self, slots: &[u32]) {
        let slots = slots.iter().map(|&slot| slot as usize);
        each_kind!(self, all => slots.for_each(|slot| all.clear(slot)));
    }

    /// Swaps two groups.
    pub(crate) fn swap(&mut self, a: u32, b: u32) {
        each_kind!(self, all => all.swap(a as usize, b as usize));
    }

    /// Adds the rows from `start` on, row `start + i` to group `slots[i]`. `None` is COUNT(*).
    pub(crate) fn update(&mut self, slots: &[u32], start: usize, argument: Option<&Column>) {
        if let Accumulator::Count(counts) = self {
            counts.update(slots, start, argument);
            return;
        }
        let Some(column) = argument else {
            return;
        };
        match self {
            Accumulator::Count(_) => {}
            Accumulator::Extreme(extremes) => extremes.update(slots, start, column),
            Accumulator::Distinct(sets) => sets.update(slots, start, column),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => {
                totals.update(slots, start, column);
            }
            Accumulator::Spread(moments) => moments.update(slots, start, column),
            Accumulator::Percentile(numbers) => numbers.update(slots, start, column),
            Accumulator::Collect(lists)
            | Accumulator::User(ScriptAggregates { events: lists, .. }) => {
                lists.update(slots, start, column);
            }
            Accumulator::TopEvents(ranked) => ranked.update_ranked(slots, start, column),
        }
    }

    /// Merges the state of `other`, its group `i` into group `slots[i]`.
    pub(crate) fn absorb(&mut self, other: &Accumulator, slots: &[u32]) {
        use Accumulator::*;
        match (self, other) {
            (Extreme(ours), Extreme(theirs)) => ours.absorb(theirs, slots),
            (Count(ours), Count(theirs)) => ours.absorb(theirs, slots),
            (Distinct(ours), Distinct(theirs)) => ours.absorb(theirs, slots),
            (Sum(ours), Sum(theirs)) | (Avg(ours), Avg(theirs)) => ours.absorb(theirs, slots),
            (Spread(ours), Spread(theirs)) => ours.absorb(theirs, slots),
            (Percentile(ours), Percentile(theirs)) => ours.absorb(theirs, slots),
            (Collect(ours), Collect(theirs)) => ours.absorb(theirs, slots),
            (User(ours), User(theirs)) => ours.events.absorb(&theirs.events, slots),
            (TopEvents(ours), TopEvents(theirs)) => ours.absorb(theirs, slots),
            _ => unreachable!("shares of one window have the same aggregates"),
        }
    }

    pub(crate) fn result(&self, slot: usize) -> Result<Value, FailureReason> {
        match self {
            Accumulator::Count(counts) => Ok(Value::Int(counts.get(slot))),
            Accumulator::Distinct(sets) => sets.result(slot),
            Accumulator::Sum(totals) => totals.get(slot).sum(),
            Accumulator::Avg(totals) => totals.get(slot).avg(),
            Accumulator::Extreme(extremes) => Ok(extremes.get(slot).to_value()),
            Accumulator::Spread(moments) => moments.result(slot),
            Accumulator::Percentile(numbers) => numbers.result(slot),
            Accumulator::Collect(lists) => lists.result(slot),
            Accumulator::TopEvents(ranked) => ranked.result(slot),
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
            | Accumulator::TopEvents(_) => false,
            Accumulator::Sum(_)
            | Accumulator::Avg(_)
            | Accumulator::Spread(_)
            | Accumulator::Percentile(_)
            | Accumulator::User(_) => true,
        }
    }

    /// Appends the result of a group to a column; NULL if there is none.
    pub(crate) fn write(&self, slot: usize, column: &mut ColumnBuilder) {
        match self {
            Accumulator::Extreme(extremes) => column.push(extremes.get(slot)),
            Accumulator::TopEvents(ranked) => ranked.write(slot, column),
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
        if let Accumulator::TopEvents(ranked) = self {
            let slots = slots.iter().map(|&slot| slot as usize);
            slots.for_each(|slot| ranked.write(slot, &mut builder));
            return builder.finish();
        }
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
        each_kind!(self, all => all.snapshot(out));
    }

    pub(crate) fn restore(
        &mut self,
        groups: usize,
        from: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        self.grow(groups);
        each_kind!(self, all => all.restore(from))
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
