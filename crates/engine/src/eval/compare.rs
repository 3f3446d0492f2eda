//! The rules of `=` and `<` for any two values, and the order of MIN and MAX.
//!
//! Numbers compare by value, independent of their type; text compares by code point. Text beside a number or a datetime
//! is parsed as one and fails if it is none. Records and arrays are equal when their parts are, and have no
//! order.

use std::cmp::Ordering;

use highwater_query::plan::CompareOp;
use highwater_time::Instant;

use crate::value::{Record, Value, ValueRef};

use super::fault::{EvalError, display_value};
use super::number::{Number, compare_floats, compare_int_float, read_bit, read_float};

/// The order of two values; `None` when NULL is involved.
pub fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Result<Option<Ordering>, EvalError> {
    let ordering = match (a, b) {
        (ValueRef::Null, _) | (_, ValueRef::Null) => return Ok(None),
        (ValueRef::Text(a), ValueRef::Text(b)) => a.cmp(b),
        (ValueRef::Time(a), ValueRef::Time(b)) => a.cmp(&b),
        (ValueRef::Text(a), ValueRef::Time(b)) => read_time(a)?.cmp(&b),
        (ValueRef::Time(a), ValueRef::Text(b)) => a.cmp(&read_time(b)?),
        (ValueRef::Record(_), ValueRef::Record(_)) | (ValueRef::Array(_), ValueRef::Array(_)) => {
            return Err(EvalError::Unordered { of: a.type_name() });
        }
        _ => {
            let incomparable = || EvalError::Incomparable {
                left: a.type_name(),
                right: b.type_name(),
            };
            let left = number_beside(a, b)?.ok_or_else(incomparable)?;
            let right = number_beside(b, a)?.ok_or_else(incomparable)?;
            left.compare(right)
        }
    };
    Ok(Some(ordering))
}

/// The order of MIN, MAX and order keys, which is total: NULL, numbers, times, texts. Texts compare as texts;
/// [`read_text`] reads them.
pub fn rank(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    let kind = |value: ValueRef<'_>| match value {
        ValueRef::Null => 0,
        ValueRef::Bit(_) | ValueRef::Int(_) | ValueRef::Float(_) => 1,
        ValueRef::Time(_) => 2,
        ValueRef::Text(_) => 3,
        ValueRef::Record(_) | ValueRef::Array(_) => 4,
    };
    kind(a).cmp(&kind(b)).then_with(|| {
        let ordering = compare(a, b).ok().flatten();
        ordering.unwrap_or(Ordering::Equal)
    })
}

/// A text as MIN, MAX and order keys take it unless the query cast it: a number if it reads as one, else a datetime if
/// it is ISO 8601, else text.
pub fn read_text(text: &str) -> ValueRef<'_> {
    let number = read_float(text).map(ValueRef::Float);
    let time = || Instant::parse_iso(text.as_bytes()).map(ValueRef::Time);
    number.or_else(time).unwrap_or(ValueRef::Text(text))
}

/// Whether two values are equal under `=`; `None` when NULL is involved.
pub fn equal(a: ValueRef<'_>, b: ValueRef<'_>) -> Result<Option<bool>, EvalError> {
    match (a, b) {
        (ValueRef::Record(_), ValueRef::Record(_)) | (ValueRef::Array(_), ValueRef::Array(_)) => {
            Ok(Some(same(a, b)))
        }
        _ => Ok(compare(a, b)?.map(Ordering::is_eq)),
    }
}

/// Whether two values are identical, without conversion: the equality of grouping keys and of the parts of records and
/// arrays. NULL is identical to NULL.
pub fn same(a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    match (a, b) {
        (ValueRef::Null, ValueRef::Null) => true,
        (ValueRef::Text(a), ValueRef::Text(b)) => a == b,
        (ValueRef::Time(a), ValueRef::Time(b)) => a == b,
        (ValueRef::Record(a), ValueRef::Record(b)) => same_records(a, b),
        (ValueRef::Array(a), ValueRef::Array(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b.iter())
                    .all(|(a, b)| same(a.view(), b.view()))
        }
        _ => match (Number::of(a), Number::of(b)) {
            (Some(a), Some(b)) => a.compare(b).is_eq(),
            _ => false,
        },
    }
}

/// Names are unique within a record, so equal counts and one direction are enough.
fn same_records(a: &Record, b: &Record) -> bool {
    let exact = |name: &str| -> Option<&Value> {
        b.iter()
            .find(|(known, _)| &***known == name)
            .map(|(_, value)| value)
    };
    a.len() == b.len()
        && a.iter()
            .all(|(name, value)| exact(name).is_some_and(|other| same(value.view(), other.view())))
}

/// Whether a comparison holds; false when NULL is involved.
#[inline]
pub(super) fn holds(op: CompareOp, a: ValueRef<'_>, b: ValueRef<'_>) -> Result<bool, EvalError> {
    // Numbers first: most dynamic columns mix bigint and float.
    let ordering = match (a, b) {
        (ValueRef::Int(a), ValueRef::Int(b)) => a.cmp(&b),
        (ValueRef::Float(a), ValueRef::Float(b)) => compare_floats(a, b),
        (ValueRef::Int(a), ValueRef::Float(b)) => compare_int_float(a, b),
        (ValueRef::Float(a), ValueRef::Int(b)) => compare_int_float(b, a).reverse(),
        _ => return holds_for_others(op, a, b),
    };
    Ok(accepts(op, ordering))
}

fn holds_for_others(op: CompareOp, a: ValueRef<'_>, b: ValueRef<'_>) -> Result<bool, EvalError> {
    Ok(match op {
        CompareOp::Eq => equal(a, b)?.unwrap_or(false),
        CompareOp::Ne => equal(a, b)?.is_some_and(|equal| !equal),
        _ => compare(a, b)?.is_some_and(|ordering| accepts(op, ordering)),
    })
}

/// Whether an operator holds for two values in that order.
#[inline]
pub(super) fn accepts(op: CompareOp, ordering: Ordering) -> bool {
    match op {
        CompareOp::Eq => ordering.is_eq(),
        CompareOp::Ne => ordering.is_ne(),
        CompareOp::Lt => ordering.is_lt(),
        CompareOp::Le => ordering.is_le(),
        CompareOp::Gt => ordering.is_gt(),
        CompareOp::Ge => ordering.is_ge(),
    }
}

/// A value as a number, given what it is compared with: text counts if a number stands on the other side, and may say
/// `true` or `false` beside a bit.
fn number_beside(value: ValueRef<'_>, other: ValueRef<'_>) -> Result<Option<Number>, EvalError> {
    let ValueRef::Text(text) = value else {
        return Ok(Number::of(value));
    };
    let read = match other {
        ValueRef::Bit(_) => read_bit(text)
            .map(|b| Number::Int(b.into()))
            .or_else(|| Number::read(text)),
        ValueRef::Int(_) | ValueRef::Float(_) => Number::read(text),
        _ => return Ok(None),
    };
    read.map(Some).ok_or_else(|| EvalError::NotANumber {
        text: display_value(value),
    })
}

fn read_time(text: &str) -> Result<Instant, EvalError> {
    Instant::parse_iso(text.as_bytes()).ok_or_else(|| EvalError::NotATime {
        text: display_value(ValueRef::Text(text)),
    })
}
