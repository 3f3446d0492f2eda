//! Aggregates over the rows of a key in (t - limit, t], one value per row.
//!
//! COUNT and SUM add rows as they enter and retract them as they leave, which is exact for integers and
//! [exact sums](super::exact_sum). MIN and MAX keep only the rows that may still become the result. The others are
//! recomputed over the rows in range, by the same code as in windows, at a cost proportional to the range.
//!
//! A SUM or AVG over floats is the exact sum rounded once, while a window adds in the order of the rows: the two may
//! differ in the last digit.

use std::cmp::Ordering;
use std::collections::VecDeque;

use highwater_query::plan::{Aggregate, AggregateFunction};

use highwater_codec::{DecodeError, Reader, Writer};

use super::exact_sum::ExactSum;
use super::lag::{Cell, restore_cells, snapshot_cells};
use super::{CallInput, CallState, KeyedCall, RowInput, expire, per_key};
use crate::codec::{ReadValue, WriteValue};
use crate::column::ColumnBuilder;
use crate::eval;
use crate::ops::accumulate::Accumulator;
use crate::value::{Value, ValueRef};

pub(super) fn call_state(aggregate: &Aggregate, limit: i64) -> Box<dyn CallState> {
    fn over<R: Range + 'static>(limit: i64, range: R) -> Box<dyn CallState> {
        per_key(RangeAggregate { limit, range })
    }
    match aggregate.function {
        AggregateFunction::Count => over(limit, Counts),
        AggregateFunction::Sum => over(limit, Sums { mean: false }),
        AggregateFunction::Avg => over(limit, Sums { mean: true }),
        AggregateFunction::Min => over(limit, Extremes(Ordering::Less)),
        AggregateFunction::Max => over(limit, Extremes(Ordering::Greater)),
        _ => over(limit, Folds(aggregate.clone())),
    }
}

/// One aggregate over a sliding range.
trait Range: Send {
    type State: Default + Send;

    /// Adds a row. `value` is `None` for COUNT(*).
    fn enter(&self, state: &mut Self::State, time: i64, value: Option<ValueRef<'_>>);

    /// Removes the rows up to and including `floor`.
    fn leave(&self, state: &mut Self::State, floor: i64);

    fn result(&self, state: &Self::State) -> Result<Value, String>;

    /// See [`KeyedCall::list_bytes`].
    fn list_bytes(state: &Self::State) -> usize;
    fn snapshot(&self, state: &Self::State, out: &mut Vec<u8>);
    fn restore(&self, from: &mut Reader<'_>) -> Result<Self::State, DecodeError>;
}

struct RangeAggregate<R> {
    limit: i64,
    range: R,
}

impl<R: Range> KeyedCall for RangeAggregate<R> {
    type State = R::State;

    fn row(
        &self,
        state: &mut R::State,
        at: RowInput,
        input: &CallInput<'_>,
        out: &mut ColumnBuilder,
    ) -> Result<(), String> {
        self.range.leave(state, at.time.saturating_sub(self.limit));
        if at.passes {
            let argument = input.arguments.first();
            let value = argument.map(|column| column.get(at.row));
            self.range.enter(state, at.time, value);
        }
        out.push_owned(self.range.result(state)?);
        Ok(())
    }

    fn list_bytes(state: &R::State) -> usize {
        R::list_bytes(state)
    }

    fn snapshot(&self, state: &R::State, out: &mut Vec<u8>) {
        self.range.snapshot(state, out);
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<R::State, DecodeError> {
        self.range.restore(from)
    }
}

/// COUNT: the times of the counted rows.
struct Counts;

impl Range for Counts {
    type State = VecDeque<i64>;

    fn enter(&self, times: &mut VecDeque<i64>, time: i64, value: Option<ValueRef<'_>>) {
        if value.is_none_or(|value| !value.is_null()) {
            times.push_back(time);
        }
    }

    fn leave(&self, times: &mut VecDeque<i64>, floor: i64) {
        expire(times, floor, |time| *time);
    }

    fn result(&self, times: &VecDeque<i64>) -> Result<Value, String> {
        Ok(Value::Int(times.len() as i64))
    }

    fn list_bytes(times: &VecDeque<i64>) -> usize {
        times.len() * size_of::<i64>()
    }

    fn snapshot(&self, times: &VecDeque<i64>, out: &mut Vec<u8>) {
        out.count(times.len());
        times.iter().for_each(|&time| out.i64(time));
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<VecDeque<i64>, DecodeError> {
        (0..from.count()?).map(|_| from.i64()).collect()
    }
}

/// SUM and AVG.
struct Sums {
    mean: bool,
}

#[derive(Default)]
struct Sum {
    numbers: VecDeque<(i64, Number)>,
    ints: i128,
    floats: usize,
    /// The sum of the floats, if there are many; for a few it is computed on demand.
    exact: Option<Box<ExactSum>>,
}

#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

/// The thresholds for keeping and dropping the exact sum; the result does not depend on it.
const MANY_FLOATS: usize = 32;
const FEW_FLOATS: usize = 8;

impl Sum {
    fn enter(&mut self, time: i64, number: Number) {
        self.numbers.push_back((time, number));
        match number {
            Number::Int(value) => self.ints += i128::from(value),
            Number::Float(value) => {
                self.floats += 1;
                match &mut self.exact {
                    Some(exact) => exact.add(value),
                    None if self.floats >= MANY_FLOATS => self.exact = Some(Box::new(self.fold())),
                    None => {}
                }
            }
        }
    }

    fn leave(&mut self, number: Number) {
        match number {
            Number::Int(value) => self.ints -= i128::from(value),
            Number::Float(value) => {
                self.floats -= 1;
                match &mut self.exact {
                    Some(_) if self.floats <= FEW_FLOATS => self.exact = None,
                    Some(exact) => exact.subtract(value),
                    None => {}
                }
            }
        }
    }

    fn fold(&self) -> ExactSum {
        let mut exact = ExactSum::new();
        for (_, number) in &self.numbers {
            if let Number::Float(value) = number {
                exact.add(*value);
            }
        }
        exact
    }

    fn float(&self) -> f64 {
        if self.floats == 0 {
            return self.ints as f64;
        }
        let mut sum = match &self.exact {
            Some(exact) => (**exact).clone(),
            None => self.fold(),
        };
        sum.add_int(self.ints);
        sum.round()
    }
}

impl Range for Sums {
    type State = Sum;

    fn enter(&self, sum: &mut Sum, time: i64, value: Option<ValueRef<'_>>) {
        match value {
            Some(ValueRef::Int(value)) => sum.enter(time, Number::Int(value)),
            Some(ValueRef::Float(value)) => sum.enter(time, Number::Float(value)),
            _ => {}
        }
    }

    fn leave(&self, sum: &mut Sum, floor: i64) {
        while let Some(&(time, number)) = sum.numbers.front()
            && time <= floor
        {
            sum.numbers.pop_front();
            sum.leave(number);
        }
        expire(&mut sum.numbers, floor, |(time, _)| *time);
    }

    fn result(&self, sum: &Sum) -> Result<Value, String> {
        let count = sum.numbers.len();
        let float = match (count, self.mean, sum.floats) {
            (0, ..) => return Ok(Value::Null),
            (_, false, 0) => {
                let total = i64::try_from(sum.ints).map(Value::Int);
                return total.map_err(|_| "SUM overflows bigint".into());
            }
            (_, false, _) => sum.float(),
            (_, true, _) => sum.float() / count as f64,
        };
        let name = if self.mean { "AVG" } else { "SUM" };
        match float.is_finite() {
            true => Ok(Value::Float(float)),
            false => Err(format!("{name} overflows float")),
        }
    }

    fn list_bytes(sum: &Sum) -> usize {
        sum.numbers.len() * size_of::<(i64, Number)>()
    }

    fn snapshot(&self, sum: &Sum, out: &mut Vec<u8>) {
        out.count(sum.numbers.len());
        for (time, number) in &sum.numbers {
            out.i64(*time);
            match number {
                Number::Int(value) => out.value(ValueRef::Int(*value)),
                Number::Float(value) => out.value(ValueRef::Float(*value)),
            }
        }
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<Sum, DecodeError> {
        let mut sum = Sum::default();
        for _ in 0..from.count()? {
            let time = from.i64()?;
            let number = match from.value()? {
                Value::Int(value) => Number::Int(value),
                Value::Float(value) if value.is_finite() => Number::Float(value),
                _ => return Err(DecodeError::Invalid("a sum of a non-numeric value")),
            };
            sum.enter(time, number);
        }
        Ok(sum)
    }
}

/// MIN (`Less`) and MAX (`Greater`), of equal values the first.
struct Extremes(Ordering);

/// The candidates for a result per kind of value: a row is removed as soon as a later one of the same kind beats it, so
/// values go from best to worst.
#[derive(Default)]
pub(crate) struct Candidates {
    kinds: [VecDeque<Cell>; KINDS],
}

const KINDS: usize = 3;

fn kind_of(value: ValueRef<'_>) -> Option<usize> {
    match value {
        ValueRef::Bit(_) | ValueRef::Int(_) | ValueRef::Float(_) => Some(0),
        ValueRef::Text(_) => Some(1),
        ValueRef::Time(_) => Some(2),
        ValueRef::Null | ValueRef::Record(_) | ValueRef::Array(_) => None,
    }
}

impl Candidates {
    /// Adds a value at a time after all others. `wanted` is how a value compares with one that it makes needless; equal
    /// values stay, because the first of them is the result.
    pub(crate) fn enter(&mut self, wanted: Ordering, time: i64, value: ValueRef<'_>) {
        let Some(kind) = kind_of(value) else {
            return;
        };
        let cells = &mut self.kinds[kind];
        let beaten = |cell: &Cell| eval::rank(value, cell.value.view()) == wanted;
        while cells.back().is_some_and(beaten) {
            cells.pop_back();
        }
        let value = value.to_value();
        cells.push_back(Cell { time, value });
    }

    /// Removes the values up to and including `floor`.
    pub(crate) fn leave(&mut self, floor: i64) {
        for cells in &mut self.kinds {
            expire(cells, floor, |cell| cell.time);
        }
    }

    /// The best value; NULL if there is none. Numbers are below times, and times below texts.
    pub(crate) fn best(&self, wanted: Ordering) -> Value {
        let [numbers, texts, times] = &self.kinds;
        let kinds = match wanted {
            Ordering::Less => [numbers, times, texts],
            _ => [texts, times, numbers],
        };
        let best = kinds.into_iter().find_map(VecDeque::front);
        best.map_or(Value::Null, |cell| cell.value.clone())
    }
}

impl Range for Extremes {
    type State = Candidates;

    fn enter(&self, candidates: &mut Candidates, time: i64, value: Option<ValueRef<'_>>) {
        candidates.enter(self.0, time, value.unwrap_or(ValueRef::Null));
    }

    fn leave(&self, candidates: &mut Candidates, floor: i64) {
        candidates.leave(floor);
    }

    fn result(&self, candidates: &Candidates) -> Result<Value, String> {
        Ok(candidates.best(self.0))
    }

    fn list_bytes(candidates: &Candidates) -> usize {
        candidates.kinds.iter().map(VecDeque::len).sum::<usize>() * size_of::<Cell>()
    }

    fn snapshot(&self, candidates: &Candidates, out: &mut Vec<u8>) {
        for cells in &candidates.kinds {
            snapshot_cells(cells, out);
        }
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<Candidates, DecodeError> {
        let mut candidates = Candidates::default();
        for (kind, cells) in candidates.kinds.iter_mut().enumerate() {
            *cells = restore_cells(from)?;
            let is_other = |cell: &Cell| kind_of(cell.value.view()) != Some(kind);
            if cells.iter().any(is_other) {
                return Err(DecodeError::Invalid("a value of the wrong kind"));
            }
        }
        Ok(candidates)
    }
}

/// Any other aggregate, recomputed.
struct Folds(Aggregate);

impl Range for Folds {
    type State = VecDeque<Cell>;

    fn enter(&self, cells: &mut VecDeque<Cell>, time: i64, value: Option<ValueRef<'_>>) {
        let value = value.map_or(Value::Null, ValueRef::to_value);
        cells.push_back(Cell { time, value });
    }

    fn leave(&self, cells: &mut VecDeque<Cell>, floor: i64) {
        expire(cells, floor, |cell| cell.time);
    }

    fn result(&self, cells: &VecDeque<Cell>) -> Result<Value, String> {
        let mut column = ColumnBuilder::with_capacity(cells.len());
        for cell in cells {
            column.push_owned(cell.value.clone());
        }
        let mut accumulator = Accumulator::new(&self.0);
        accumulator.grow(1);
        accumulator.update(&vec![0; cells.len()], 0, Some(&column.finish()));
        accumulator.result(0).map_err(|reason| reason.to_string())
    }

    fn list_bytes(cells: &VecDeque<Cell>) -> usize {
        cells.len() * size_of::<Cell>()
    }

    fn snapshot(&self, cells: &VecDeque<Cell>, out: &mut Vec<u8>) {
        snapshot_cells(cells, out);
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<VecDeque<Cell>, DecodeError> {
        restore_cells(from)
    }
}
