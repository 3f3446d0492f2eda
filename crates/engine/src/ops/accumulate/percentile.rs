//! PERCENTILE_CONT and PERCENTILE_DISC: exact, so all values are kept.

use std::cmp::Ordering;

use highwater_query::plan::{Aggregate, AggregateFunction};

use highwater_codec::{DecodeError, Reader, Writer};

use super::{FailureReason, finite};
use crate::codec::{ReadValue, WriteValue};
use crate::column::Column;
use crate::eval;
use crate::value::{Value, ValueRef};

#[derive(Clone, Debug)]
pub(crate) struct Percentiles {
    /// Between 0 and 1.
    pub(super) at: f64,
    pub(super) interpolated: bool,
    pub(super) descending: bool,
    pub(super) values: Vec<Vec<Number>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn of(value: ValueRef<'_>) -> Option<Number> {
        match value {
            ValueRef::Int(i) => Some(Number::Int(i)),
            ValueRef::Float(f) => Some(Number::Float(f)),
            _ => None,
        }
    }

    fn view(self) -> ValueRef<'static> {
        match self {
            Number::Int(i) => ValueRef::Int(i),
            Number::Float(f) => ValueRef::Float(f),
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Int(i) => i as f64,
            Number::Float(f) => f,
        }
    }

    fn compare(self, other: Number) -> Ordering {
        let ordering = eval::compare(self.view(), other.view());
        ordering.ok().flatten().unwrap_or(Ordering::Equal)
    }
}

impl Percentiles {
    pub(crate) fn new(spec: &Aggregate) -> Percentiles {
        let (at, interpolated) = match spec.function {
            AggregateFunction::PercentileCont(at) => (at, true),
            AggregateFunction::PercentileDisc(at) => (at, false),
            _ => unreachable!("the other aggregates are no percentiles"),
        };
        Percentiles {
            at,
            interpolated,
            descending: spec.order.first().is_some_and(|key| key.descending),
            values: Vec::new(),
        }
    }

    pub(crate) fn grow(&mut self, groups: usize) {
        self.values.resize_with(groups, Vec::new);
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        self.values[slot] = Vec::new();
    }

    pub(crate) fn update(&mut self, slots: &[u32], start: usize, column: &Column) {
        for (row, &slot) in slots.iter().enumerate() {
            self.values[slot as usize].extend(Number::of(column.get(start + row)));
        }
    }

    pub(crate) fn absorb(&mut self, other: &Percentiles, slots: &[u32]) {
        for (&slot, values) in slots.iter().zip(&other.values) {
            self.values[slot as usize].extend_from_slice(values);
        }
    }

    pub(crate) fn result(&self, slot: usize) -> Result<Value, FailureReason> {
        let mut sorted = self.values[slot].clone();
        // Stable, so that of equal numbers of different types the first one is the result.
        sorted.sort_by(|a, b| {
            let ordering = a.compare(*b);
            if self.descending {
                ordering.reverse()
            } else {
                ordering
            }
        });
        if sorted.is_empty() {
            return Ok(Value::Null);
        }
        if self.interpolated {
            finite(
                interpolate(&sorted, self.at),
                "PERCENTILE_CONT overflows float",
            )
        } else {
            Ok(sorted[discrete(sorted.len(), self.at)].view().to_value())
        }
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        for values in &self.values {
            out.count(values.len());
            values.iter().for_each(|value| out.value(value.view()));
        }
    }

    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for values in &mut self.values {
            for _ in 0..from.count()? {
                let value = from.value()?;
                let number = Number::of(value.view());
                values
                    .push(number.ok_or(DecodeError::Invalid("a percentile of what is no number"))?);
            }
        }
        Ok(())
    }
}

/// Linear between the ranks around 1 + p (N - 1).
fn interpolate(sorted: &[Number], at: f64) -> f64 {
    let rank = at * (sorted.len() - 1) as f64;
    let below = (rank.floor() as usize).min(sorted.len() - 1);
    let above = (below + 1).min(sorted.len() - 1);
    let (low, high) = (sorted[below].float(), sorted[above].float());
    let part = rank - below as f64;
    if part <= 0.0 {
        return low;
    }
    let between = low + (high - low) * part;
    if between.is_finite() {
        between
    } else {
        low * (1.0 - part) + high * part
    }
}

/// The first rank k, from zero, with (k + 1) / N >= p.
fn discrete(len: usize, at: f64) -> usize {
    let reaches = |rank: usize| (rank + 1) as f64 / len as f64 >= at;
    let mut rank = ((at * len as f64).ceil() as usize).clamp(1, len) - 1;
    // The product may be rounded over a whole number, the quotient decides.
    while rank > 0 && reaches(rank - 1) {
        rank -= 1;
    }
    while rank + 1 < len && !reaches(rank) {
        rank += 1;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_comes_out() {
        let sorted: Vec<Number> = [0.78, 0.89, 0.93, 0.98, 0.99].map(Number::Float).to_vec();
        assert!((interpolate(&sorted, 0.95) - 0.988).abs() < 1e-12);
        assert_eq!(discrete(5, 0.95), 4);
        assert_eq!(
            (
                discrete(5, 0.0),
                discrete(5, 0.2),
                discrete(5, 0.21),
                discrete(5, 1.0)
            ),
            (0, 0, 1, 4)
        );
        assert_eq!(discrete(30, 0.1), 2);
    }
}
