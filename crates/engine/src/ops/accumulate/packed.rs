//! Arguments of aggregates that need more than a value: arrays of the event's time, the value and its ranking keys.

use std::sync::Arc;

use highwater_query::plan::Aggregate;
use highwater_time::Instant;

use crate::chunk::Chunk;
use crate::column::Column;
use crate::eval::{self, EvalError, Faults};
use crate::value::{Value, ValueRef};

/// The unpacked argument of one event.
pub(super) struct PackedEvent<'a> {
    pub time: i64,
    pub value: &'a Value,
    pub keys: &'a [Value],
}

/// Packs time and value; NULL for events without a value, if `skip_null`.
pub(super) fn values(value: Option<&Column>, chunk: &Chunk, skip_null: bool) -> Column {
    let pack = |row: usize| {
        let of = value.map_or(Value::Null, |column| column.get(row).to_value());
        if skip_null && value.is_some() && of.is_null() {
            return Value::Null;
        }
        Value::Array([Value::Time(chunk.time(row)), of].into())
    };
    Column::Dynamic(Arc::new((0..chunk.rows()).map(pack).collect()))
}

/// Packs time, value and ranking keys.
pub(super) fn ranked(
    spec: &Aggregate,
    value: Option<&Column>,
    chunk: &Chunk,
    faults: &mut Faults,
) -> Column {
    let keys: Vec<Column> =
        eval::evaluate_all(spec.order.iter().map(|key| &key.expr), chunk, faults);
    let mut pack = |row: usize| {
        let mut parts = Vec::with_capacity(2 + keys.len());
        parts.push(Value::Time(chunk.time(row)));
        parts.push(value.map_or(Value::Null, |column| column.get(row).to_value()));
        for (key, order) in keys.iter().zip(&spec.order) {
            match rank_key(key.get(row)) {
                Ok(key) => parts.push(key),
                Err(reason) => {
                    faults.add(row, order.expr.span, reason);
                    return Value::Null;
                }
            }
        }
        Value::Array(parts.into())
    };
    Column::Dynamic(Arc::new((0..chunk.rows()).map(&mut pack).collect()))
}

/// Numbers and times rank; text counts as what it spells.
fn rank_key(value: ValueRef<'_>) -> Result<Value, EvalError> {
    match value {
        ValueRef::Null | ValueRef::Int(_) | ValueRef::Float(_) | ValueRef::Time(_) => {
            Ok(value.to_value())
        }
        ValueRef::Bit(b) => Ok(Value::Int(b.into())),
        ValueRef::Text(text) => match (eval::to_number(value), Instant::parse_iso(text.as_bytes()))
        {
            (Ok(number), _) => Ok(number.to_value()),
            (_, Some(time)) => Ok(Value::Time(time)),
            (Err(reason), None) => Err(reason),
        },
        ValueRef::Record(_) | ValueRef::Array(_) => Err(EvalError::Unordered {
            of: value.type_name(),
        }),
    }
}

/// Unpacks an argument; `None` for an event that does not count.
pub(super) fn unpack(value: ValueRef<'_>) -> Option<PackedEvent<'_>> {
    let ValueRef::Array(parts) = value else {
        return None;
    };
    match &parts[..] {
        [Value::Time(time), value, keys @ ..] => Some(PackedEvent {
            time: time.ticks(),
            value,
            keys,
        }),
        _ => None,
    }
}
