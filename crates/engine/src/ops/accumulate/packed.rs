//! Arguments of aggregates that need more than a value: arrays of the event's time, the value and its ranking keys.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use highwater_query::plan::Aggregate;

use super::Conversion;
use crate::chunk::Chunk;
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, EvalError, Faults};
use crate::lazy::LazyColumn;
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

/// Packs time, value and ranking keys; NULL for events without a rank. The values stay in their columns until they are
/// read: of most events a ranking needs the keys alone.
pub(super) fn ranked(
    spec: &Aggregate,
    value: Option<&Column>,
    chunk: &Chunk,
    faults: &mut Faults,
) -> Column {
    let rows = chunk.rows();
    let keys: Vec<Column> =
        eval::evaluate_all(spec.order.iter().map(|key| &key.expr), chunk, faults);
    let mut columns = Vec::with_capacity(2 + keys.len());
    columns.push(Column::from_times(chunk.times.clone()));
    columns.push(value.cloned().unwrap_or(Column::Null(rows)));
    let mut unranked = Vec::new();
    for (key, order) in keys.into_iter().zip(&spec.order) {
        let conversion = Conversion::of_ranked(order.as_text, spec);
        columns.push(rank_keys(key, conversion, |row, reason| {
            faults.add(row, order.expr.span, reason);
            unranked.resize(rows, false);
            unranked[row] = true;
        }));
    }
    let present =
        (!unranked.is_empty()).then(|| BooleanBuffer::collect_bool(rows, |row| !unranked[row]));
    Column::Lazy(LazyColumn::arrays(columns, present, rows))
}

fn rank_keys(
    column: Column,
    conversion: Conversion,
    mut fail: impl FnMut(usize, EvalError),
) -> Column {
    match &column {
        Column::Null(_) | Column::Int(_) | Column::Float(_) | Column::Time(_) => return column,
        Column::Text(_) if conversion == Conversion::Text => return column,
        _ => {}
    }
    let mut keys = ColumnBuilder::with_capacity(column.len());
    for row in 0..column.len() {
        match rank_key(column.get(row), conversion) {
            Ok(key) => keys.push(key),
            Err(reason) => {
                keys.push_null();
                fail(row, reason);
            }
        }
    }
    keys.finish()
}

/// Text counts as what it spells, unless the query cast it; a strict job takes numbers and times only.
fn rank_key(value: ValueRef<'_>, conversion: Conversion) -> Result<ValueRef<'_>, EvalError> {
    Ok(match (value, conversion) {
        (ValueRef::Bit(b), _) => ValueRef::Int(b.into()),
        (ValueRef::Text(text), Conversion::Read) => eval::read_text(text),
        (ValueRef::Text(text), Conversion::Sum | Conversion::Strict) => match eval::read_text(text)
        {
            ValueRef::Text(_) => eval::to_number(value)?,
            read => read,
        },
        (ValueRef::Record(_) | ValueRef::Array(_), _) => {
            return Err(EvalError::Unordered {
                of: value.type_name(),
            });
        }
        _ => value,
    })
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
