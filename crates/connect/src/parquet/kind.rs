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
pub(crate) enum Kind {
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
    List(Box<Kind>),
    Struct(Vec<(Arc<str>, Kind)>),
}

/// Floats represent every integer up to this one.
const EXACT_MAX: u64 = 1 << 53;

impl Kind {
    pub(super) fn of(value: ValueRef<'_>) -> Kind {
        match value {
            ValueRef::Null => Kind::Null,
            ValueRef::Bit(_) => Kind::Bit,
            ValueRef::Int(value) => Kind::Int {
                wide: value.unsigned_abs() > EXACT_MAX,
            },
            ValueRef::Float(_) => Kind::Float,
            ValueRef::Time(_) if unix_nanos(value).is_some() => Kind::Time,
            ValueRef::Time(_) | ValueRef::Text(_) => Kind::Text,
            ValueRef::Array(values) => {
                let kinds = values.iter().map(|value| Kind::of(value.view()));
                Kind::List(Box::new(kinds.fold(Kind::Null, Kind::join)))
            }
            // Parquet has no records without fields.
            ValueRef::Record(record) if record.is_empty() => Kind::Text,
            ValueRef::Record(record) => Kind::Struct(
                record
                    .iter()
                    .map(|(name, value)| (name.clone(), Kind::of(value.view())))
                    .collect(),
            ),
        }
    }

    /// The common kind of both.
    pub(super) fn join(self, other: Kind) -> Kind {
        match (self, other) {
            (Kind::Null, kind) | (kind, Kind::Null) => kind,
            (Kind::Int { wide: a }, Kind::Int { wide: b }) => Kind::Int { wide: a || b },
            (Kind::Int { wide: false }, Kind::Float) | (Kind::Float, Kind::Int { wide: false }) => {
                Kind::Float
            }
            (Kind::List(a), Kind::List(b)) => Kind::List(Box::new(a.join(*b))),
            (Kind::Struct(mut fields), Kind::Struct(others)) => {
                for (name, kind) in others {
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, own)) => *own = own.clone().join(kind),
                        None => fields.push((name, kind)),
                    }
                }
                Kind::Struct(fields)
            }
            (a, b) if a == b => a,
            _ => Kind::Text,
        }
    }

    pub(super) fn data_type(&self) -> DataType {
        match self {
            Kind::Null | Kind::Text => DataType::Utf8,
            Kind::Bit => DataType::Boolean,
            Kind::Int { .. } => DataType::Int64,
            Kind::Float => DataType::Float64,
            Kind::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Kind::List(items) => DataType::List(Arc::new(item_field(items))),
            Kind::Struct(fields) => DataType::Struct(struct_fields(fields)),
        }
    }

    pub(super) fn array(&self, values: &[ValueRef<'_>]) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Kind::Null | Kind::Text => {
                let mut builder = StringBuilder::new();
                values
                    .iter()
                    .for_each(|value| builder.append_option(text(*value)));
                Arc::new(builder.finish())
            }
            Kind::Bit => {
                let mut builder = BooleanBuilder::new();
                values.iter().for_each(|value| {
                    builder.append_option(match value {
                        ValueRef::Bit(value) => Some(*value),
                        _ => None,
                    });
                });
                Arc::new(builder.finish())
            }
            Kind::Int { .. } => {
                let mut builder = Int64Builder::new();
                values.iter().for_each(|value| {
                    builder.append_option(match value {
                        ValueRef::Int(value) => Some(*value),
                        _ => None,
                    });
                });
                Arc::new(builder.finish())
            }
            Kind::Float => {
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
            Kind::Time => {
                let nanos: TimestampNanosecondArray =
                    values.iter().map(|value| unix_nanos(*value)).collect();
                Arc::new(nanos.with_timezone("UTC"))
            }
            Kind::List(items) => list(items, values)?,
            Kind::Struct(fields) => structs(fields, values)?,
        })
    }
}

fn item_field(items: &Kind) -> Field {
    Field::new("item", items.data_type(), true)
}

fn struct_fields(fields: &[(Arc<str>, Kind)]) -> Fields {
    let field = |(name, kind): &(Arc<str>, Kind)| Field::new(&**name, kind.data_type(), true);
    fields.iter().map(field).collect()
}

fn list(items: &Kind, values: &[ValueRef<'_>]) -> Result<ArrayRef, ArrowError> {
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

fn structs(fields: &[(Arc<str>, Kind)], values: &[ValueRef<'_>]) -> Result<ArrayRef, ArrowError> {
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
