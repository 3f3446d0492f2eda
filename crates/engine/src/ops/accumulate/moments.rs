//! VAR, VARP, STDEV and STDEVP, without the cancellation of a sum of squares.
//!
//! Count, mean and the sum of squared distances from the mean are updated per value (Welford) and merged per partial
//! pane (Chan); both are accurate for large values that are close together.

use highwater_codec::{DecodeError, Reader, Writer};

use super::per_group::GroupState;
use super::{FailureReason, finite};
use crate::value::{Value, ValueRef};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moments {
    count: u64,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

/// The statistic to compute from the moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// The values are all there are, not a sample.
    all: bool,
    root: bool,
}

impl Spread {
    pub(crate) const VARIANCE: Spread = Spread::new(false, false);
    pub(crate) const VARIANCE_OF_ALL: Spread = Spread::new(true, false);
    pub(crate) const DEVIATION: Spread = Spread::new(false, true);
    pub(crate) const DEVIATION_OF_ALL: Spread = Spread::new(true, true);

    const fn new(all: bool, root: bool) -> Spread {
        Spread { all, root }
    }
}

impl Moments {
    fn add_float(&mut self, value: f64) {
        self.count += 1;
        let distance = value - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (value - self.mean);
    }
}

impl GroupState for Moments {
    type Rule = Spread;

    fn add(&mut self, _: &Spread, value: ValueRef<'_>, _: &mut Vec<u8>) {
        match value {
            ValueRef::Int(value) => self.add_float(value as f64),
            ValueRef::Float(value) => self.add_float(value),
            _ => {}
        }
    }

    fn absorb(&mut self, _: &Spread, other: &Moments) {
        if self.count == 0 {
            *self = *other;
            return;
        }
        if other.count == 0 {
            return;
        }
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let distance = other.mean - self.mean;
        self.count += other.count;
        self.mean += distance * (theirs / self.count as f64);
        self.squares += other.squares + distance * distance * (ours * (theirs / self.count as f64));
    }

    fn result(&self, spread: &Spread) -> Result<Value, FailureReason> {
        let freedom = match (self.count, spread.all) {
            (0, _) | (1, false) => return Ok(Value::Null),
            (count, true) => count,
            (count, false) => count - 1,
        };
        let variance = self.squares / freedom as f64;
        let result = if spread.root {
            variance.sqrt()
        } else {
            variance
        };
        finite(result, "the variance overflows float")
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u64(self.count);
        out.f64(self.mean);
        out.f64(self.squares);
    }

    fn restore(_: &Spread, from: &mut Reader<'_>) -> Result<Moments, DecodeError> {
        Ok(Moments {
            count: from.u64()?,
            mean: from.f64()?,
            squares: from.f64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Moments {
        let mut moments = Moments::default();
        values.iter().for_each(|&value| moments.add_float(value));
        moments
    }

    fn number(value: Result<Value, FailureReason>) -> Option<f64> {
        match value {
            Ok(Value::Float(f)) => Some(f),
            _ => None,
        }
    }

    #[test]
    fn large_values_that_lie_close_together_keep_their_variance() {
        let values = [1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0];
        assert_eq!(number(of(&values).result(&Spread::VARIANCE)), Some(30.0));
        let (mut first, last) = (of(&values[..1]), of(&values[1..]));
        first.absorb(&Spread::VARIANCE, &last);
        assert_eq!(number(first.result(&Spread::VARIANCE)), Some(30.0));
    }

    #[test]
    fn one_value_has_no_sample_variance_and_none_of_its_own() {
        assert_eq!(number(of(&[5.0]).result(&Spread::DEVIATION)), None);
        assert_eq!(
            number(of(&[5.0]).result(&Spread::DEVIATION_OF_ALL)),
            Some(0.0)
        );
        assert_eq!(number(of(&[]).result(&Spread::VARIANCE_OF_ALL)), None);
    }
}
