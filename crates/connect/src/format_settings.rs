//! The keys `format`, `delimiter` and `header` of inputs and outputs in a job file.

use highwater_settings::{FileReader, Section};

use crate::source::CsvFormat;
use crate::writer::OutputFormat;

const OUTPUT_FORMATS: &[(&str, OutputFormat)] = &[
    ("jsonl", OutputFormat::JsonLines),
    ("json", OutputFormat::JsonArray),
    ("csv", OutputFormat::Csv(CsvFormat::COMMA)),
    ("parquet", OutputFormat::Parquet),
];

impl OutputFormat {
    /// Reads the format of an output. A format that is not built in is a mistake.
    pub(crate) fn read(
        reader: &mut FileReader<'_>,
        section: &Section<'_>,
        default: OutputFormat,
    ) -> OutputFormat {
        let format = reader.choice(section, "format", OUTPUT_FORMATS, &[]);
        let format = format.unwrap_or(default);
        let csv = CsvFormat::read(reader, section, matches!(format, OutputFormat::Csv(_)));
        let named_by = ["format", "path"].into_iter();
        if let Err(missing) = format.check_built_in()
            && let Some(entry) = named_by.filter_map(|key| section.entry(key)).next()
        {
            let (message, span) = (missing.to_string(), entry.key_span());
            reader.mistake(span, &message, entry.path(), "not a format here");
        }
        match (format, csv) {
            (OutputFormat::Csv(_), Some(csv)) => OutputFormat::Csv(csv),
            (format, _) => format,
        }
    }
}

impl CsvFormat {
    /// Reads `delimiter` and `header`; `None` without both. They are mistakes unless the format `is_csv`.
    pub fn read(
        reader: &mut FileReader<'_>,
        section: &Section<'_>,
        is_csv: bool,
    ) -> Option<CsvFormat> {
        let mut csv = CsvFormat::COMMA;
        if !section.has("delimiter") && !section.has("header") {
            return None;
        }
        if !is_csv {
            for key in ["delimiter", "header"] {
                reader.useless(section, key, "only format = \"csv\" has it");
            }
            return None;
        }
        if let Some(header) = reader.boolean(section, "header") {
            csv.header = header;
        }
        if let Some(entry) = section.entry("delimiter") {
            match entry.value().as_str() {
                Some(text) if is_delimiter(text) => csv.delimiter = text.as_bytes()[0],
                _ => reader.wrong_type(&entry, "one character such as \",\"", "delimiter = \";\""),
            }
        }
        Some(csv)
    }
}

/// Whether the text is one ASCII character that is no quote and ends no line.
pub fn is_delimiter(text: &str) -> bool {
    matches!(text.as_bytes(), [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte))
}
