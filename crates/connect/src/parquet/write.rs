//! Writes columns as Parquet.
//!
//! A Parquet file has one schema and rows have none, so the schema is that of the first row group. When later rows do
//! not fit it, because a column is new or has values of another type, the file ends and a new part starts, whose schema
//! has room for both. Row groups hold a fixed number of rows, so that part boundaries depend on the rows alone.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};
use highwater_engine::{Chunk, Value, ValueRef};
use highwater_query::plan::Name;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::value_type::ValueType;
use crate::rows::RowNames;
use crate::writer::{RowWriter, WriteError, WriterOutput};

const GROUP_ROWS: usize = 32_768;

pub(crate) struct ParquetWriter {
    rows: RowNames,
    /// The columns known without any row: the names in the query.
    schema: Vec<(Arc<str>, ValueType)>,
    /// Rows of the current group.
    group: Vec<Value>,
    part: Option<ArrowWriter<SharedBuffer>>,
    bytes: SharedBuffer,
    done: Vec<WriterOutput>,
}

/// Collects the library's bytes until they are taken.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut buffer = self.0.lock().unwrap_or_else(|e| e.into_inner());
        buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ParquetWriter {
    pub(crate) fn new(names: Vec<Name>) -> ParquetWriter {
        let mut schema: Vec<(Arc<str>, ValueType)> = Vec::new();
        for name in &names {
            if let Name::Field(name) = name
                && schema.iter().all(|(known, _)| **known != **name)
            {
                schema.push((name.as_str().into(), ValueType::Null));
            }
        }
        ParquetWriter {
            rows: RowNames::new(names),
            schema,
            group: Vec::new(),
            part: None,
            bytes: SharedBuffer::default(),
            done: Vec::new(),
        }
    }

    fn take_row(&mut self, row: Value) -> Result<(), WriteError> {
        self.group.push(row);
        if self.group.len() == GROUP_ROWS {
            self.write_group()?;
            self.keep_bytes();
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), WriteError> {
        let group = std::mem::take(&mut self.group);
        let kinds = group.iter().map(kind_of_row);
        let found = kinds.fold(ValueType::Struct(self.schema.clone()), ValueType::join);
        let ValueType::Struct(wanted) = found else {
            return Err(failed("rows are not records"));
        };
        let same = |a: &[(Arc<str>, ValueType)], b: &[(Arc<str>, ValueType)]| {
            let types = a.iter().zip(b);
            a.len() == b.len()
                && types
                    .clone()
                    .all(|(a, b)| a.1.data_type() == b.1.data_type())
        };
        if self.part.is_some() && !same(&self.schema, &wanted) {
            self.end_part()?;
            self.done.push(WriterOutput::NewPart);
        }
        self.schema = wanted;
        let schema = self.schema();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.len());
        for (name, kind) in &self.schema {
            let values: Vec<ValueRef> = group
                .iter()
                .map(|row| match row {
                    Value::Record(record) => {
                        record.get_exact(name).map_or(ValueRef::Null, Value::view)
                    }
                    _ => ValueRef::Null,
                })
                .collect();
            arrays.push(kind.array(&values).map_err(failed)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(group.len()));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options).map_err(failed)?;
        let part = self.part()?;
        part.write(&batch).map_err(failed)?;
        part.flush().map_err(failed)
    }

    fn schema(&self) -> SchemaRef {
        let field =
            |(name, kind): &(Arc<str>, ValueType)| Field::new(&**name, kind.data_type(), true);
        Arc::new(Schema::new(
            self.schema.iter().map(field).collect::<Vec<_>>(),
        ))
    }

    /// The current file, created if necessary.
    fn part(&mut self) -> Result<&mut ArrowWriter<SharedBuffer>, WriteError> {
        if self.part.is_none() {
            let how = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .set_max_row_group_row_count(Some(GROUP_ROWS))
                .build();
            let writer = ArrowWriter::try_new(self.bytes.clone(), self.schema(), Some(how));
            self.part = Some(writer.map_err(failed)?);
        }
        match &mut self.part {
            Some(part) => Ok(part),
            None => unreachable!("it was made just now"),
        }
    }

    fn end_part(&mut self) -> Result<(), WriteError> {
        if let Some(part) = self.part.take() {
            part.close().map_err(failed)?;
            self.keep_bytes();
        }
        Ok(())
    }

    fn keep_bytes(&mut self) {
        let bytes = self.bytes.take();
        if !bytes.is_empty() {
            self.done.push(WriterOutput::Bytes(bytes));
        }
    }
}

/// A row without fields does not affect the schema.
fn kind_of_row(row: &Value) -> ValueType {
    match row {
        Value::Record(record) if record.is_empty() => ValueType::Null,
        row => ValueType::of(row.view()),
    }
}

/// A whole file of these rows, which are records. Its schema has room for all of them.
pub(crate) fn write_whole(names: Vec<Name>, rows: Vec<Value>) -> Result<Vec<u8>, WriteError> {
    let mut writer = ParquetWriter::new(names);
    let kinds = rows.iter().map(kind_of_row);
    let found = kinds.fold(ValueType::Struct(writer.schema.clone()), ValueType::join);
    let ValueType::Struct(schema) = found else {
        return Err(failed("rows are not records"));
    };
    writer.schema = schema;
    for row in rows {
        writer.take_row(row)?;
    }
    writer.finish()?;
    let mut file = Vec::new();
    while let Some(written) = writer.take() {
        match written {
            WriterOutput::Bytes(bytes) => file.extend_from_slice(&bytes),
            WriterOutput::NewPart => return Err(failed("its schema keeps growing")),
        }
    }
    Ok(file)
}

fn failed(error: impl std::fmt::Display) -> WriteError {
    WriteError {
        format: "Parquet",
        reason: error.to_string(),
    }
}

impl RowWriter for ParquetWriter {
    fn write(&mut self, chunk: &Chunk) -> Result<(), WriteError> {
        let rows = self.rows.records(chunk);
        rows.into_iter().try_for_each(|row| self.take_row(row))
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        if !self.group.is_empty() {
            self.write_group()?;
        }
        // A file without rows is still a file.
        self.part()?;
        self.end_part()
    }

    fn take(&mut self) -> Option<WriterOutput> {
        (!self.done.is_empty()).then(|| self.done.remove(0))
    }
}
