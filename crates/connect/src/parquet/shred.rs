//! Takes records and lists apart into leaf columns with levels, which is how Parquet stores them.

use std::io::Write;
use std::sync::Arc;

use highwater_engine::{Value, ValueRef, eval};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use super::value_type::{ValueType, unix_nanos};

/// A leaf column of a row group. Every field is optional, so every value has a definition level.
struct LeafColumn {
    values: LeafValues,
    definition: Vec<i16>,
    repetition: Vec<i16>,
    nested_in_list: bool,
}

enum LeafValues {
    Bit(Vec<bool>),
    /// Integers, and times in nanoseconds.
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<ByteArray>),
}

/// Where a value is among the values around it.
#[derive(Clone, Copy, Default)]
struct Place {
    /// How many of the optional and repeated fields around it exist.
    definition: i16,
    /// The repetition level of its first leaf.
    repetition: i16,
    /// How many lists are around it.
    lists: i16,
}

/// Writes records of these fields as one row group.
pub(super) fn write_row_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    fields: &[(Arc<str>, ValueType)],
    rows: &[Value],
) -> Result<()> {
    let mut group = writer.next_row_group()?;
    for (name, field) in fields {
        let mut leaves = Vec::new();
        make_leaves(field, false, rows.len(), &mut leaves);
        for row in rows {
            let value = match row {
                Value::Record(record) => record.get_exact(name).map_or(ValueRef::Null, Value::view),
                _ => ValueRef::Null,
            };
            shred(field, value, Place::default(), &mut leaves);
        }
        for leaf in &leaves {
            leaf.write(&mut group)?;
        }
    }
    group.close()?;
    Ok(())
}

fn make_leaves(field: &ValueType, in_list: bool, rows: usize, leaves: &mut Vec<LeafColumn>) {
    let values = match field {
        ValueType::List(items) => return make_leaves(items, true, rows, leaves),
        ValueType::Struct(fields) => {
            let fields = fields.iter();
            return fields.for_each(|(_, field)| make_leaves(field, in_list, rows, leaves));
        }
        ValueType::Bit => LeafValues::Bit(Vec::with_capacity(rows)),
        ValueType::Int { .. } | ValueType::Time => LeafValues::Int(Vec::with_capacity(rows)),
        ValueType::Float => LeafValues::Float(Vec::with_capacity(rows)),
        ValueType::Null | ValueType::Text => LeafValues::Text(Vec::with_capacity(rows)),
    };
    leaves.push(LeafColumn {
        values,
        definition: Vec::with_capacity(rows),
        repetition: Vec::with_capacity(if in_list { rows } else { 0 }),
        nested_in_list: in_list,
    });
}

fn leaf_count(field: &ValueType) -> usize {
    match field {
        ValueType::List(items) => leaf_count(items),
        ValueType::Struct(fields) => fields.iter().map(|(_, field)| leaf_count(field)).sum(),
        _ => 1,
    }
}

/// Adds a value to the leaves of its field; a value of another type counts as NULL.
fn shred(field: &ValueType, value: ValueRef<'_>, place: Place, leaves: &mut [LeafColumn]) {
    let present = Place {
        definition: place.definition + 1,
        ..place
    };
    match (field, value) {
        (ValueType::List(_), ValueRef::Array(values)) if values.is_empty() => {
            leaves.iter_mut().for_each(|leaf| leaf.push_level(present));
        }
        (ValueType::List(items), ValueRef::Array(values)) => {
            let lists = place.lists + 1;
            for (index, value) in values.iter().enumerate() {
                let item = Place {
                    definition: present.definition + 1,
                    repetition: if index == 0 { place.repetition } else { lists },
                    lists,
                };
                shred(items, value.view(), item, leaves);
            }
        }
        (ValueType::Struct(fields), ValueRef::Record(record)) => {
            let mut rest = leaves;
            for (name, field) in fields {
                let (leaves, others) = rest.split_at_mut(leaf_count(field));
                let value = record.get_exact(name).map_or(ValueRef::Null, Value::view);
                shred(field, value, present, leaves);
                rest = others;
            }
        }
        (ValueType::List(_) | ValueType::Struct(_), _) => {
            leaves.iter_mut().for_each(|leaf| leaf.push_level(place));
        }
        (field, value) => {
            for leaf in leaves {
                let pushed = leaf.values.push(field, value);
                leaf.push_level(if pushed { present } else { place });
            }
        }
    }
}

impl LeafValues {
    /// Whether there is a value of the field's type.
    fn push(&mut self, field: &ValueType, value: ValueRef<'_>) -> bool {
        match (self, field, value) {
            (LeafValues::Bit(bits), _, ValueRef::Bit(bit)) => bits.push(bit),
            (LeafValues::Int(times), ValueType::Time, value) => match unix_nanos(value) {
                Some(nanos) => times.push(nanos),
                None => return false,
            },
            (LeafValues::Int(ints), _, ValueRef::Int(int)) => ints.push(int),
            (LeafValues::Float(floats), _, ValueRef::Float(float)) => floats.push(float),
            (LeafValues::Float(floats), _, ValueRef::Int(int)) => floats.push(int as f64),
            (LeafValues::Text(_), _, ValueRef::Null) => return false,
            (LeafValues::Text(texts), _, ValueRef::Text(text)) => {
                texts.push(text.as_bytes().to_vec().into());
            }
            (LeafValues::Text(texts), _, other) => {
                let mut text = String::new();
                eval::write_text(other, &mut text);
                texts.push(text.into_bytes().into());
            }
            _ => return false,
        }
        true
    }
}

impl LeafColumn {
    fn push_level(&mut self, place: Place) {
        self.definition.push(place.definition);
        if self.nested_in_list {
            self.repetition.push(place.repetition);
        }
    }

    fn write<W: Write + Send>(&self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        match &self.values {
            LeafValues::Bit(values) => self.write_typed::<BoolType, W>(values, group),
            LeafValues::Int(values) => self.write_typed::<Int64Type, W>(values, group),
            LeafValues::Float(values) => self.write_typed::<DoubleType, W>(values, group),
            LeafValues::Text(values) => self.write_typed::<ByteArrayType, W>(values, group),
        }
    }

    fn write_typed<T: DataType, W: Write + Send>(
        &self,
        values: &[T::T],
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<()> {
        let Some(mut column) = group.next_column()? else {
            return Err(super::leaf::malformed(
                "the schema has fewer columns than the rows",
            ));
        };
        let repetition = self.nested_in_list.then_some(&*self.repetition);
        let writer = column.typed::<T>();
        writer.write_batch(values, Some(&self.definition), repetition)?;
        column.close()
    }
}
