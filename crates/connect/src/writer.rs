//! Rows on their way into a file of any format.

use highwater_engine::Chunk;
use highwater_query::plan::Name;

use crate::csv::CsvWriter;
use crate::json::JsonWriter;
use crate::source::CsvFormat;

/// How rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// One object on each line.
    #[default]
    JsonLines,
    /// One array of objects.
    JsonArray,
    Csv(CsvFormat),
    Parquet,
}

impl OutputFormat {
    /// What a file of that name should hold: lines of JSON unless it says otherwise.
    pub fn of_name(path: &std::path::Path) -> OutputFormat {
        match &crate::source::extension(path)[..] {
            "csv" => OutputFormat::Csv(CsvFormat::default()),
            "tsv" => OutputFormat::Csv(CsvFormat {
                delimiter: b'\t',
                ..CsvFormat::default()
            }),
            "parquet" => OutputFormat::Parquet,
            _ => OutputFormat::JsonLines,
        }
    }
}

/// Turns rows into the bytes of one file, or of several parts of it.
pub trait RowWriter: Send {
    /// Takes the rows of a chunk.
    fn write(&mut self, chunk: &Chunk) -> Result<(), WriteError>;

    /// Says that no more rows will come.
    fn finish(&mut self) -> Result<(), WriteError>;

    /// The next bytes to be written; `None` if there are none yet. A new part is a file of its own.
    fn take(&mut self) -> Option<Written>;

    /// Something that the user should know about what was written.
    fn note(&self) -> Option<String> {
        None
    }
}

/// What a writer has made.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    Bytes(Vec<u8>),
    /// The file ends here, and another one starts.
    NewPart,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the rows as {format}: {reason}")]
pub struct WriteError {
    pub format: &'static str,
    pub reason: String,
}

/// A writer for chunks whose columns show up under these names.
pub fn row_writer(
    format: OutputFormat,
    names: Vec<Name>,
) -> Result<Box<dyn RowWriter>, WriteError> {
    Ok(match format {
        OutputFormat::JsonLines => Box::new(Lines {
            writer: JsonWriter::new(names),
            bytes: Vec::new(),
        }),
        OutputFormat::JsonArray => Box::new(Array {
            writer: JsonWriter::new(names),
            lines: Vec::new(),
            bytes: Vec::new(),
            rows: 0,
        }),
        OutputFormat::Csv(format) => Box::new(Csv {
            writer: CsvWriter::new(names, format),
            bytes: Vec::new(),
        }),
        OutputFormat::Parquet => parquet_writer(names)?,
    })
}

#[cfg(feature = "parquet")]
fn parquet_writer(names: Vec<Name>) -> Result<Box<dyn RowWriter>, WriteError> {
    Ok(Box::new(crate::parquet::ParquetWriter::new(names)))
}

#[cfg(not(feature = "parquet"))]
fn parquet_writer(_: Vec<Name>) -> Result<Box<dyn RowWriter>, WriteError> {
    Err(WriteError {
        format: "Parquet",
        reason: "this build of Highwater was made without it".into(),
    })
}

fn take_bytes(bytes: &mut Vec<u8>) -> Option<Written> {
    (!bytes.is_empty()).then(|| Written::Bytes(std::mem::take(bytes)))
}

struct Lines {
    writer: JsonWriter,
    bytes: Vec<u8>,
}

impl RowWriter for Lines {
    fn write(&mut self, chunk: &Chunk) -> Result<(), WriteError> {
        self.writer.write(chunk, &mut self.bytes);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn take(&mut self) -> Option<Written> {
        take_bytes(&mut self.bytes)
    }
}

/// Still one row on each line, with what makes an array of them around.
struct Array {
    writer: JsonWriter,
    lines: Vec<u8>,
    bytes: Vec<u8>,
    rows: u64,
}

impl RowWriter for Array {
    fn write(&mut self, chunk: &Chunk) -> Result<(), WriteError> {
        self.lines.clear();
        self.writer.write(chunk, &mut self.lines);
        for line in self.lines.split_inclusive(|b| *b == b'\n') {
            let before: &[u8] = if self.rows == 0 { b"[\n" } else { b",\n" };
            self.bytes.extend_from_slice(before);
            self.bytes
                .extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            self.rows += 1;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        let end: &[u8] = if self.rows == 0 { b"[]\n" } else { b"\n]\n" };
        self.bytes.extend_from_slice(end);
        Ok(())
    }

    fn take(&mut self) -> Option<Written> {
        take_bytes(&mut self.bytes)
    }
}

struct Csv {
    writer: CsvWriter,
    bytes: Vec<u8>,
}

impl RowWriter for Csv {
    fn write(&mut self, chunk: &Chunk) -> Result<(), WriteError> {
        self.writer.write(chunk, &mut self.bytes);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn take(&mut self) -> Option<Written> {
        take_bytes(&mut self.bytes)
    }

    fn note(&self) -> Option<String> {
        let left_out = self.writer.left_out();
        (left_out > 0).then(|| {
            format!("{left_out} values were left out: the columns of a CSV file are those of its first row")
        })
    }
}
