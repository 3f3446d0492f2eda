//! The rules of `+ - * / % & | ^ ~` for any values.
//!
//! NULL gives NULL, before anything can fail. Bit acts as 0 and 1; two bigints give a bigint and overflow is a failure;
//! anything else is computed in float, and a result that is no finite float is a failure. Text is a number wherever one
//! is expected, and `+` of two texts joins them.

use highwater_query::plan::{BinaryOp, UnaryOp};

use crate::value::{Value, ValueRef};

use super::fault::{EvalError, display_value};
use super::number::{Number, read_float};

/// The value of `a op b`.
#[inline]
pub(super) fn apply(op: BinaryOp, a: ValueRef<'_>, b: ValueRef<'_>) -> Result<Value, EvalError> {
    // Numbers first: most dynamic columns mix bigint and float.
    match (a, b) {
        (ValueRef::Int(x), ValueRef::Int(y)) => ints(op, x, y),
        (ValueRef::Float(x), ValueRef::Float(y)) if !is_bitwise(op) => floats(op, x, y),
        (ValueRef::Float(x), ValueRef::Int(y)) if !is_bitwise(op) => floats(op, x, y as f64),
        (ValueRef::Int(x), ValueRef::Float(y)) if !is_bitwise(op) => floats(op, x as f64, y),
        _ => apply_to_others(op, a, b),
    }
}

fn apply_to_others(op: BinaryOp, a: ValueRef<'_>, b: ValueRef<'_>) -> Result<Value, EvalError> {
    match (op, a, b) {
        (_, ValueRef::Null, _) | (_, _, ValueRef::Null) => Ok(Value::Null),
        _ if is_bitwise(op) => bitwise(op, a, b),
        (BinaryOp::Add, ValueRef::Text(a), ValueRef::Text(b)) => {
            Ok(Value::Text([a, b].concat().into()))
        }
        _ => {
            if !takes_part(a) || !takes_part(b) {
                let (left, right) = (a.type_name(), b.type_name());
                return Err(EvalError::Operands {
                    op: symbol(op),
                    left,
                    right,
                });
            }
            match (number(a)?, number(b)?) {
                (Number::Int(x), Number::Int(y)) => ints(op, x, y),
                (x, y) => floats(op, x.to_float(), y.to_float()),
            }
        }
    }
}

/// The value of `op a`.
pub(super) fn apply_unary(op: UnaryOp, a: ValueRef<'_>) -> Result<Value, EvalError> {
    if a.is_null() {
        return Ok(Value::Null);
    }
    if op == UnaryOp::BitNot {
        return match a {
            ValueRef::Bit(b) => Ok(Value::Bit(!b)),
            ValueRef::Int(i) => Ok(Value::Int(!i)),
            _ => Err(EvalError::NotBits {
                op: "~",
                of: a.type_name(),
            }),
        };
    }
    let op = if op == UnaryOp::Minus { "-" } else { "+" };
    if !takes_part(a) {
        return Err(EvalError::Operand {
            op,
            of: a.type_name(),
        });
    }
    match (op, number(a)?) {
        ("-", Number::Int(i)) => {
            i.checked_neg()
                .map(Value::Int)
                .ok_or_else(|| EvalError::Overflow {
                    expression: format!("-({i})"),
                })
        }
        ("-", Number::Float(f)) => Ok(Value::Float(-f)),
        (_, Number::Int(i)) => Ok(Value::Int(i)),
        (_, Number::Float(f)) => Ok(Value::Float(f)),
    }
}

/// A value where a number is expected: numbers stay as they are, a bit becomes 0 or 1, text is read as a float, and
/// NULL stays NULL.
pub fn to_number(value: ValueRef<'_>) -> Result<ValueRef<'_>, EvalError> {
    match value {
        ValueRef::Null => Ok(value),
        _ if !takes_part(value) => Err(EvalError::NotNumeric {
            of: value.type_name(),
        }),
        _ => Ok(match number(value)? {
            Number::Int(i) => ValueRef::Int(i),
            Number::Float(f) => ValueRef::Float(f),
        }),
    }
}

pub(super) fn symbol(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Subtract => "-",
        BinaryOp::Multiply => "*",
        BinaryOp::Divide => "/",
        BinaryOp::Modulo => "%",
        BinaryOp::BitAnd => "&",
        BinaryOp::BitOr => "|",
        BinaryOp::BitXor => "^",
    }
}

/// The result of two bigints, or `None` on overflow and division by zero.
#[inline]
pub(super) fn int_result(op: BinaryOp, x: i64, y: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Subtract => x.checked_sub(y),
        BinaryOp::Multiply => x.checked_mul(y),
        BinaryOp::Divide => x.checked_div(y),
        // The remainder by -1 is 0 also where the quotient would overflow.
        BinaryOp::Modulo => (y != 0).then(|| x.wrapping_rem(y)),
        BinaryOp::BitAnd => Some(x & y),
        BinaryOp::BitOr => Some(x | y),
        BinaryOp::BitXor => Some(x ^ y),
    }
}

/// The result of two floats; not finite if there is none.
#[inline]
pub(super) fn float_result(op: BinaryOp, x: f64, y: f64) -> f64 {
    match op {
        BinaryOp::Add => x + y,
        BinaryOp::Subtract => x - y,
        BinaryOp::Multiply => x * y,
        BinaryOp::Divide => x / y,
        BinaryOp::Modulo => x % y,
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor => f64::NAN,
    }
}

fn ints(op: BinaryOp, x: i64, y: i64) -> Result<Value, EvalError> {
    int_result(op, x, y).map(Value::Int).ok_or_else(|| {
        let expression = expression(op, ValueRef::Int(x), ValueRef::Int(y));
        match y {
            0 if divides(op) => EvalError::DivisionByZero { expression },
            _ => EvalError::Overflow { expression },
        }
    })
}

fn floats(op: BinaryOp, x: f64, y: f64) -> Result<Value, EvalError> {
    let result = float_result(op, x, y);
    if result.is_finite() {
        return Ok(Value::Float(result));
    }
    let expression = expression(op, ValueRef::Float(x), ValueRef::Float(y));
    Err(match y == 0.0 && divides(op) {
        true => EvalError::DivisionByZero { expression },
        false => EvalError::NotFinite { expression },
    })
}

fn bitwise(op: BinaryOp, a: ValueRef<'_>, b: ValueRef<'_>) -> Result<Value, EvalError> {
    let bits = |value: ValueRef<'_>| match value {
        ValueRef::Bit(b) => Ok(i64::from(b)),
        ValueRef::Int(i) => Ok(i),
        _ => Err(EvalError::NotBits {
            op: symbol(op),
            of: value.type_name(),
        }),
    };
    let result = int_result(op, bits(a)?, bits(b)?).unwrap_or_default();
    Ok(match (a, b) {
        (ValueRef::Bit(_), ValueRef::Bit(_)) => Value::Bit(result != 0),
        _ => Value::Int(result),
    })
}

pub(super) fn is_bitwise(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor)
}

fn divides(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Divide | BinaryOp::Modulo)
}

fn expression(op: BinaryOp, x: ValueRef<'_>, y: ValueRef<'_>) -> String {
    format!("{} {} {}", display_value(x), symbol(op), display_value(y))
}

fn takes_part(value: ValueRef<'_>) -> bool {
    matches!(
        value,
        ValueRef::Bit(_) | ValueRef::Int(_) | ValueRef::Float(_) | ValueRef::Text(_)
    )
}

/// A value that [`takes_part`], as a number. Text becomes a float even where it spells a whole number.
fn number(value: ValueRef<'_>) -> Result<Number, EvalError> {
    let number = match value {
        ValueRef::Text(text) => read_float(text).map(Number::Float),
        _ => Number::of(value),
    };
    number.ok_or_else(|| EvalError::NotANumber {
        text: display_value(value),
    })
}
