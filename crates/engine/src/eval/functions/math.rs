//! Functions of numbers.
//!
//! A result is a finite float or a bigint in range, or the row fails. Negative zero, which IEEE arithmetic makes of
//! CEILING(-0.5), is shown to nobody: it is turned into zero.

use highwater_query::functions::Function;

use crate::column::{Column, ColumnBuilder};
use crate::eval::datum::Datum;
use crate::eval::fault::EvalError;
use crate::eval::number::{Number, TWO_POW_63};

use super::args::{Call, Outcome, Row, float_column, int_column};

/// ABS, CEILING, EXP, FLOOR, SIGN, SQUARE, SQRT
pub(super) fn of_one(call: Call<'_, '_>) -> Datum {
    if let [Datum::Column(column)] = call.args
        && let Some(result) = of_column(call.function, column, &call.args[0])
    {
        return result;
    }
    let function = call.function;
    call.strict(|row, out| match row.number(0)? {
        Number::Int(int) => match int_of(function, int) {
            Some(result) => {
                out.push_int(result);
                Ok(())
            }
            None if function == Function::Abs => Err(EvalError::Overflow {
                expression: row.expression(),
            }),
            None => finite(row, float_of(function, int as f64), out),
        },
        Number::Float(float) => finite(row, float_of(function, float), out),
    })
}

/// The same over a buffer, if no row can have failed.
fn of_column(function: Function, column: &Column, arg: &Datum) -> Option<Datum> {
    let nulls = || arg.nulls().cloned();
    // One loop per function: a match inside would be decided for every row.
    macro_rules! floats {
        ($values:expr) => {
            match function {
                Function::Abs => all_finite($values.map(|v| float_of(Function::Abs, v))),
                Function::Ceiling => all_finite($values.map(|v| float_of(Function::Ceiling, v))),
                Function::Floor => all_finite($values.map(|v| float_of(Function::Floor, v))),
                Function::Sqrt => all_finite($values.map(|v| float_of(Function::Sqrt, v))),
                _ => all_finite($values.map(|v| float_of(function, v))),
            }
        };
    }
    match column {
        Column::Float(array) => {
            floats!(array.values().iter().copied()).map(|floats| float_column(floats, nulls()))
        }
        Column::Int(array) => match function {
            Function::Ceiling | Function::Floor => Some(arg.clone()),
            Function::Abs | Function::Sign => {
                let results = array.values().iter().map(|&int| int_of(function, int));
                let results: Option<Vec<i64>> = results.collect();
                results.map(|ints| int_column(ints, nulls()))
            }
            _ => {
                let floats = floats!(array.values().iter().map(|&int| int as f64));
                floats.map(|floats| float_column(floats, nulls()))
            }
        },
        _ => None,
    }
}

pub(super) fn all_finite(values: impl Iterator<Item = f64>) -> Option<Vec<f64>> {
    let values: Vec<f64> = values.collect();
    // Looked at in a loop of its own and without a way out, which the compiler vectorises.
    let failed = values
        .iter()
        .fold(false, |failed, value| failed | !value.is_finite());
    (!failed).then_some(values)
}

/// For functions that keep the type of their argument; `None` where there is no bigint to give.
#[inline]
fn int_of(function: Function, int: i64) -> Option<i64> {
    match function {
        Function::Abs => int.checked_abs(),
        Function::Ceiling | Function::Floor => Some(int),
        Function::Sign => Some(int.signum()),
        _ => None,
    }
}

/// Not finite where there is no result.
#[inline]
fn float_of(function: Function, float: f64) -> f64 {
    let result = match function {
        Function::Abs => float.abs(),
        Function::Ceiling => float.ceil(),
        Function::Floor => float.floor(),
        Function::Sign if float == 0.0 => 0.0,
        Function::Sign => float.signum(),
        Function::Square => float * float,
        Function::Sqrt => float.sqrt(),
        Function::Exp => float.exp(),
        _ => f64::NAN,
    };
    // Adding zero changes nothing but the sign of a negative zero.
    result + 0.0
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

/// Exact for whole exponents that are not negative; else computed as a float, and its fraction is cut off.
fn int_power(base: i64, exponent: Number) -> Option<i64> {
    let whole = match exponent {
        Number::Int(exponent) => u64::try_from(exponent).ok(),
        Number::Float(exponent) => (exponent >= 0.0 && exponent.trunc() == exponent)
            // Beyond the largest u64 every float is even, and so is this stand-in for it.
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

/// Leaves a float in the column that is built if it is one.
pub(super) fn finite(row: Row<'_>, result: f64, out: &mut ColumnBuilder) -> Outcome {
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
