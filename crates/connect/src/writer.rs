//! Encodes rows as a file of any format.

use highwater_engine::Chunk;
use highwater_query::plan::Name;

use crate::csv::CsvWriter;
use crate::json::JsonWriter;
use crate::source::{CsvFormat, Format, MissingFeature};

/// How rows are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// One object per line.
    #[default]
    JsonLines,
    /// One array of objects.
    JsonArray,
    Csv(CsvFormat),
    Parquet,
}

impl OutputFormat {
    /// The format by the name of a file; JSON lines by default.
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

    /// Whether this build can write the format.
    pub fn check_built_in(self) -> Result<(), MissingFeature> {
        match self {
            OutputFormat::Parquet => Format::Parquet.check_built_in(),
            _ => Ok(()),
        }
    }
}

/// Encodes rows as the bytes of one file or of several parts.
pub trait RowWriter: Send {
    /// Encodes the rows of a chunk.
    fn write(&mut self, chunk: &Chunk) -> Result<(), WriteError>;

    /// Ends the rows.
    fn finish(&mut self) -> Result<(), WriteError>;

    /// The next encoded bytes; `None` if there are none yet. A new part is a file of its own.
    fn take(&mut self) -> Option<WriterOutput>;

    /// A remark for the user about the written rows.
    fn note(&self) -> Option<String> {
        None
    }
}

/// The output of a writer.
#[derive(Debug, PartialEq, Eq)]
pub enum WriterOutput {
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

/// A writer for chunks whose columns have these names.
pub fn row_writer(
    format: OutputFormat,
    names: Vec<Name>,
) -> Result<Box<dyn RowWriter>, WriteError> {
    Ok(match format {
        OutputFormat::JsonLines => BufferedWriter::boxed(JsonWriter::new(names)),
        OutputFormat::JsonArray => BufferedWriter::boxed(ArrayWriter {
            writer: JsonWriter::new(names),
            lines: Vec::new(),
            rows: 0,
        }),
        OutputFormat::Csv(format) => BufferedWriter::boxed(CsvWriter::new(names, format)),
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
        reason: MissingFeature("parquet").to_string(),
    })
}

/// A format whose file is the encoded rows in order.
trait RowEncoder: Send {
    fn encode(&mut self, chunk: &Chunk, out: &mut Vec<u8>);

    /// Ends the file.
    fn finish(&mut self, _: &mut Vec<u8>) {}

    fn note(&self) -> Option<String> {
        None
    }
}

struct BufferedWriter<E> {
    encoder: E,
    bytes: Vec<u8>,
}

impl<E: RowEncoder + 'static> BufferedWriter<E> {
    fn boxed(encoder: E) -> Box<dyn RowWriter> {
        Box::new(BufferedWriter {
            encoder,
            bytes: Vec::new(),
        })
    }
}

impl<E: RowEncoder> RowWriter for BufferedWriter<E> {
    fn write(&mut self, chunk: &Chunk) -> Result<(), WriteError> {
        self.encoder.encode(chunk, &mut self.bytes);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.encoder.finish(&mut self.bytes);
        Ok(())
    }

    fn take(&mut self) -> Option<WriterOutput> {
        (!self.bytes.is_empty()).then(|| WriterOutput::Bytes(std::mem::take(&mut self.bytes)))
    }

    fn note(&self) -> Option<String> {
        self.encoder.note()
    }
}

impl RowEncoder for JsonWriter {
    fn encode(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        self.write(chunk, out);
    }
}

/// Still one row per line, inside an array.
struct ArrayWriter {
    writer: JsonWriter,
    lines: Vec<u8>,
    rows: u64,
}

impl RowEncoder for ArrayWriter {
    fn encode(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        self.lines.clear();
        self.writer.write(chunk, &mut self.lines);
        for line in self.lines.split_inclusive(|b| *b == b'\n') {
            let before: &[u8] = if self.rows == 0 { b"[\n" } else { b",\n" };
            out.extend_from_slice(before);
            out.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            self.rows += 1;
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let end: &[u8] = if self.rows == 0 { b"[]\n" } else { b"\n]\n" };
        out.extend_from_slice(end);
    }
}

impl RowEncoder for CsvWriter {
    fn encode(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        self.write(chunk, out);
    }

    fn note(&self) -> Option<String> {
        let left_out = self.left_out();
        (left_out > 0).then(|| {
            format!("{left_out} values were dropped: the columns of a CSV file are those of its first row")
        })
    }
}
