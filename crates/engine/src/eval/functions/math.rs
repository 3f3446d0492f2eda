//! Functions of numbers.
//!
//! A result is a finite float or a bigint in range, or the row fails. Results have no negative zero: IEEE arithmetic
//! gives one for CEILING(-0.5), and adding zero turns it into zero.

use crate::column::{Column, ColumnBuilder};
use crate::eval::fault::EvalError;
use crate::eval::number::{Number, TWO_POW_63};
use crate::eval::operand::Datum;

use super::call::{Call, Row, RuleResult};

/// A function of one number whose result is a float. `float` returns a value that is not finite if there is no result.
pub(super) fn to_float(call: Call<'_, '_>, float: impl Fn(f64) -> f64) -> Datum {
    let float = |value: f64| float(value) + 0.0;
    let column = match call.args {
        [Datum::Column(Column::Float(array))] => {
            all_finite(array.values().iter().map(|&v| float(v)))
        }
        [Datum::Column(Column::Int(array))] => {
            all_finite(array.values().iter().map(|&v| float(v as f64)))
        }
        _ => None,
    };
    match column {
        Some(floats) => Datum::floats(floats, call.args[0].nulls().cloned()),
        None => call.strict(|row, out| finite(row, float(row.float(0)?), out)),
    }
}

/// A function of one number whose result has the type of its argument. `int` returns `None` on overflow.
pub(super) fn same_type(
    call: Call<'_, '_>,
    int: impl Fn(i64) -> Option<i64>,
    float: impl Fn(f64) -> f64,
) -> Datum {
    let float = |value: f64| float(value) + 0.0;
    let nulls = || call.args[0].nulls().cloned();
    let column = match call.args {
        [Datum::Column(Column::Float(array))] => {
            let floats = all_finite(array.values().iter().map(|&v| float(v)));
            floats.map(|floats| Datum::floats(floats, nulls()))
        }
        [Datum::Column(Column::Int(array))] => {
            let ints: Option<Vec<i64>> = array.values().iter().map(|&v| int(v)).collect();
            ints.map(|ints| Datum::ints(ints, nulls()))
        }
        _ => None,
    };
    if let Some(column) = column {
        return column;
    }
    call.strict(|row, out| match row.number(0)? {
        Number::Int(value) => {
            let result = int(value).ok_or_else(|| EvalError::Overflow {
                expression: row.expression(),
            })?;
            out.push_int(result);
            Ok(())
        }
        Number::Float(value) => finite(row, float(value), out),
    })
}

/// CEILING, FLOOR: a bigint stays as it is.
pub(super) fn to_whole(call: Call<'_, '_>, float: impl Fn(f64) -> f64) -> Datum {
    match call.args {
        [ints @ Datum::Column(Column::Int(_))] => ints.clone(),
        _ => same_type(call, Some, float),
    }
}

/// SIGN of a float.
pub(super) fn sign(float: f64) -> f64 {
    match float == 0.0 {
        true => 0.0,
        false => float.signum(),
    }
}

pub(super) fn all_finite(values: impl Iterator<Item = f64>) -> Option<Vec<f64>> {
    let values: Vec<f64> = values.collect();
    // A loop of its own without an early exit, so that the compiler vectorises it.
    let failed = values
        .iter()
        .fold(false, |failed, value| failed | !value.is_finite());
    (!failed).then_some(values)
}

/// POWER(base, exponent)
pub(super) fn power(call: Call<'_, '_>) -> Datum {
    call.strict(|row, out| {
        let exponent = row.number(1)?;
        match row.number(0)? {
            Number::Float(base) => finite(row, base.powf(exponent.to_float()) + 0.0, out),
            Number::Int(base) => {
                let result = int_power(base, exponent).ok_or_else(|| EvalError::Overflow {
                    expression: row.expression(),
                })?;
                out.push_int(result);
                Ok(())
            }
        }
    })
}

/// Exact for whole exponents that are not negative; otherwise computed as a float and truncated.
fn int_power(base: i64, exponent: Number) -> Option<i64> {
    let whole = match exponent {
        Number::Int(exponent) => u64::try_from(exponent).ok(),
        Number::Float(exponent) => (exponent >= 0.0 && exponent.trunc() == exponent)
            // Beyond the largest u64 every float is even, and so is this substitute.
            .then(|| (exponent as u64).min(u64::MAX - 1)),
    };
    match (base, whole) {
        (_, None) => {
            let result = (base as f64).powf(exponent.to_float());
            (-TWO_POW_63..TWO_POW_63)
                .contains(&result)
                .then_some(result as i64)
        }
        (0 | 1, Some(exponent)) => Some(if exponent == 0 { 1 } else { base }),
        (-1, Some(exponent)) => Some(if exponent % 2 == 0 { 1 } else { -1 }),
        (_, Some(exponent)) => base.checked_pow(u32::try_from(exponent).ok()?),
    }
}

/// Appends a finite float, or fails.
pub(super) fn finite(row: Row<'_>, result: f64, out: &mut ColumnBuilder) -> RuleResult {
    if result.is_finite() {
        out.push_float(result);
        return Ok(());
    }
    Err(match row.function() {
        "SQRT" => row.wrong_value(0, "a negative number has no square root"),
        _ => EvalError::NotFinite {
            expression: row.expression(),
        },
    })
}
