//! COUNT, SUM and AVG.

use arrow_array::Array;

use super::{Reason, finite};
use crate::codec::{Reader, RestoreError, Writer};
use crate::column::Column;
use crate::value::{Value, ValueRef};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Total {
    ints: i128,
    floats: f64,
    count: u64,
    any_float: bool,
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

    pub fn add(&mut self, other: &Total) {
        self.ints += other.ints;
        self.floats += other.floats;
        self.count += other.count;
        self.any_float |= other.any_float;
    }

    /// `count` numbers that add up to `ints` or, if there are floats among them, to `float`.
    pub fn of(ints: i128, float: Option<f64>, count: u64) -> Total {
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

    pub fn sum(&self) -> Result<Value, Reason> {
        match (self.count, self.any_float) {
            (0, _) => Ok(Value::Null),
            (_, false) => i64::try_from(self.ints)
                .map(Value::Int)
                .map_err(|_| "SUM overflows bigint".into()),
            (_, true) => finite(self.float(), "SUM overflows float"),
        }
    }

    pub fn avg(&self) -> Result<Value, Reason> {
        match self.count {
            0 => Ok(Value::Null),
            count => finite(self.float() / count as f64, "AVG overflows float"),
        }
    }

    pub fn snapshot(&self, out: &mut Writer) {
        out.i128(self.ints);
        out.f64(self.floats);
        out.u64(self.count);
        out.u8(self.any_float.into());
    }

    pub fn restore(from: &mut Reader<'_>) -> Result<Total, RestoreError> {
        Ok(Total {
            ints: from.i128()?,
            floats: from.f64()?,
            count: from.u64()?,
            any_float: from.u8()? != 0,
        })
    }
}

pub(super) fn count(counts: &mut [i64], slots: &[u32], start: usize, argument: Option<&Column>) {
    let nulls = match argument {
        None => None,
        Some(Column::Int(a) | Column::Time(a)) if a.null_count() == 0 => None,
        Some(Column::Float(a)) if a.null_count() == 0 => None,
        Some(column) => Some(column),
    };
    let Some(column) = nulls else {
        slots.iter().for_each(|&slot| counts[slot as usize] += 1);
        return;
    };
    for (row, &slot) in slots.iter().enumerate() {
        counts[slot as usize] += i64::from(!column.is_null(start + row));
    }
}

pub(super) fn update(totals: &mut [Total], slots: &[u32], start: usize, column: &Column) {
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
