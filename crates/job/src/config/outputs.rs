//! The `[outputs.*]` tables. Kinds that only a live job writes to are read by `connect`, which lists them in
//! [`OUTPUT_KINDS`]; this module gives them their keys.

use std::sync::Arc;

use highwater_connect::{OUTPUT_KINDS, OutputFormat, OutputKind, OutputSettings, SettingsReader};
use highwater_settings::{FileReader, Section};
use highwater_time::Duration;
use toml::de::DeValue;

use super::live;
use super::sections::{COMMA, read_csv};
use super::{Output, Sink};

#[derive(Clone, Copy)]
enum OutputType {
    File,
    Stdout,
    Live(&'static OutputKind),
}

const FILE_KEYS: &[&str] = &[
    "type",
    "path",
    "format",
    "delimiter",
    "header",
    "on_failure",
];
const FORMATS: &[(&str, OutputFormat)] = &[
    ("jsonl", OutputFormat::JsonLines),
    ("json", OutputFormat::JsonArray),
    ("csv", OutputFormat::Csv(COMMA)),
    ("parquet", OutputFormat::Parquet),
];
const TYPES_LATER: &[&str] = &["kafka"];

pub(super) fn read_output(reader: &mut FileReader, section: &Section) -> Option<Output> {
    let kind = match section.has("type") {
        true => reader.choice(section, "type", &types(), TYPES_LATER)?,
        false => OutputType::File,
    };
    let on_failure = live::read_on_failure(reader, section);
    let (sink, format) = match kind {
        OutputType::Live(kind) => {
            let settings = read_settings(reader, section, kind)?;
            (Sink::Live(settings), OutputFormat::JsonLines)
        }
        OutputType::File => read_file(reader, section)?,
        OutputType::Stdout => read_stdout(reader, section),
    };
    Some(Output {
        name: section.leaf().to_owned(),
        sink,
        format,
        on_failure,
    })
}

fn types() -> Vec<(&'static str, OutputType)> {
    let live = OUTPUT_KINDS
        .iter()
        .map(|kind| (kind.name, OutputType::Live(kind)));
    let mut types = vec![("file", OutputType::File), ("stdout", OutputType::Stdout)];
    types.extend(live);
    types
}

fn read_file(reader: &mut FileReader, section: &Section) -> Option<(Sink, OutputFormat)> {
    reader.known_keys(section, FILE_KEYS);
    let path = reader.path(section, "path", "out/Alerts.jsonl");
    if !section.has("path") {
        let example = "path = \"out/Alerts.jsonl\", or type = \"stdout\"";
        reader.missing(section, "path", example);
    }
    let path = path?;
    let format = read_format(reader, section, OutputFormat::of_name(&path));
    Some((Sink::File(path), format))
}

fn read_stdout(reader: &mut FileReader, section: &Section) -> (Sink, OutputFormat) {
    reader.known_keys(section, FILE_KEYS);
    reader.useless(
        section,
        "path",
        "an output of type \"stdout\" writes to no file",
    );
    let format = read_format(reader, section, OutputFormat::JsonLines);
    if format == OutputFormat::Parquet {
        reader.useless(
            section,
            "format",
            "Parquet is written to files only; give the output a path",
        );
    }
    (Sink::Stdout, format)
}

fn read_format(reader: &mut FileReader, section: &Section, default: OutputFormat) -> OutputFormat {
    let format = reader.choice(section, "format", FORMATS, &[]);
    let format = format.unwrap_or(default);
    let csv = read_csv(reader, section, matches!(format, OutputFormat::Csv(_)));
    match (format, csv) {
        (OutputFormat::Csv(_), Some(csv)) => OutputFormat::Csv(csv),
        (format, _) => format,
    }
}

fn read_settings(
    reader: &mut FileReader,
    section: &Section,
    kind: &OutputKind,
) -> Option<Arc<dyn OutputSettings>> {
    if let (Some(missing), Some(entry)) = (kind.missing_feature, section.entry("type")) {
        let label = format!("no outputs of type \"{}\" here", kind.name);
        reader.mistake(
            entry.key_span(),
            &missing.to_string(),
            &section.path("type"),
            &label,
        );
        return None;
    }
    let mut keys = vec!["type", "on_failure"];
    keys.extend(kind.keys);
    reader.known_keys(section, &keys);
    (kind.read)(&mut OutputTable { reader, section })
}

/// One `[outputs.*]` table, as `connect` reads it.
struct OutputTable<'a, 's, 't> {
    reader: &'a mut FileReader<'s>,
    section: &'a Section<'t>,
}

impl SettingsReader for OutputTable<'_, '_, '_> {
    fn text(&mut self, key: &str, example: &str) -> Option<String> {
        self.reader.text(self.section, key, example)
    }

    fn required_text(&mut self, key: &str, example: &str) -> Option<String> {
        if !self.section.has(key) {
            let example = format!("{key} = \"{example}\"");
            self.reader.missing(self.section, key, &example);
        }
        self.text(key, example)
    }

    fn texts(&mut self, key: &str, example: &str) -> Option<Vec<String>> {
        self.reader.texts(self.section, key, example)
    }

    fn pairs(&mut self, key: &str, example: &str) -> Vec<(String, String)> {
        let Some(table) = self.reader.section(self.section, key) else {
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for entry in table.entries() {
            match entry.value() {
                DeValue::String(text) => pairs.push((entry.name().to_owned(), text.to_string())),
                _ => self.reader.wrong_type(&entry, "a string", example),
            }
        }
        pairs
    }

    fn boolean(&mut self, key: &str) -> Option<bool> {
        self.reader.boolean(self.section, key)
    }

    fn number(&mut self, key: &str) -> Option<u64> {
        self.reader.number(self.section, key)
    }

    fn duration(&mut self, key: &str) -> Option<Duration> {
        self.reader.duration(self.section, key)
    }

    fn duration_or_off(&mut self, key: &str) -> Option<Option<Duration>> {
        self.reader.duration_or_off(self.section, key)
    }

    fn format(&mut self) -> OutputFormat {
        let format = read_format(self.reader, self.section, OutputFormat::JsonLines);
        if let (Err(missing), Some(entry)) = (format.check_built_in(), self.section.entry("format"))
        {
            let (message, key) = (missing.to_string(), self.section.path("format"));
            self.reader
                .mistake(entry.key_span(), &message, &key, "not a format here");
        }
        format
    }
}
