//! Records and arrays: constructing them, parsing them from text, reading their elements.

use std::iter::once;
use std::sync::Arc;

use highwater_query::plan::Name;

use crate::column::Column;
use crate::eval::operand::{Datum, KernelContext};
use crate::lazy::LazyColumn;
use crate::value::{Record, Value, ValueRef};

use super::call::Call;
use super::json;

/// The contribution of a value to a record.
enum Part {
    Field(Arc<str>),
    /// Its own fields, if it is a record.
    Fields,
}

/// Constructs a record in every row, like an output row: of equal names the leftmost counts.
pub(crate) fn record(names: &[&Name], values: &[Datum], context: &mut KernelContext<'_>) -> Datum {
    let part = |name: &&Name| match name {
        Name::Field(name) => Part::Field(name.as_str().into()),
        Name::Spread | Name::Hidden(_) => Part::Fields,
    };
    let parts: Vec<Part> = names.iter().map(part).collect();
    if let Some(column) = lazy_record(&parts, values, context.rows.len()) {
        return Datum::Column(column);
    }
    let make = |row| {
        let mut record = Record::with_capacity(parts.len());
        for (part, value) in parts.iter().zip(values) {
            match (part, value.get(row)) {
                (Part::Field(name), value) => record.add(once((name.clone(), value.to_value()))),
                (Part::Fields, ValueRef::Record(of)) => {
                    record.add(of.iter().map(|(name, value)| (name.clone(), value.clone())));
                }
                (Part::Fields, _) => {}
            }
        }
        Value::Record(Arc::new(record))
    };
    if values.iter().all(|value| matches!(value, Datum::Scalar(_))) {
        return Datum::Scalar(make(0));
    }
    context.map(|row| Ok(make(row)))
}

/// The records as a column that is put together only when it is looked at, if all records have the same fields, or
/// those of one column.
fn lazy_record(parts: &[Part], values: &[Datum], rows: usize) -> Option<Column> {
    if let ([Part::Fields], [Datum::Column(Column::Lazy(lazy))]) = (parts, values) {
        return lazy.is_records().then(|| Column::Lazy(lazy.clone()));
    }
    let mut names: Vec<Arc<str>> = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::Field(name) if !names.contains(name) => names.push(name.clone()),
            _ => return None,
        }
    }
    if values.iter().all(|value| matches!(value, Datum::Scalar(_))) {
        return None;
    }
    let columns = values.iter().map(|value| value.clone().into_column(rows));
    let lazy = LazyColumn::records(names.into(), columns.collect(), rows);
    Some(Column::Lazy(lazy))
}

/// JSON_PARSE(text): the record of a JSON text; NULL for other values. Never fails.
pub(super) fn json_parse(call: Call<'_, '_>) -> Datum {
    call.strict(|row, out| {
        let parsed = match row.value(0) {
            ValueRef::Text(text) => json::parse(text),
            _ => None,
        };
        match parsed {
            Some(record @ Value::Record(_)) => out.push_owned(record),
            _ => out.push_null(),
        }
        Ok(())
    })
}

/// GetType(value)
pub(super) fn get_type(call: Call<'_, '_>) -> Datum {
    call.strict(|row, out| {
        out.push_text(row.value(0).type_name());
        Ok(())
    })
}

/// GetArrayElement(array, index): counted from 0, NULL if there is none.
pub(super) fn get_array_element(call: Call<'_, '_>) -> Datum {
    call.strict(|row, out| {
        let ValueRef::Array(items) = row.value(0) else {
            return Err(row.wrong_type(0, "array"));
        };
        let index = usize::try_from(row.integer(1)?);
        let item = index.ok().and_then(|index| items.get(index));
        out.push(item.map_or(ValueRef::Null, Value::view));
        Ok(())
    })
}

/// GetArrayLength(array)
pub(super) fn get_array_length(call: Call<'_, '_>) -> Datum {
    call.strict(|row, out| {
        let ValueRef::Array(items) = row.value(0) else {
            return Err(row.wrong_type(0, "array"));
        };
        out.push_int(items.len() as i64);
        Ok(())
    })
}

/// GetRecordPropertyValue(record, name): NULL if there is none.
pub(super) fn get_record_property_value(call: Call<'_, '_>) -> Datum {
    let mut name = String::new();
    call.strict(|row, out| {
        let ValueRef::Record(record) = row.value(0) else {
            return Err(row.wrong_type(0, "record"));
        };
        let value = record.get(row.text(1, &mut name)?);
        out.push(value.map_or(ValueRef::Null, Value::view));
        Ok(())
    })
}
