//! Running aggregates, one value per group, updated a run of rows at a time.
//!
//! Integer sums are exact in 128 bits, so only a result can overflow, never the way to it. Float sums are folded in the
//! order of the rows, which is the order of time, and shares of partitions in the order of the partitions: how the
//! input was cut never shows in a result.

use std::cmp::Ordering;

use arrow_array::Array;
use highwater_query::plan::{Aggregate, AggregateFunction};

use super::DataErrors;
use crate::chunk::Chunk;
use crate::codec::{Reader, RestoreError, Writer};
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, EvalError, Faults};
use crate::value::{Value, ValueRef};

#[derive(Clone, Debug)]
pub(crate) enum Accumulator {
    Count(Vec<i64>),
    Sum(Vec<Total>),
    Avg(Vec<Total>),
    Min(Vec<Value>),
    Max(Vec<Value>),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Total {
    ints: i128,
    floats: f64,
    count: u64,
    any_float: bool,
}

/// The argument of an aggregate over a chunk, in the types that the aggregate takes.
pub(crate) fn argument(spec: &Aggregate, chunk: &Chunk, faults: &mut Faults) -> Option<Column> {
    let column = eval::evaluate(spec.argument.as_ref()?, chunk, faults);
    let to_number = match spec.function {
        AggregateFunction::Count => return Some(column),
        AggregateFunction::CountDistinct
        | AggregateFunction::StDev
        | AggregateFunction::StDevP
        | AggregateFunction::Var
        | AggregateFunction::VarP
        | AggregateFunction::PercentileCont(_)
        | AggregateFunction::PercentileDisc(_)
        | AggregateFunction::Collect
        | AggregateFunction::CollectTop(_)
        | AggregateFunction::TopOne
        | AggregateFunction::User(_) => unreachable!("no query is bound to these aggregates"),
        AggregateFunction::Sum | AggregateFunction::Avg => true,
        AggregateFunction::Min | AggregateFunction::Max => !spec.as_text,
    };
    let sums = matches!(
        spec.function,
        AggregateFunction::Sum | AggregateFunction::Avg
    );
    let fits = match &column {
        Column::Null(_) | Column::Int(_) | Column::Float(_) => true,
        Column::Time(_) => !sums,
        Column::Bit(_) => !sums,
        Column::Text(_) => !to_number,
        Column::Dynamic(_) => false,
    };
    if fits {
        return Some(column);
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
    Some(builder.finish())
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

impl Total {
    #[inline]
    fn add_int(&mut self, value: i64) {
        self.ints += i128::from(value);
        self.count += 1;
    }

    #[inline]
    fn add_float(&mut self, value: f64) {
        self.floats += value;
        self.count += 1;
        self.any_float = true;
    }

    fn add(&mut self, other: &Total) {
        self.ints += other.ints;
        self.floats += other.floats;
        self.count += other.count;
        self.any_float |= other.any_float;
    }

    fn float(&self) -> f64 {
        // Without this, a negative zero total would lose its sign to the empty integer part.
        if self.ints == 0 {
            self.floats
        } else {
            self.ints as f64 + self.floats
        }
    }

    fn sum(&self) -> Result<Value, &'static str> {
        match (self.count, self.any_float) {
            (0, _) => Ok(Value::Null),
            (_, false) => i64::try_from(self.ints)
                .map(Value::Int)
                .map_err(|_| "SUM overflows bigint"),
            (_, true) => finite(self.float(), "SUM overflows float"),
        }
    }

    fn avg(&self) -> Result<Value, &'static str> {
        match self.count {
            0 => Ok(Value::Null),
            count => finite(self.float() / count as f64, "AVG overflows float"),
        }
    }
}

fn finite(value: f64, otherwise: &'static str) -> Result<Value, &'static str> {
    if value.is_finite() {
        Ok(Value::Float(value))
    } else {
        Err(otherwise)
    }
}

impl Accumulator {
    pub fn new(spec: &Aggregate) -> Accumulator {
        match spec.function {
            AggregateFunction::CountDistinct
            | AggregateFunction::StDev
            | AggregateFunction::StDevP
            | AggregateFunction::Var
            | AggregateFunction::VarP
            | AggregateFunction::PercentileCont(_)
            | AggregateFunction::PercentileDisc(_)
            | AggregateFunction::Collect
            | AggregateFunction::CollectTop(_)
            | AggregateFunction::TopOne
            | AggregateFunction::User(_) => unreachable!("no query is bound to these aggregates"),
            AggregateFunction::Count => Accumulator::Count(Vec::new()),
            AggregateFunction::Sum => Accumulator::Sum(Vec::new()),
            AggregateFunction::Avg => Accumulator::Avg(Vec::new()),
            AggregateFunction::Min => Accumulator::Min(Vec::new()),
            AggregateFunction::Max => Accumulator::Max(Vec::new()),
        }
    }

    /// Makes room for groups up to `groups`.
    pub fn grow(&mut self, groups: usize) {
        match self {
            Accumulator::Count(counts) => counts.resize(groups, 0),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => {
                totals.resize(groups, Total::default());
            }
            Accumulator::Min(values) | Accumulator::Max(values) => {
                values.resize(groups, Value::Null);
            }
        }
    }

    /// Adds the rows from `start` on, row `start + i` to group `slots[i]`. `None` is COUNT(*).
    pub fn update(
        &mut self,
        slots: &[u32],
        start: usize,
        argument: Option<&Column>,
    ) -> Result<(), EvalError> {
        match self {
            Accumulator::Count(counts) => count(counts, slots, start, argument),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => {
                if let Some(column) = argument {
                    total(totals, slots, start, column);
                }
            }
            Accumulator::Min(values) => {
                return extreme(values, slots, start, argument, Ordering::Less);
            }
            Accumulator::Max(values) => {
                return extreme(values, slots, start, argument, Ordering::Greater);
            }
        }
        Ok(())
    }

    /// Adds what `other` has gathered, its group `i` to our group `slots[i]`.
    pub fn absorb(&mut self, other: &Accumulator, slots: &[u32]) -> Result<(), EvalError> {
        match (self, other) {
            (Accumulator::Count(ours), Accumulator::Count(theirs)) => {
                for (&slot, count) in slots.iter().zip(theirs) {
                    ours[slot as usize] += count;
                }
            }
            (Accumulator::Sum(ours), Accumulator::Sum(theirs))
            | (Accumulator::Avg(ours), Accumulator::Avg(theirs)) => {
                for (&slot, total) in slots.iter().zip(theirs) {
                    ours[slot as usize].add(total);
                }
            }
            (Accumulator::Min(ours), Accumulator::Min(theirs)) => {
                for (&slot, value) in slots.iter().zip(theirs) {
                    replace_if(&mut ours[slot as usize], value.view(), Ordering::Less)?;
                }
            }
            (Accumulator::Max(ours), Accumulator::Max(theirs)) => {
                for (&slot, value) in slots.iter().zip(theirs) {
                    replace_if(&mut ours[slot as usize], value.view(), Ordering::Greater)?;
                }
            }
            _ => unreachable!("shares of one window have the same aggregates"),
        }
        Ok(())
    }

    pub fn result(&self, slot: usize) -> Result<Value, &'static str> {
        match self {
            Accumulator::Count(counts) => Ok(Value::Int(counts[slot])),
            Accumulator::Sum(totals) => totals[slot].sum(),
            Accumulator::Avg(totals) => totals[slot].avg(),
            Accumulator::Min(values) | Accumulator::Max(values) => Ok(values[slot].clone()),
        }
    }

    pub fn snapshot(&self, out: &mut Writer) {
        match self {
            Accumulator::Count(counts) => counts.iter().for_each(|&count| out.i64(count)),
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => {
                for total in totals {
                    out.i128(total.ints);
                    out.f64(total.floats);
                    out.u64(total.count);
                    out.u8(total.any_float.into());
                }
            }
            Accumulator::Min(values) | Accumulator::Max(values) => {
                values.iter().for_each(|value| out.value(value.view()));
            }
        }
    }

    pub fn restore(&mut self, groups: usize, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.grow(groups);
        match self {
            Accumulator::Count(counts) => {
                for count in counts {
                    *count = from.i64()?;
                }
            }
            Accumulator::Sum(totals) | Accumulator::Avg(totals) => {
                for total in totals {
                    *total = Total {
                        ints: from.i128()?,
                        floats: from.f64()?,
                        count: from.u64()?,
                        any_float: from.u8()? != 0,
                    };
                }
            }
            Accumulator::Min(values) | Accumulator::Max(values) => {
                for value in values {
                    *value = from.value()?;
                }
            }
        }
        Ok(())
    }
}

fn count(counts: &mut [i64], slots: &[u32], start: usize, argument: Option<&Column>) {
    let nulls = match argument {
        None => None,
        Some(Column::Int(a) | Column::Time(a)) if a.null_count() == 0 => None,
        Some(Column::Float(a)) if a.null_count() == 0 => None,
        Some(column) => Some(column),
    };
    for (row, &slot) in slots.iter().enumerate() {
        let counted = nulls.is_none_or(|column| !column.is_null(start + row));
        counts[slot as usize] += i64::from(counted);
    }
}

fn total(totals: &mut [Total], slots: &[u32], start: usize, column: &Column) {
    match column {
        Column::Int(a) if a.null_count() == 0 => {
            for (&slot, &value) in slots.iter().zip(&a.values()[start..]) {
                totals[slot as usize].add_int(value);
            }
        }
        Column::Float(a) if a.null_count() == 0 => {
            for (&slot, &value) in slots.iter().zip(&a.values()[start..]) {
                totals[slot as usize].add_float(value);
            }
        }
        column => {
            for (row, &slot) in slots.iter().enumerate() {
                match column.get(start + row) {
                    ValueRef::Int(value) => totals[slot as usize].add_int(value),
                    ValueRef::Float(value) => totals[slot as usize].add_float(value),
                    _ => {}
                }
            }
        }
    }
}

fn extreme(
    values: &mut [Value],
    slots: &[u32],
    start: usize,
    argument: Option<&Column>,
    wanted: Ordering,
) -> Result<(), EvalError> {
    let Some(column) = argument else {
        return Ok(());
    };
    let mut outcome = Ok(());
    for (row, &slot) in slots.iter().enumerate() {
        let replaced = replace_if(&mut values[slot as usize], column.get(start + row), wanted);
        outcome = outcome.and(replaced);
    }
    outcome
}

/// Takes the new value if it is smaller (or larger), the first of equal ones staying.
fn replace_if(current: &mut Value, new: ValueRef<'_>, wanted: Ordering) -> Result<(), EvalError> {
    if new.is_null() {
        return Ok(());
    }
    if current.is_null() || eval::compare(new, current.view())? == Some(wanted) {
        *current = new.to_value();
    }
    Ok(())
}

/// Counts values that a MIN or MAX could not compare with what it had.
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
