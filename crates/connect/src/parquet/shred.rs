//! Takes records and lists apart into leaf columns with levels, which is how Parquet stores them.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use highwater_engine::{Value, ValueRef, eval};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use super::value_type::{ValueType, unix_nanos};

/// A leaf column of a row group. Every field is optional, so every value has a definition level.
struct LeafColumn {
    values: LeafValues,
    levels: LeafLevels,
}

struct LeafLevels {
    definition: Vec<i16>,
    /// Empty outside of lists.
    repetition: Vec<i16>,
    nested_in_list: bool,
}

enum LeafValues {
    Bit(Vec<bool>),
    /// Integers, and times in nanoseconds.
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Texts),
}

/// Texts one after the other, so that one allocation holds those of a row group.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// The levels of a value.
#[derive(Clone, Copy, Default)]
struct ValueLevels {
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
            shred(field, value, ValueLevels::default(), &mut leaves);
        }
        for leaf in leaves {
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
        ValueType::Null | ValueType::Text => LeafValues::Text(Texts::default()),
    };
    leaves.push(LeafColumn {
        values,
        levels: LeafLevels {
            definition: Vec::with_capacity(rows),
            repetition: Vec::with_capacity(if in_list { rows } else { 0 }),
            nested_in_list: in_list,
        },
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
fn shred(field: &ValueType, value: ValueRef<'_>, levels: ValueLevels, leaves: &mut [LeafColumn]) {
    let present = ValueLevels {
        definition: levels.definition + 1,
        ..levels
    };
    match (field, value) {
        (ValueType::List(_), ValueRef::Array(values)) if values.is_empty() => {
            leaves.iter_mut().for_each(|leaf| leaf.levels.push(present));
        }
        (ValueType::List(items), ValueRef::Array(values)) => {
            let lists = levels.lists + 1;
            for (index, value) in values.iter().enumerate() {
                let item = ValueLevels {
                    definition: present.definition + 1,
                    repetition: if index == 0 { levels.repetition } else { lists },
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
            leaves.iter_mut().for_each(|leaf| leaf.levels.push(levels));
        }
        (field, value) => {
            for leaf in leaves {
                let pushed = leaf.values.push(field, value);
                leaf.levels.push(if pushed { present } else { levels });
            }
        }
    }
}

impl Texts {
    fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.ends.push(self.bytes.len());
    }

    fn byte_arrays(self) -> Vec<ByteArray> {
        let bytes = Bytes::from(self.bytes);
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(self.ends.iter().copied());
        ranges
            .map(|(start, end)| bytes.slice(start..end).into())
            .collect()
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
                texts.push(text);
            }
            (LeafValues::Text(texts), _, other) => {
                let mut text = String::new();
                eval::write_text(other, &mut text);
                texts.push(&text);
            }
            _ => return false,
        }
        true
    }
}

impl LeafColumn {
    fn write<W: Write + Send>(self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        let levels = self.levels;
        match self.values {
            LeafValues::Bit(values) => levels.write::<BoolType, W>(&values, group),
            LeafValues::Int(values) => levels.write::<Int64Type, W>(&values, group),
            LeafValues::Float(values) => levels.write::<DoubleType, W>(&values, group),
            LeafValues::Text(texts) => {
                levels.write::<ByteArrayType, W>(&texts.byte_arrays(), group)
            }
        }
    }
}

impl LeafLevels {
    fn push(&mut self, levels: ValueLevels) {
        self.definition.push(levels.definition);
        if self.nested_in_list {
            self.repetition.push(levels.repetition);
        }
    }

    fn write<T: DataType, W: Write + Send>(
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
