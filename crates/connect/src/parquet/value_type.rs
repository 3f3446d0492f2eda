//! The common type of a set of values, and the field of a Parquet schema that holds it.
//!
//! Integers and floats have floats in common, as long as no integer loses digits. Values of unrelated types have text
//! in common, nested values as JSON text.

use std::sync::Arc;

use highwater_engine::ValueRef;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::errors::Result;
use parquet::schema::types::{Type, TypePtr};

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

    /// An optional field of this type.
    pub(super) fn field(&self, name: &str) -> Result<TypePtr> {
        let (physical, logical) = match self {
            ValueType::Null | ValueType::Text => {
                (PhysicalType::BYTE_ARRAY, Some(LogicalType::String))
            }
            ValueType::Bit => (PhysicalType::BOOLEAN, None),
            ValueType::Int { .. } => (PhysicalType::INT64, None),
            ValueType::Float => (PhysicalType::DOUBLE, None),
            ValueType::Time => {
                let nanos_in_utc = LogicalType::timestamp(true, TimeUnit::NANOS);
                (PhysicalType::INT64, Some(nanos_in_utc))
            }
            ValueType::List(items) => {
                let items = vec![items.field("element")?];
                let items = Type::group_type_builder("list")
                    .with_repetition(Repetition::REPEATED)
                    .with_fields(items);
                let list = Type::group_type_builder(name)
                    .with_repetition(Repetition::OPTIONAL)
                    .with_logical_type(Some(LogicalType::List))
                    .with_fields(vec![items.build()?.into()]);
                return Ok(list.build()?.into());
            }
            ValueType::Struct(fields) => {
                let group = Type::group_type_builder(name)
                    .with_repetition(Repetition::OPTIONAL)
                    .with_fields(fields_of(fields)?);
                return Ok(group.build()?.into());
            }
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        Ok(field.build()?.into())
    }
}

pub(super) fn fields_of(fields: &[(Arc<str>, ValueType)]) -> Result<Vec<TypePtr>> {
    fields.iter().map(|(name, kind)| kind.field(name)).collect()
}

/// A time as nanoseconds since 1970, if it fits into 64 bits.
pub(super) fn unix_nanos(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Time(time) => i64::try_from(time.to_unix_nanos()).ok(),
        _ => None,
    }
}
