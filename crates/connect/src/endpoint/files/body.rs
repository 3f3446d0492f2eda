//! The rows of an incomplete file, in a form that survives a restart and can become a file.
//!
//! Lines are stored as they will be written. Parquet stores rows by column, which needs all of them, so its rows are
//! stored as values.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::codec::{ReadValue, WriteValue};
use highwater_engine::{Chunk, Value};
use highwater_query::plan::Name;

use crate::csv::CsvWriter;
use crate::json::JsonWriter;
use crate::rows::RowNames;
use crate::writer::{OutputFormat, WriteError};

/// Appends rows to bodies, and makes files of them.
pub(super) struct Encoder {
    format: OutputFormat,
    names: Vec<Name>,
    rows: RowNames,
    json: JsonWriter,
    csv: Option<CsvWriter>,
}

#[derive(Debug, Default)]
pub(super) struct FileBody {
    bytes: Vec<u8>,
    /// Of a CSV file, after its first row.
    columns: Option<Vec<String>>,
}

impl FileBody {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn save(&self, out: &mut Vec<u8>) {
        out.blob(&self.bytes);
        out.u8(self.columns.is_some().into());
        if let Some(columns) = &self.columns {
            out.count(columns.len());
            columns.iter().for_each(|name| out.blob(name.as_bytes()));
        }
    }

    pub(super) fn restore(input: &mut Reader<'_>) -> Result<FileBody, DecodeError> {
        let bytes = input.blob()?.to_vec();
        let columns = match input.u8()? {
            0 => None,
            _ => {
                let count = input.count()?;
                let names = (0..count).map(|_| input.text().map(str::to_owned));
                Some(names.collect::<Result<_, _>>()?)
            }
        };
        Ok(FileBody { bytes, columns })
    }
}

impl Encoder {
    pub(super) fn new(format: OutputFormat, names: Vec<Name>) -> Encoder {
        let csv = match format {
            OutputFormat::Csv(format) => Some(CsvWriter::new(names.clone(), format)),
            _ => None,
        };
        Encoder {
            format,
            rows: RowNames::new(names.clone()),
            json: JsonWriter::new(names.clone()),
            csv,
            names,
        }
    }

    pub(super) fn names(&self) -> &RowNames {
        &self.rows
    }

    pub(super) fn extension(&self) -> &'static str {
        match self.format {
            OutputFormat::JsonLines => "jsonl",
            OutputFormat::JsonArray => "json",
            OutputFormat::Csv(format) if format.delimiter == b'\t' => "tsv",
            OutputFormat::Csv(_) => "csv",
            OutputFormat::Parquet => "parquet",
        }
    }

    pub(super) fn push(&mut self, chunk: &Chunk, row: usize, body: &mut FileBody) {
        let one = row..row + 1;
        match (&mut self.csv, self.format) {
            (Some(csv), _) => {
                csv.set_columns(body.columns.take());
                csv.write_rows(chunk, one, &mut body.bytes);
                body.columns = csv.take_columns();
            }
            (None, OutputFormat::Parquet) => {
                let record = Value::Record(self.rows.record(chunk, row).into());
                body.bytes.value(record.view());
            }
            (None, _) => self.json.write_rows(chunk, one, &mut body.bytes),
        }
    }

    /// Returns the work of making the whole file, to be run where it may block.
    pub(super) fn finish(
        &self,
        body: Arc<FileBody>,
    ) -> impl FnOnce() -> Result<Vec<u8>, WriteError> + Send + 'static {
        let (format, names) = (self.format, self.names.clone());
        move || match format {
            OutputFormat::JsonLines | OutputFormat::Csv(_) => Ok(body.bytes.clone()),
            OutputFormat::JsonArray => Ok(array(&body.bytes)),
            OutputFormat::Parquet => {
                let mut input = Reader::new(&body.bytes);
                let mut rows = Vec::new();
                while !input.is_done() {
                    rows.push(input.value().map_err(|error| WriteError {
                        format: "Parquet",
                        reason: error.to_string(),
                    })?);
                }
                parquet(names, rows)
            }
        }
    }
}

#[cfg(feature = "parquet")]
fn parquet(names: Vec<Name>, rows: Vec<Value>) -> Result<Vec<u8>, WriteError> {
    crate::parquet::write_whole(names, rows)
}

#[cfg(not(feature = "parquet"))]
fn parquet(names: Vec<Name>, _rows: Vec<Value>) -> Result<Vec<u8>, WriteError> {
    crate::writer::row_writer(OutputFormat::Parquet, names).map(|_| Vec::new())
}

/// Turns lines into one array.
fn array(lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() * 9 / 8 + 4);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let before: &[u8] = if out.is_empty() { b"[\n" } else { b",\n" };
        out.extend_from_slice(before);
        out.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
    }
    out.extend_from_slice(b"\n]\n");
    out
}
