//! CAST and TRY_CAST: every type to every type that can hold it.
//!
//! Blanks around text are ignored for a number or bit, not for a datetime. A float cast to bigint loses its fraction; a
//! bigint cast to float may lose digits, and that is no failure.

use highwater_query::plan::Type;
use highwater_time::Instant;

use crate::column::{Column, ColumnBuilder};
use crate::value::{Value, ValueRef};

use super::fault::{EvalError, display_value};
use super::number::{TWO_POW_63, read_bit, read_float, read_int};
use super::operand::{Datum, KernelContext};
use super::text::write_text;

/// The value of `CAST(of AS to)` in every row; `lenient` is TRY_CAST.
pub(super) fn cast(of: &Datum, to: Type, lenient: bool, context: &mut KernelContext<'_>) -> Datum {
    let apply = |value: ValueRef<'_>| match apply(value, to) {
        Err(_) if lenient => Ok(Value::Null),
        result => result,
    };
    match (of, to) {
        (Datum::Scalar(value), _) => {
            apply(value.view())
                .map(Datum::Scalar)
                .unwrap_or_else(|reason| {
                    context.fail_all(reason);
                    Datum::NULL
                })
        }
        (Datum::Column(Column::Null(_)), _)
        | (Datum::Column(Column::Int(_)), Type::Bigint)
        | (Datum::Column(Column::Float(_)), Type::Float)
        | (Datum::Column(Column::Text(_)), Type::Text)
        | (Datum::Column(Column::Time(_)), Type::Datetime)
        | (Datum::Column(Column::Bit(_)), Type::Bit) => of.clone(),
        (Datum::Column(Column::Int(a)), Type::Float) => {
            let values: Vec<f64> = a.values().iter().map(|&v| v as f64).collect();
            Datum::floats(values, of.nulls().cloned())
        }
        (_, Type::Text) => to_text(of, context),
        _ => context.map(|row| apply(of.get(row))),
    }
}

/// The value of `CAST(value AS to)`.
pub(super) fn apply(value: ValueRef<'_>, to: Type) -> Result<Value, EvalError> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let result = match to {
        Type::Bigint => to_int(value).map(Value::Int),
        Type::Float => to_float(value).map(Value::Float),
        Type::Bit => to_bit(value).map(Value::Bit),
        Type::Datetime => to_time(value).map(Value::Time),
        Type::Text => {
            let mut text = String::new();
            write_text(value, &mut text);
            Some(Value::Text(text.into()))
        }
        Type::Record => matches!(value, ValueRef::Record(_)).then(|| value.to_value()),
        Type::Array => matches!(value, ValueRef::Array(_)).then(|| value.to_value()),
    };
    result.ok_or_else(|| EvalError::Cast {
        value: display_value(value),
        from: value.type_name(),
        to: to.name(),
    })
}

fn to_int(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Bit(b) => Some(b.into()),
        ValueRef::Int(i) => Some(i),
        ValueRef::Float(f) => (-TWO_POW_63..TWO_POW_63).contains(&f).then_some(f as i64),
        ValueRef::Text(t) => read_int(t),
        _ => None,
    }
}

fn to_float(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Bit(b) => Some(f64::from(u8::from(b))),
        ValueRef::Int(i) => Some(i as f64),
        ValueRef::Float(f) => Some(f),
        ValueRef::Text(t) => read_float(t),
        _ => None,
    }
}

fn to_bit(value: ValueRef<'_>) -> Option<bool> {
    match value {
        ValueRef::Bit(b) => Some(b),
        ValueRef::Int(i) => Some(i != 0),
        ValueRef::Float(f) => Some(f != 0.0),
        ValueRef::Text(t) => read_bit(t),
        _ => None,
    }
}

fn to_time(value: ValueRef<'_>) -> Option<Instant> {
    match value {
        ValueRef::Time(t) => Some(t),
        ValueRef::Text(t) => Instant::parse_iso(t.as_bytes()),
        _ => None,
    }
}

/// Every type has a text, so nothing fails here; one buffer is reused for all rows.
fn to_text(of: &Datum, context: &mut KernelContext<'_>) -> Datum {
    let mut builder = ColumnBuilder::with_capacity(context.rows.len());
    let mut text = String::new();
    for row in 0..context.rows.len() {
        let value = of.get(row);
        if value.is_null() || !context.rows.contains(row) {
            builder.push_null();
            continue;
        }
        text.clear();
        write_text(value, &mut text);
        builder.push_text(&text);
    }
    Datum::Column(builder.finish())
}
