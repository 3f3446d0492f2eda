//! Writes columns as Parquet.
//!
//! A Parquet file has one schema and rows have none, so the schema is that of the first row group. When later rows do
//! not fit it, because a column is new or has values of another type, the file ends and a new part starts, whose schema
//! has room for both. Row groups hold a fixed number of rows, so that part boundaries depend on the rows alone.

use std::sync::Arc;

use highwater_engine::{Chunk, Value};
use highwater_query::plan::Name;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::shred::write_row_group;
use super::value_type::{ValueType, fields_of};
use crate::rows::RowNames;
use crate::writer::{RowWriter, WriteError, WriterOutput};

const GROUP_ROWS: usize = 32_768;

pub(crate) struct ParquetWriter {
    rows: RowNames,
    /// The columns known without any row: the names in the query.
    schema: Vec<(Arc<str>, ValueType)>,
    /// Rows of the current group.
    group: Vec<Value>,
    part: Option<SerializedFileWriter<Vec<u8>>>,
    done: Vec<WriterOutput>,
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
            done: Vec::new(),
        }
    }

    fn take_row(&mut self, row: Value) -> Result<(), WriteError> {
        self.group.push(row);
        if self.group.len() == GROUP_ROWS {
            self.write_group()?;
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
        let same_fields =
            fields_of(&self.schema).map_err(failed)? == fields_of(&wanted).map_err(failed)?;
        if self.part.is_some() && !same_fields {
            self.end_part()?;
            self.done.push(WriterOutput::NewPart);
        }
        self.schema = wanted;
        let schema = self.schema.clone();
        let part = self.part()?;
        write_row_group(part, &schema, &group).map_err(failed)?;
        part.flush().map_err(failed)?;
        let bytes = std::mem::take(part.inner_mut());
        self.keep(bytes);
        Ok(())
    }

    /// The current file, created if necessary.
    fn part(&mut self) -> Result<&mut SerializedFileWriter<Vec<u8>>, WriteError> {
        let part = match self.part.take() {
            Some(part) => part,
            None => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    .build();
                let schema = Type::group_type_builder("schema")
                    .with_fields(fields_of(&self.schema).map_err(failed)?);
                let schema = schema.build().map_err(failed)?;
                SerializedFileWriter::new(Vec::new(), schema.into(), properties.into())
                    .map_err(failed)?
            }
        };
        Ok(self.part.insert(part))
    }

    fn end_part(&mut self) -> Result<(), WriteError> {
        if let Some(part) = self.part.take() {
            let rest = part.into_inner().map_err(failed)?;
            self.keep(rest);
        }
        Ok(())
    }

    fn keep(&mut self, bytes: Vec<u8>) {
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
