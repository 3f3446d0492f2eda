//! ROUND: half away from zero, on the printed digits.
//!
//! 123.9995 is stored as a binary fraction slightly below it, so rounding the stored value to three digits would give
//! 123.999. ROUND uses the shortest decimal that parses to the same float, which ends in a 5. Its digits fit a 64-bit
//! integer, so rounding is exact, and the result is the float nearest to the rounded decimal.
//!
//! Most values are not near half a step. For those a multiplication finds the nearest step, with a known error.

use crate::column::Column;
use crate::eval::fault::EvalError;
use crate::eval::number::Number;
use crate::eval::operand::{Datum, NumericOperand, Operand};

use super::call::Call;
use super::math::{all_finite, finite};

/// Powers of ten that a float holds exactly.
const POW10: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
/// More places on either side of the point change nothing.
const PLACES_MAX: i64 = 400;

/// ROUND(number, places)
pub(super) fn round(call: Call<'_, '_>) -> Datum {
    if let [Datum::Column(Column::Float(array)), places] = call.args
        && let Some(NumericOperand::Ints(Operand::One(places))) = places.numbers()
    {
        let values = array.values().iter();
        if let Some(rounded) = all_finite(values.map(|&float| round_float(float, places))) {
            return Datum::floats(rounded, call.args[0].nulls().cloned());
        }
    }
    call.strict(|row, out| {
        let places = row.integer(1)?;
        match row.number(0)? {
            Number::Float(float) => finite(row, round_float(float, places), out),
            Number::Int(int) => {
                let rounded = round_int(int, places).ok_or_else(|| EvalError::Overflow {
                    expression: row.expression(),
                })?;
                out.push_int(rounded);
                Ok(())
            }
        }
    })
}

/// `None` on overflow.
fn round_int(int: i64, places: i64) -> Option<i64> {
    if places >= 0 {
        return Some(int);
    }
    // Half of 10^20 is more than any bigint.
    let Some(step) = u32::try_from(places.unsigned_abs())
        .ok()
        .filter(|&digits| digits < 20)
        .map(|digits| 10_i128.pow(digits))
    else {
        return Some(0);
    };
    let int = i128::from(int);
    let rounded = (int + step / 2 * int.signum()) / step * step;
    i64::try_from(rounded).ok()
}

/// Infinite on overflow.
#[inline]
fn round_float(float: f64, places: i64) -> f64 {
    if let Some(&scale) = usize::try_from(places)
        .ok()
        .and_then(|places| POW10.get(places))
    {
        let scaled = float * scale;
        let size = scaled.abs();
        let whole = size.trunc();
        // The decimal is off the float by half a unit in the last place, and the product by another half.
        let error = size * f64::EPSILON;
        let from_half = (size - whole - 0.5).abs();
        if size < 9e15 && from_half > error {
            let steps = whole + f64::from(u8::from(size - whole > 0.5));
            // Two exact floats: their quotient is the one nearest to the decimal.
            return (steps / scale).copysign(float) + 0.0;
        }
    }
    round_digits(float, places)
}

fn round_digits(float: f64, places: i64) -> f64 {
    if float == 0.0 || !float.is_finite() {
        return float + 0.0;
    }
    let places = places.clamp(-PLACES_MAX, PLACES_MAX) as i32;
    let (digits, exponent) = decimal(float.abs());
    // The number of digits to drop.
    let Ok(dropped @ 1..) = u32::try_from(-exponent - places) else {
        return float;
    };
    if dropped > 18 {
        return 0.0;
    }
    let step = 10_u64.pow(dropped);
    let steps = digits / step + u64::from(digits % step >= step / 2);
    let scale = usize::try_from(places)
        .ok()
        .and_then(|places| POW10.get(places));
    let rounded = match scale {
        Some(scale) if steps < 1 << 53 => steps as f64 / scale,
        _ => format!("{steps}e{}", -places).parse().unwrap_or(f64::NAN),
    };
    rounded.copysign(float) + 0.0
}

/// The shortest decimal of a positive float, as whole digits and a power of ten.
fn decimal(float: f64) -> (u64, i32) {
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(float);
    let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
    let fraction = mantissa
        .split_once('.')
        .map_or("", |(_, fraction)| fraction);
    let digits = mantissa
        .bytes()
        .filter(u8::is_ascii_digit)
        .fold(0, |digits, byte| digits * 10 + u64::from(byte - b'0'));
    let power: i32 = power.parse().unwrap_or(0);
    (digits, power - fraction.len() as i32)
}
