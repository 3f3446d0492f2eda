//! Case folding for comparisons that ignore case: upper case, one character for one character.
//!
//! ASCII, which is nearly all text, is folded as bytes; a column of ASCII alone in one pass.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{Array, StringArray};
use arrow_buffer::Buffer;
use highwater_query::upper;

use crate::column::{Column, ColumnBuilder};
use crate::value::{Record, Value, ValueRef};

use super::operand::Datum;

pub(super) fn fold_datum(of: Datum) -> Datum {
    match of {
        Datum::Scalar(value) => Datum::Scalar(fold(value.view()).unwrap_or(value)),
        Datum::Column(column) => Datum::Column(folded(&column)),
    }
}

/// A column folded for comparison.
pub(crate) fn folded(column: &Column) -> Column {
    match column {
        Column::Text(texts) => {
            let ascii = recase(texts, |bytes| bytes.make_ascii_uppercase());
            Column::Text(ascii.unwrap_or_else(|| texts.iter().map(|t| t.map(fold_text)).collect()))
        }
        Column::Dynamic(_) | Column::Lazy(_) => {
            let mut builder = ColumnBuilder::with_capacity(column.len());
            for value in (0..column.len()).map(|row| column.get(row)) {
                match fold(value) {
                    Some(folded) => builder.push_owned(folded),
                    None => builder.push(value),
                }
            }
            builder.finish()
        }
        _ => column.clone(),
    }
}

/// Changes the case of a column of ASCII in one pass; `None` for other text.
pub(super) fn recase(texts: &StringArray, ascii: fn(&mut [u8])) -> Option<StringArray> {
    let whole = texts.value_data();
    let (first, last) = (texts.offsets().first(), texts.offsets().last());
    // A slice would copy the whole column.
    if first != 0 || last as usize != whole.len() || !whole.is_ascii() {
        return None;
    }
    let mut bytes = whole.to_vec();
    ascii(&mut bytes);
    let (offsets, nulls) = (texts.offsets().clone(), texts.nulls().cloned());
    StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls).ok()
}

pub(super) fn fold_text(text: &str) -> Cow<'_, str> {
    match text.chars().all(|c| upper(c) == c) {
        true => text.into(),
        false => text.chars().map(upper).collect::<String>().into(),
    }
}

/// `None` where there is nothing to fold.
fn fold(value: ValueRef<'_>) -> Option<Value> {
    match value {
        ValueRef::Text(text) => match fold_text(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(folded) => Some(Value::text(&folded)),
        },
        ValueRef::Array(items) => {
            let fold = |item: &Value| fold(item.view()).unwrap_or_else(|| item.clone());
            Some(Value::Array(items.iter().map(fold).collect()))
        }
        ValueRef::Record(record) => {
            let fold = |value: &Value| fold(value.view()).unwrap_or_else(|| value.clone());
            let fields = record.iter();
            let fields = fields.map(|(name, value)| (name.clone(), fold(value)));
            Some(Value::Record(Arc::new(Record::from_fields(
                fields.collect(),
            ))))
        }
        _ => None,
    }
}
