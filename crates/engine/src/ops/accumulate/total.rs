//! The sum and count of one group, for SUM and AVG.

use highwater_codec::{DecodeError, Reader, Writer};

use super::{FailureReason, finite};
use crate::value::Value;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Total {
    ints: i128,
    floats: f64,
    count: u64,
    any_float: bool,
}

impl Total {
    pub(crate) fn of_ints(sum: i64, count: u32) -> Total {
        Total::of(sum.into(), None, count.into())
    }

    pub(crate) fn of_floats(sum: f64, count: u32) -> Total {
        match count {
            0 => Total::default(),
            count => Total::of(0, Some(sum), count.into()),
        }
    }

    /// The sum and the number of values, if none of them is a float.
    pub(crate) fn as_ints(&self) -> Option<(i64, u32)> {
        let (sum, count) = (self.ints.try_into().ok()?, self.count.try_into().ok()?);
        (*self == Total::of_ints(sum, count)).then_some((sum, count))
    }

    /// The sum and the number of values, if all of them are floats.
    pub(crate) fn as_floats(&self) -> Option<(f64, u32)> {
        let (sum, count) = (self.floats, self.count.try_into().ok()?);
        (*self == Total::of_floats(sum, count)).then_some((sum, count))
    }

    #[inline]
    pub(crate) fn add_int(&mut self, value: i64) {
        self.ints += i128::from(value);
        self.count += 1;
    }

    #[inline]
    pub(crate) fn add_float(&mut self, value: f64) {
        self.floats += value;
        self.count += 1;
        self.any_float = true;
    }

    pub(crate) fn add(&mut self, other: &Total) {
        self.ints += other.ints;
        self.floats += other.floats;
        self.count += other.count;
        self.any_float |= other.any_float;
    }

    /// `count` numbers with the sum `ints` or, if there are floats among them, `float`.
    pub(crate) fn of(ints: i128, float: Option<f64>, count: u64) -> Total {
        Total {
            ints: if float.is_some() { 0 } else { ints },
            floats: float.unwrap_or(0.0),
            count,
            any_float: float.is_some(),
        }
    }

    fn float(&self) -> f64 {
        // Without this, a negative zero total would lose its sign to the empty integer part.
        if self.ints == 0 {
            self.floats
        } else {
            self.ints as f64 + self.floats
        }
    }

    pub(crate) fn sum(&self) -> Result<Value, FailureReason> {
        match (self.count, self.any_float) {
            (0, _) => Ok(Value::Null),
            (_, false) => i64::try_from(self.ints)
                .map(Value::Int)
                .map_err(|_| "SUM overflows bigint".into()),
            (_, true) => finite(self.float(), "SUM overflows float"),
        }
    }

    pub(crate) fn avg(&self) -> Result<Value, FailureReason> {
        match self.count {
            0 => Ok(Value::Null),
            count => finite(self.float() / count as f64, "AVG overflows float"),
        }
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        out.i128(self.ints);
        out.f64(self.floats);
        out.u64(self.count);
        out.u8(self.any_float.into());
    }

    pub(crate) fn restore(from: &mut Reader<'_>) -> Result<Total, DecodeError> {
        Ok(Total {
            ints: from.i128()?,
            floats: from.f64()?,
            count: from.u64()?,
            any_float: from.u8()? != 0,
        })
    }
}
