//! Reads the tables of a job file.

use std::path::{Path, PathBuf};

use highwater_connect::{Compression, CsvFormat, Format, Level};
use highwater_settings::{FileReader, Section};
use highwater_time::{Duration, TimePolicy, ViolationAction};
use toml::de::DeValue;

use super::{Expect, Function, Input, JobFile, OnError, Order, Output, QuerySource};
use super::{kafka, live};
use crate::reference;

const TOP_KEYS: &[&str] = &[
    "name",
    "query",
    "sql",
    "compatibility",
    "ignore_case",
    "strict_types",
    "time",
    "inputs",
    "outputs",
    "functions",
    "errors",
    "start",
    "checkpoint",
    "work",
    "state",
    "late",
    "expect",
];

const LEVELS: &[(&str, Level)] = &[
    ("1.2", Level::V1_2),
    ("1.1", Level::V1_1),
    ("1.0", Level::V1_0),
];

pub(super) fn read_job(reader: &mut FileReader, top: &Section, file_name: &str) -> Option<JobFile> {
    reader.known_keys(top, TOP_KEYS);
    let name = reader.text(top, "name", "toll-counts");
    let query = read_query(reader, top);
    let compatibility = reader.choice(top, "compatibility", LEVELS, &[]);
    let ignore_case = reader.boolean(top, "ignore_case");
    let strict_types = reader.boolean(top, "strict_types");
    let time = reader
        .section(top, "time")
        .map(|s| read_time(reader, &s))
        .unwrap_or_default();
    let inputs = reader.named(top, "inputs", "Entry");
    let inputs: Vec<_> = inputs
        .iter()
        .filter_map(|s| read_input(reader, s))
        .collect();
    let outputs = reader.named(top, "outputs", "Alerts");
    let outputs: Vec<_> = outputs
        .iter()
        .filter_map(|s| Output::read(reader, s))
        .collect();
    let functions = reader.named(top, "functions", "toCelsius");
    let functions: Vec<_> = functions
        .iter()
        .filter_map(|s| read_function(reader, s))
        .collect();
    let errors = reader
        .section(top, "errors")
        .map(|s| read_errors(reader, &s, &outputs));
    let (on_error, dead_letter) = errors.unwrap_or_default();
    let live = live::read_live(reader, top, &outputs);
    let expect = reader
        .section(top, "expect")
        .map(|s| read_expect(reader, &s));
    Some(JobFile {
        name: name.unwrap_or_else(|| default_name(file_name)),
        query: query?,
        folder: PathBuf::new(),
        compatibility: compatibility.unwrap_or_default(),
        ignore_case: ignore_case.unwrap_or_default(),
        strict_types: strict_types.unwrap_or_default(),
        time,
        inputs,
        outputs,
        on_error,
        dead_letter,
        remarks: Vec::new(),
        functions,
        live,
        expect,
        project: false,
        remote_inputs: Vec::new(),
    })
}

fn default_name(file_name: &str) -> String {
    let folder = Path::new(file_name).parent().and_then(Path::file_name);
    folder.map_or_else(
        || "job".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn read_query(reader: &mut FileReader, top: &Section) -> Option<QuerySource> {
    let path = reader.path(top, "query", "query.saql");
    let sql = reader.text(top, "sql", "SELECT * FROM Input");
    match (top.entry("query"), top.entry("sql")) {
        (Some(_), Some(sql)) => {
            let label = "keep one of \"query\" (a file) and \"sql\" (the text itself)";
            reader.mistake(sql.key_span(), "the query is given twice", "sql", label);
            None
        }
        (None, None) => {
            reader.missing(
                top,
                "query",
                "query = \"query.saql\", or sql = \"SELECT ...\"",
            );
            None
        }
        _ => path.map(QuerySource::File).or(sql.map(QuerySource::Inline)),
    }
}

const TIME_KEYS: &[&str] = &[
    "late_arrival",
    "out_of_order",
    "early_arrival",
    "late_events",
    "out_of_order_events",
    "early_events",
];

const ACTIONS: &[(&str, ViolationAction)] = &[
    ("adjust", ViolationAction::Adjust),
    ("drop", ViolationAction::Drop),
];

fn read_time(reader: &mut FileReader, section: &Section) -> TimePolicy {
    reader.known_keys(section, TIME_KEYS);
    let mut policy = TimePolicy::default();
    if let Some(late) = reader.duration(section, "late_arrival") {
        policy.late_arrival = late;
    }
    if let Some(bound) = reader.duration(section, "out_of_order") {
        policy.out_of_order = bound;
    }
    if let Some(early) = reader.duration_or_off(section, "early_arrival") {
        policy.early_arrival = early;
    }
    let actions = [
        ("late_events", &mut policy.late_events),
        ("out_of_order_events", &mut policy.out_of_order_events),
        ("early_events", &mut policy.early_events),
    ];
    for (key, action) in actions {
        if let Some(chosen) = reader.choice(section, key, ACTIONS, &[]) {
            *action = chosen;
        }
    }
    policy
}

const INPUT_KEYS: &[&str] = &[
    "type",
    "path",
    "arrival",
    "partition",
    "reference",
    "refresh",
    "format",
    "compression",
    "delimiter",
    "header",
];
/// The keys of the format of records.
const FORMAT_KEYS: &[&str] = &["format", "compression", "delimiter", "header"];

#[derive(Clone, Copy, PartialEq)]
enum InputType {
    File,
    Hub,
    Kafka,
}

const INPUT_TYPES: &[(&str, InputType)] = &[
    ("file", InputType::File),
    ("hub", InputType::Hub),
    ("kafka", InputType::Kafka),
];

fn read_input(reader: &mut FileReader, section: &Section) -> Option<Input> {
    // The other keys of an unsupported type would be reported as unknown.
    let kind = match section.has("type") {
        true => reader.choice(section, "type", INPUT_TYPES, &[])?,
        false if section.has("hub") => InputType::Hub,
        false => InputType::File,
    };
    match kind {
        InputType::File => {}
        InputType::Hub => return read_hub_input(reader, section),
        InputType::Kafka => return read_kafka_input(reader, section),
    }
    reader.known_keys(section, INPUT_KEYS);
    let paths = reader.paths(section, "path", "input/Entry.jsonl");
    if !section.has("path") {
        reader.missing(section, "path", "path = \"input/Entry.jsonl\"");
    }
    let arrival = reader.text(section, "arrival", "ArrivalTime");
    let partition = reader.text(section, "partition", "PartitionId");
    let reference = reader.boolean(section, "reference").unwrap_or(false);
    if reference {
        for key in ["arrival", "partition"] {
            reader.useless(
                section,
                key,
                "reference data has neither arrival times nor partitions",
            );
        }
    }
    let refresh = read_refresh(reader, section, paths.as_deref().unwrap_or_default());
    let named = paths.as_ref().and_then(|paths| paths.first());
    let named = named.map(|path| Format::of_name(path));
    let format = read_format(reader, section, INPUT_FORMATS, named);
    let compression = reader.choice(section, "compression", COMPRESSIONS, &[]);
    Some(Input {
        name: section.leaf().to_owned(),
        paths: paths?,
        hubs: Vec::new(),
        kafka: None,
        arrival,
        partition,
        reference,
        refresh,
        format,
        compression: compression.unwrap_or_default(),
    })
}

/// Reference data with a time in its path is refreshed every minute by default.
fn read_refresh(reader: &mut FileReader, section: &Section, paths: &[PathBuf]) -> Option<Duration> {
    if reader.boolean(section, "reference") != Some(true) {
        reader.useless(section, "refresh", "only reference data is refreshed");
        return None;
    }
    let dated = paths.iter().any(|path| reference::is_pattern(path));
    let by_default = dated.then(|| Duration::from_minutes(1));
    reader
        .duration_or_off(section, "refresh")
        .unwrap_or(by_default)
}

fn read_hub_input(reader: &mut FileReader, section: &Section) -> Option<Input> {
    reader.known_keys(section, &[&["type", "hub"], FORMAT_KEYS].concat());
    let hubs = reader.texts(section, "hub", "toll");
    if !section.has("hub") {
        reader.missing(section, "hub", "hub = \"toll\"");
    }
    let input = read_record_input(reader, section);
    Some(Input {
        hubs: hubs?,
        ..input
    })
}

fn read_kafka_input(reader: &mut FileReader, section: &Section) -> Option<Input> {
    reader.known_keys(section, &[&kafka::keys(), FORMAT_KEYS].concat());
    let read = kafka::read(reader, section);
    let input = read_record_input(reader, section);
    let (topic, kafka) = read?;
    Some(Input {
        hubs: vec![topic],
        kafka: Some(kafka),
        ..input
    })
}

/// An input from records, without its hubs.
fn read_record_input(reader: &mut FileReader, section: &Section) -> Input {
    // Parquet is a format of files.
    let formats = INPUT_FORMATS.iter().copied();
    let formats: Vec<_> = formats
        .filter(|(_, format)| *format != Format::Parquet)
        .collect();
    let format = read_format(reader, section, &formats, None);
    let compression = reader.choice(section, "compression", COMPRESSIONS, &[]);
    Input {
        name: section.leaf().to_owned(),
        paths: Vec::new(),
        hubs: Vec::new(),
        kafka: None,
        arrival: None,
        partition: None,
        reference: false,
        refresh: None,
        format,
        compression: compression.unwrap_or_default(),
    }
}

/// `named` is the format by the file name, for an input without a `format`.
fn read_format(
    reader: &mut FileReader,
    section: &Section,
    formats: &[(&str, Format)],
    named: Option<Format>,
) -> Option<Format> {
    let format = reader.choice(section, "format", formats, &[]);
    let is_csv = matches!(format.or(named), Some(Format::Csv(_)));
    let csv = CsvFormat::read(reader, section, is_csv);
    match (format, csv) {
        (Some(Format::Csv(_)), csv) => Some(Format::Csv(csv.unwrap_or_default())),
        (None, Some(csv)) => Some(Format::Csv(csv)),
        (format, _) => format,
    }
}

const INPUT_FORMATS: &[(&str, Format)] = &[
    ("json", Format::Json),
    ("jsonl", Format::JsonLines),
    ("csv", Format::Csv(CsvFormat::COMMA)),
    ("avro", Format::Avro),
    ("parquet", Format::Parquet),
];

const COMPRESSIONS: &[(&str, Compression)] = &[
    ("gzip", Compression::Gzip),
    ("deflate", Compression::Deflate),
    ("none", Compression::None),
];

fn read_function(reader: &mut FileReader, section: &Section) -> Option<Function> {
    if let Some(endpoint) = section.entry("endpoint") {
        let message = "a machine-learning function cannot be called from a query";
        let label = "a query asks no other machine; score the events before or after it";
        reader.mistake(
            endpoint.key_span(),
            message,
            &section.path("endpoint"),
            label,
        );
        return None;
    }
    reader.known_keys(section, &["path"]);
    let path = reader.path(section, "path", "functions/toCelsius.js");
    let dot_net = |path: &PathBuf| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        kind.is_some_and(|kind| ["cs", "csproj", "dll"].contains(&kind))
    };
    if path.as_ref().is_some_and(dot_net)
        && let Some(entry) = section.entry("path")
    {
        let message = "functions in .NET do not run here";
        let label = "write it in JavaScript, for example functions/toCelsius.js";
        reader.mistake(entry.key_span(), message, &section.path("path"), label);
    }
    if !section.has("path") {
        reader.missing(section, "path", "path = \"functions/toCelsius.js\"");
    }
    Some(Function {
        name: section.leaf().to_owned(),
        path: path?,
    })
}

const ON_ERROR: &[(&str, OnError)] = &[
    ("drop", OnError::Drop),
    ("stop", OnError::Stop),
    ("dead_letter", OnError::DeadLetter),
];

fn read_errors(
    reader: &mut FileReader,
    section: &Section,
    outputs: &[Output],
) -> (OnError, Option<String>) {
    reader.known_keys(section, &["on_error", "dead_letter"]);
    let on_error = reader.choice(section, "on_error", ON_ERROR, &[]);
    let name = reader.text(section, "dead_letter", "DeadLetters");
    match (on_error, section.entry("dead_letter")) {
        (Some(OnError::DeadLetter), None) => {
            reader.missing(section, "dead_letter", "dead_letter = \"DeadLetters\"");
        }
        (Some(OnError::DeadLetter), Some(entry)) => {
            let named = |output: &&Output| Some(&output.name) == name.as_ref();
            match outputs.iter().find(named) {
                None if name.is_some() => {
                    let message = "there is no such output for dead letters";
                    let label = "name one of the outputs of this file, or add one";
                    reader.mistake(entry.key_span(), message, "errors.dead_letter", label);
                }
                Some(output) if !output.writes_lines() => {
                    let message = "dead letters are written as lines of JSON";
                    let label = "name an output with format = \"jsonl\"";
                    reader.mistake(entry.key_span(), message, "errors.dead_letter", label);
                }
                _ => {}
            }
        }
        (_, Some(_)) => reader.useless(
            section,
            "dead_letter",
            "it needs on_error = \"dead_letter\"",
        ),
        _ => {}
    }
    (on_error.unwrap_or_default(), name)
}

const ORDERS: &[(&str, Order)] = &[("any", Order::Any), ("strict", Order::Strict)];

fn read_expect(reader: &mut FileReader, section: &Section) -> Expect {
    reader.known_keys(section, &["order", "error"]);
    let order = reader
        .choice(section, "order", ORDERS, &[])
        .unwrap_or_default();
    // May be empty: then any rejection passes.
    let error = section
        .entry("error")
        .and_then(|entry| match entry.value() {
            DeValue::String(text) => Some(text.clone().into_owned()),
            _ => {
                reader.wrong_type(&entry, "a string", "error = \"not grouped\"");
                None
            }
        });
    Expect { order, error }
}
