//! Records and arrays: making them, reading them out of text, looking into them.

use std::sync::Arc;

use crate::eval::datum::{Datum, Site};
use crate::value::{Record, Value, ValueRef};

use super::args::Call;
use super::json;

/// A record of named values, in every row.
pub fn record(names: &[Arc<str>], values: &[Datum], site: &mut Site<'_>) -> Datum {
    let make = |row| {
        let values = values.iter().map(|value| value.get(row).to_value());
        Value::Record(Arc::new(Record::from_fields(
            names.iter().cloned().zip(values).collect(),
        )))
    };
    if values.iter().all(|value| matches!(value, Datum::Scalar(_))) {
        return Datum::Scalar(make(0));
    }
    site.map(|row| Ok(make(row)))
}

/// JSON_PARSE(text): the record that a text spells. NULL for all else, and never a failure.
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

/// GetArrayElement(array, index): counted from 0, NULL where there is none.
pub(super) fn get_array_element(call: Call<'_, '_>) -> Datum {
    call.strict(|row, out| {
        let ValueRef::Array(items) = row.value(0) else {
            return Err(row.wrong_type(0, "array"));
        };
        let index = usize::try_from(row.whole(1)?);
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

/// GetRecordPropertyValue(record, name): NULL where there is none.
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
