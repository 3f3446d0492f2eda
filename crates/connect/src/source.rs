//! Files of any format as columns of events.
//!
//! [`open`] looks at a file's name and first bytes and returns a [`Source`] of decoded events. Readers do not see
//! whether they were lines of JSON, an array over the whole file, CSV, Avro or Parquet, or whether the file was
//! compressed.
//!
//! An error in one event never ends a file, and an error in a file never ends a job: the first is a [`BadEvent`] beside
//! the good ones, the second an error after them.

use std::path::Path;

use highwater_engine::Column;
use highwater_query::plan::Type;

use crate::bytes::{FileBytes, OpenFile};
use crate::json::{BadLine, DecodedBatch, Field};
use crate::{ReadError, SourceNote, csv, json};

/// How much of a bad event is kept for display.
pub(crate) const SAMPLE_BYTES_MAX: usize = 200;
/// How much of it is kept where the whole event is needed.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Decoded events in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// One per requested field.
    pub columns: Vec<Column>,
    pub rows: usize,
    /// Per row, the line where its event starts; for formats without lines, the number of the event
    /// in the file. Counted from 1.
    pub lines: Vec<u64>,
    pub bad: Vec<BadEvent>,
}

/// An event that cannot be decoded, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEvent {
    /// As in [`Events::lines`].
    pub line: u64,
    pub kind: BadKind,
    pub reason: String,
    /// The event or its start, if it can be shown.
    pub text: String,
}

/// The kind of data error, as in Stream Analytics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BadKind {
    InvalidData,
    /// A value is not of the type that CREATE TABLE declares.
    TypeConversion,
    /// A column that CREATE TABLE declares is absent.
    MissingColumns,
    InvalidHeader,
    InvalidCompression,
}

/// A file that is being read.
pub trait Source: Send {
    /// The next events, or `None` after the last. An error comes after everything before it.
    fn next_batch(&mut self) -> Result<Option<Events>, ReadError>;

    fn file(&self) -> &OpenFile;

    /// The position in the file, in bytes on the disk; for progress displays.
    fn bytes_read(&self) -> u64 {
        self.file().bytes_read()
    }

    /// When the file was last written, in nanoseconds since 1970.
    fn modified(&self) -> i128 {
        self.file().modified
    }

    /// After the file was read: whether its size changed since opening.
    fn note(&self) -> Option<SourceNote> {
        self.file().note()
    }
}

/// How the events of a file are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One array of objects, or objects separated by blanks; lines of one object each, if the first bytes look like it.
    Json,
    /// One object per line, whatever the first bytes look like.
    JsonLines,
    Csv(CsvFormat),
    Avro,
    Parquet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvFormat {
    pub delimiter: u8,
    /// The first record names the columns; without it they are `column1`, `column2`, ..
    pub header: bool,
}

impl CsvFormat {
    pub const COMMA: CsvFormat = CsvFormat {
        delimiter: b',',
        header: true,
    };
}

impl Default for CsvFormat {
    fn default() -> CsvFormat {
        CsvFormat::COMMA
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Gzip if the file is named `.gz`, else none.
    #[default]
    ByName,
    None,
    Gzip,
    Deflate,
}

/// The compatibility level of the job, as far as it affects reading events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Names are lower-cased and must differ by more than case; JSON date texts are times.
    V1_0,
    /// Booleans are 0 and 1.
    V1_1,
    #[default]
    V1_2,
}

/// The format and the columns of a file.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// `None`: by the name of the file.
    pub format: Option<Format>,
    pub compression: Compression,
    pub level: Level,
    /// CREATE TABLE.
    pub declared: Option<Vec<(String, Type)>>,
    pub fields: Vec<Field>,
    /// Keep bad events whole (up to 1 MiB) instead of their first 200 bytes.
    pub keep_text: bool,
}

impl SourceOptions {
    pub fn of(fields: Vec<Field>) -> SourceOptions {
        SourceOptions {
            fields,
            ..SourceOptions::default()
        }
    }

    pub(crate) fn text_bytes_max(&self) -> usize {
        match self.keep_text {
            true => TEXT_BYTES_MAX,
            false => SAMPLE_BYTES_MAX,
        }
    }
}

impl Format {
    /// The format by the name of a file, ignoring a compression suffix; JSON by default.
    pub fn of_name(path: &Path) -> Format {
        match &extension(path)[..] {
            "csv" => Format::Csv(CsvFormat::default()),
            "tsv" => Format::Csv(CsvFormat {
                delimiter: b'\t',
                ..CsvFormat::default()
            }),
            "avro" => Format::Avro,
            "parquet" => Format::Parquet,
            "jsonl" | "ndjson" => Format::JsonLines,
            _ => Format::Json,
        }
    }

    /// Whether this build can read the format.
    pub fn check_built_in(self) -> Result<(), MissingFeature> {
        match self {
            Format::Avro if cfg!(not(feature = "avro")) => Err(MissingFeature("avro")),
            Format::Parquet if cfg!(not(feature = "parquet")) => Err(MissingFeature("parquet")),
            _ => Ok(()),
        }
    }

    /// The extensions of such files in a folder.
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Format::Json | Format::JsonLines => &["jsonl", "json", "ndjson"],
            Format::Csv(_) => &["csv", "tsv"],
            Format::Avro => &["avro"],
            Format::Parquet => &["parquet"],
        }
    }

    /// Whether a file in a folder has this format, by its extension without `.gz`.
    pub fn matches(self, path: &Path) -> bool {
        self.extensions().contains(&&extension(path)[..])
    }
}

/// A format, function or output that this build lacks because a Cargo feature is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this program was built without the feature `{0}`: build highwater-cli with `--features {0}`"
)]
pub struct MissingFeature(pub &'static str);

/// The last extension in lower case, without `.gz`.
pub(crate) fn extension(path: &Path) -> String {
    let lower = |path: &Path| {
        let extension = path.extension().and_then(|e| e.to_str());
        extension.unwrap_or_default().to_ascii_lowercase()
    };
    match &lower(path)[..] {
        "gz" => lower(Path::new(path.file_stem().unwrap_or_default())),
        own => own.to_owned(),
    }
}

/// Opens a file. Only a file that cannot be opened is an error here; a file that is not of its declared format is an
/// error of its first batch.
pub fn open(path: &Path, options: SourceOptions) -> Result<Box<dyn Source>, ReadError> {
    let format = options.format.unwrap_or_else(|| Format::of_name(path));
    let opened = match format {
        Format::Parquet => open_parquet(path, options),
        format => FileBytes::open(path, options.compression)
            .and_then(|bytes| source_of(bytes, format, options)),
    };
    match opened {
        Err(error @ ReadError::Open { .. }) => Err(error),
        Err(error) => Ok(Box::new(UnreadableSource {
            error: Some(error),
            file: OpenFile::new(path, 0),
        })),
        opened => opened,
    }
}

/// Any format but Parquet, which is not read sequentially.
pub(crate) fn source_of(
    bytes: FileBytes,
    format: Format,
    options: SourceOptions,
) -> Result<Box<dyn Source>, ReadError> {
    Ok(match format {
        Format::Csv(csv) => Box::new(csv::CsvSource::new(bytes, csv, options)),
        Format::Avro => open_avro(bytes, options)?,
        _ => Box::new(json::JsonSource::new(
            bytes,
            format == Format::JsonLines,
            options,
        )),
    })
}

#[cfg(feature = "avro")]
fn open_avro(bytes: FileBytes, options: SourceOptions) -> Result<Box<dyn Source>, ReadError> {
    Ok(Box::new(crate::avro::AvroSource::new(bytes, options)))
}

#[cfg(not(feature = "avro"))]
fn open_avro(bytes: FileBytes, _: SourceOptions) -> Result<Box<dyn Source>, ReadError> {
    Err(ReadError::not_built_in(&bytes.file.path, "avro"))
}

#[cfg(feature = "parquet")]
fn open_parquet(path: &Path, options: SourceOptions) -> Result<Box<dyn Source>, ReadError> {
    Ok(Box::new(crate::parquet::ParquetSource::open(
        path, options,
    )?))
}

#[cfg(not(feature = "parquet"))]
fn open_parquet(path: &Path, _: SourceOptions) -> Result<Box<dyn Source>, ReadError> {
    Err(ReadError::not_built_in(path, "parquet"))
}

/// A file that is not of its declared format.
struct UnreadableSource {
    error: Option<ReadError>,
    file: OpenFile,
}

impl Source for UnreadableSource {
    fn next_batch(&mut self) -> Result<Option<Events>, ReadError> {
        self.error.take().map_or(Ok(None), Err)
    }

    fn file(&self) -> &OpenFile {
        &self.file
    }
}

impl ReadError {
    #[cfg(not(all(feature = "avro", feature = "parquet")))]
    fn not_built_in(file: &Path, feature: &'static str) -> ReadError {
        ReadError::Format {
            file: file.to_path_buf(),
            reason: MissingFeature(feature).to_string(),
        }
    }

    /// The kind of data error, if the file is to blame and not the disk.
    pub fn kind(&self) -> Option<BadKind> {
        match self {
            ReadError::Open { .. } | ReadError::Read { .. } => None,
            ReadError::Format { .. } => Some(BadKind::InvalidData),
            ReadError::Header { .. } => Some(BadKind::InvalidHeader),
            ReadError::Compression { .. } => Some(BadKind::InvalidCompression),
        }
    }
}

impl From<DecodedBatch> for Events {
    fn from(decoded: DecodedBatch) -> Events {
        Events {
            columns: decoded.columns,
            rows: decoded.rows,
            lines: decoded.lines,
            bad: decoded.bad.into_iter().map(BadEvent::from).collect(),
        }
    }
}

impl From<BadLine> for BadEvent {
    fn from(bad: BadLine) -> BadEvent {
        let kind = bad.reason.kind();
        BadEvent {
            line: bad.line,
            kind,
            reason: match kind {
                BadKind::InvalidData => format!("column {}: {}", bad.column, bad.reason),
                _ => bad.reason.to_string(),
            },
            text: bad.sample,
        }
    }
}

/// The start of an event's text, lossy, and within the limit even with replacement characters.
pub(crate) fn sample(text: &[u8], bytes_max: usize) -> String {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let mut text = String::from_utf8_lossy(&text[..text.len().min(bytes_max)]).into_owned();
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_never_exceeds_its_limit_nor_splits_a_character() {
        let sample = |text: &[u8]| super::sample(text, SAMPLE_BYTES_MAX);
        assert_eq!(sample(b"{}\r"), "{}");
        assert_eq!(sample(&[b'x'; 500]).len(), 200);
        assert!(sample(&[0xff; 500]).len() <= 200);
        assert!(sample("ä".repeat(300).as_bytes()).len() <= 200);
    }

    fn lines(path: &Path) -> Result<Box<dyn Source>, ReadError> {
        let options = SourceOptions {
            format: Some(Format::JsonLines),
            ..SourceOptions::default()
        };
        open(path, options)
    }

    fn read_all(source: &mut dyn Source) {
        while source.next_batch().unwrap().is_some() {}
    }

    #[test]
    fn a_missing_file_is_named_in_the_error() {
        let error = lines(Path::new("/nowhere/to/be/found.jsonl"))
            .err()
            .unwrap();
        assert!(matches!(error, ReadError::Open { .. }));
        let text = error.to_string();
        assert!(text.starts_with("cannot open /nowhere/to/be/found.jsonl: "));
    }

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "the test changes a file that is read"
    )]
    fn a_file_that_grows_or_is_cut_short_while_it_is_read_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes.jsonl");
        for (text, shown) in [
            ("{}\n{}\n", None),
            ("{}\n{}\n{}\n", Some("grew from 6 to 9 bytes")),
            ("{}\n", Some("ended at byte 3 but had 6 bytes")),
        ] {
            std::fs::write(&path, "{}\n{}\n").unwrap();
            let mut source = lines(&path).unwrap();
            std::fs::write(&path, text).unwrap();
            read_all(&mut *source);
            let note = source.note().map(|note| note.to_string());
            let holds = |shown: &str| note.as_ref().is_some_and(|note| note.contains(shown));
            assert!(shown.map_or(note.is_none(), holds), "{note:?}");
        }
    }

    #[test]
    fn a_name_says_what_is_in_a_file() {
        let of = |name: &str| Format::of_name(Path::new(name));
        assert_eq!(of("a/b.csv"), Format::Csv(CsvFormat::default()));
        assert_eq!(of("b.CSV.gz"), Format::Csv(CsvFormat::default()));
        assert_eq!(of("b.jsonl.gz"), Format::JsonLines);
        assert_eq!(of("b.avro"), Format::Avro);
        assert_eq!(of("b"), Format::Json);
        assert!(Format::Parquet.matches(Path::new("x.parquet")));
        assert!(!Format::Parquet.matches(Path::new("x.csv")));
    }
}
