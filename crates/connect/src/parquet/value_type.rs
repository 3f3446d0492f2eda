//! The common type of a set of values, and the values as an array of that type.
//!
//! Integers and floats have floats in common, as long as no integer loses digits. Values of unrelated types have text
//! in common, nested values as JSON text.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, ListArray, StructArray, TimestampNanosecondArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, TimeUnit};
use highwater_engine::{Value, ValueRef, eval};

use super::column::unix_nanos;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueType {
    /// Only NULLs so far.
    Null,
    Bit,
    /// `wide` if some have more digits than a float.
    Int {
        wide: bool,
    },
    Float,
    /// Within the range of nanoseconds since 1970.
    Time,
    Text,
    List(Box<ValueType>),
    Struct(Vec<(Arc<str>, ValueType)>),
}

/// Floats represent every integer up to this one.
const EXACT_MAX: u64 = 1 << 53;

impl ValueType {
    pub(super) fn of(value: ValueRef<'_>) -> ValueType {
        match value {
            ValueRef::Null => ValueType::Null,
            ValueRef::Bit(_) => ValueType::Bit,
            ValueRef::Int(value) => ValueType::Int {
                wide: value.unsigned_abs() > EXACT_MAX,
            },
            ValueRef::Float(_) => ValueType::Float,
            ValueRef::Time(_) if unix_nanos(value).is_some() => ValueType::Time,
            ValueRef::Time(_) | ValueRef::Text(_) => ValueType::Text,
            ValueRef::Array(values) => {
                let kinds = values.iter().map(|value| ValueType::of(value.view()));
                ValueType::List(Box::new(kinds.fold(ValueType::Null, ValueType::join)))
            }
            // Parquet has no records without fields.
            ValueRef::Record(record) if record.is_empty() => ValueType::Text,
            ValueRef::Record(record) => ValueType::Struct(
                record
                    .iter()
                    .map(|(name, value)| (name.clone(), ValueType::of(value.view())))
                    .collect(),
            ),
        }
    }

    /// The common kind of both.
    pub(super) fn join(self, other: ValueType) -> ValueType {
        match (self, other) {
            (ValueType::Null, kind) | (kind, ValueType::Null) => kind,
            (ValueType::Int { wide: a }, ValueType::Int { wide: b }) => {
                ValueType::Int { wide: a || b }
            }
            (ValueType::Int { wide: false }, ValueType::Float)
            | (ValueType::Float, ValueType::Int { wide: false }) => ValueType::Float,
            (ValueType::List(a), ValueType::List(b)) => ValueType::List(Box::new(a.join(*b))),
            (ValueType::Struct(mut fields), ValueType::Struct(others)) => {
                for (name, kind) in others {
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, own)) => *own = own.clone().join(kind),
                        None => fields.push((name, kind)),
                    }
                }
                ValueType::Struct(fields)
            }
            (a, b) if a == b => a,
            _ => ValueType::Text,
        }
    }

    pub(super) fn data_type(&self) -> DataType {
        match self {
            ValueType::Null | ValueType::Text => DataType::Utf8,
            ValueType::Bit => DataType::Boolean,
            ValueType::Int { .. } => DataType::Int64,
            ValueType::Float => DataType::Float64,
            ValueType::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            ValueType::List(items) => DataType::List(Arc::new(item_field(items))),
            ValueType::Struct(fields) => DataType::Struct(struct_fields(fields)),
        }
    }

    pub(super) fn array(&self, values: &[ValueRef<'_>]) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            ValueType::Null | ValueType::Text => {
                let mut builder = StringBuilder::new();
                values
                    .iter()
                    .for_each(|value| builder.append_option(text(*value)));
                Arc::new(builder.finish())
            }
            ValueType::Bit => {
                let mut builder = BooleanBuilder::new();
                values.iter().for_each(|value| {
                    builder.append_option(match value {
                        ValueRef::Bit(value) => Some(*value),
                        _ => None,
                    });
                });
                Arc::new(builder.finish())
            }
            ValueType::Int { .. } => {
                let mut builder = Int64Builder::new();
                values.iter().for_each(|value| {
                    builder.append_option(match value {
                        ValueRef::Int(value) => Some(*value),
                        _ => None,
                    });
                });
                Arc::new(builder.finish())
            }
            ValueType::Float => {
                let mut builder = Float64Builder::new();
                values.iter().for_each(|value| {
                    builder.append_option(match value {
                        ValueRef::Float(value) => Some(*value),
                        ValueRef::Int(value) => Some(*value as f64),
                        _ => None,
                    });
                });
                Arc::new(builder.finish())
            }
            ValueType::Time => {
                let nanos: TimestampNanosecondArray =
                    values.iter().map(|value| unix_nanos(*value)).collect();
                Arc::new(nanos.with_timezone("UTC"))
            }
            ValueType::List(items) => list(items, values)?,
            ValueType::Struct(fields) => structs(fields, values)?,
        })
    }
}

fn item_field(items: &ValueType) -> Field {
    Field::new("item", items.data_type(), true)
}

fn struct_fields(fields: &[(Arc<str>, ValueType)]) -> Fields {
    let field = |(name, kind): &(Arc<str>, ValueType)| Field::new(&**name, kind.data_type(), true);
    fields.iter().map(field).collect()
}

fn list(items: &ValueType, values: &[ValueRef<'_>]) -> Result<ArrayRef, ArrowError> {
    let mut inner = Vec::new();
    let mut lengths = Vec::with_capacity(values.len());
    let mut valid = Vec::with_capacity(values.len());
    for value in values {
        let found: &[Value] = match value {
            ValueRef::Array(found) => found,
            _ => &[],
        };
        lengths.push(found.len());
        valid.push(matches!(value, ValueRef::Array(_)));
        inner.extend(found.iter().map(Value::view));
    }
    let array = ListArray::try_new(
        Arc::new(item_field(items)),
        OffsetBuffer::from_lengths(lengths),
        items.array(&inner)?,
        Some(NullBuffer::from(valid)),
    )?;
    Ok(Arc::new(array))
}

fn structs(
    fields: &[(Arc<str>, ValueType)],
    values: &[ValueRef<'_>],
) -> Result<ArrayRef, ArrowError> {
    let mut columns = Vec::with_capacity(fields.len());
    for (name, kind) in fields {
        let inner: Vec<ValueRef> = values
            .iter()
            .map(|value| match value {
                ValueRef::Record(record) => {
                    record.get_exact(name).map_or(ValueRef::Null, Value::view)
                }
                _ => ValueRef::Null,
            })
            .collect();
        columns.push(kind.array(&inner)?);
    }
    let valid: Vec<bool> = values
        .iter()
        .map(|value| matches!(value, ValueRef::Record(_)))
        .collect();
    let array = StructArray::try_new(struct_fields(fields), columns, Some(valid.into()))?;
    Ok(Arc::new(array))
}

fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Text(text) => Some(text.to_owned()),
        other => {
            let mut text = String::new();
            eval::write_text(other, &mut text);
            Some(text)
        }
    }
}
