//! PERCENTILE_CONT and PERCENTILE_DISC: exact, so all values are kept.

use std::cmp::Ordering;

use highwater_query::plan::{Aggregate, AggregateFunction};

use highwater_codec::{DecodeError, Reader, Writer};

use super::per_group::GroupState;
use super::{FailureReason, finite};
use crate::codec::{ReadValue, WriteValue};
use crate::eval;
use crate::value::{Value, ValueRef};

#[derive(Clone, Debug)]
pub(crate) struct Percentile {
    /// Between 0 and 1.
    at: f64,
    interpolated: bool,
    descending: bool,
}

/// The values of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Vec<Number>);

#[derive(Clone, Copy, Debug)]
enum Number {
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

impl Percentile {
    pub(crate) fn new(spec: &Aggregate) -> Percentile {
        let (at, interpolated) = match spec.function {
            AggregateFunction::PercentileCont(at) => (at, true),
            AggregateFunction::PercentileDisc(at) => (at, false),
            _ => unreachable!("the other aggregates are no percentiles"),
        };
        Percentile {
            at,
            interpolated,
            descending: spec.order.first().is_some_and(|key| key.descending),
        }
    }
}

impl GroupState for Numbers {
    type Rule = Percentile;

    fn add(&mut self, _: &Percentile, value: ValueRef<'_>, _: &mut Vec<u8>) {
        self.0.extend(Number::of(value));
    }

    fn absorb(&mut self, _: &Percentile, other: &Numbers) {
        self.0.extend_from_slice(&other.0);
    }

    fn result(&self, rule: &Percentile) -> Result<Value, FailureReason> {
        let mut sorted = self.0.clone();
        // Stable, so that of equal numbers of different types the first one is the result.
        sorted.sort_by(|a, b| match rule.descending {
            true => a.compare(*b).reverse(),
            false => a.compare(*b),
        });
        if sorted.is_empty() {
            return Ok(Value::Null);
        }
        match rule.interpolated {
            true => finite(
                interpolate(&sorted, rule.at),
                "PERCENTILE_CONT overflows float",
            ),
            false => Ok(sorted[discrete(sorted.len(), rule.at)].view().to_value()),
        }
    }

    fn list_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.0.len());
        self.0.iter().for_each(|value| out.value(value.view()));
    }

    fn restore(_: &Percentile, from: &mut Reader<'_>) -> Result<Numbers, DecodeError> {
        let number = |from: &mut Reader<'_>| {
            let number = Number::of(from.value()?.view());
            number.ok_or(DecodeError::Invalid("a percentile of a non-numeric value"))
        };
        let numbers: Result<_, _> = (0..from.count()?).map(|_| number(from)).collect();
        numbers.map(Numbers)
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
