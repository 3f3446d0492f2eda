//! The tables of a job file and what each key in them means.

use std::path::Path;

use highwater_time::{Action, Policy};
use toml::de::DeValue;

use super::reader::{Reader, Section};
use super::{Expect, Input, JobFile, OnError, Order, Output, QuerySource, Sink};

const TOP_KEYS: &[&str] = &[
    "name", "query", "sql", "time", "inputs", "outputs", "errors", "expect",
];

pub(super) fn read_job(reader: &mut Reader, top: &Section, file_name: &str) -> Option<JobFile> {
    reader.known_keys(top, TOP_KEYS);
    let name = reader.text(top, "name", "toll-counts");
    let query = read_query(reader, top);
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
        .filter_map(|s| read_output(reader, s))
        .collect();
    let on_error = reader
        .section(top, "errors")
        .map(|s| read_errors(reader, &s));
    let expect = reader
        .section(top, "expect")
        .map(|s| read_expect(reader, &s));
    Some(JobFile {
        name: name.unwrap_or_else(|| default_name(file_name)),
        query: query?,
        time,
        inputs,
        outputs,
        on_error: on_error.unwrap_or_default(),
        expect,
    })
}

fn default_name(file_name: &str) -> String {
    let folder = Path::new(file_name).parent().and_then(Path::file_name);
    folder.map_or_else(
        || "job".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn read_query(reader: &mut Reader, top: &Section) -> Option<QuerySource> {
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

const ACTIONS: &[(&str, Action)] = &[("adjust", Action::Adjust), ("drop", Action::Drop)];

fn read_time(reader: &mut Reader, section: &Section) -> Policy {
    reader.known_keys(section, TIME_KEYS);
    let mut policy = Policy::default();
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

const INPUT_KEYS: &[&str] = &["type", "path", "arrival", "partition", "reference"];
const INPUT_TYPES: &[(&str, ())] = &[("file", ())];
const INPUT_TYPES_LATER: &[&str] = &["hub", "kafka"];

fn read_input(reader: &mut Reader, section: &Section) -> Option<Input> {
    // The other keys of an endpoint that is not there yet would only be called unknown.
    if section.has("type") {
        reader.choice(section, "type", INPUT_TYPES, INPUT_TYPES_LATER)?;
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
    Some(Input {
        name: section.leaf().to_owned(),
        paths: paths?,
        arrival,
        partition,
        reference,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum SinkType {
    File,
    Stdout,
}

const OUTPUT_KEYS: &[&str] = &["type", "path"];
const OUTPUT_TYPES: &[(&str, SinkType)] = &[("file", SinkType::File), ("stdout", SinkType::Stdout)];
const OUTPUT_TYPES_LATER: &[&str] = &["hub", "kafka", "postgres", "webhook", "queue"];

fn read_output(reader: &mut Reader, section: &Section) -> Option<Output> {
    let kind = match section.has("type") {
        true => reader.choice(section, "type", OUTPUT_TYPES, OUTPUT_TYPES_LATER)?,
        false => SinkType::File,
    };
    reader.known_keys(section, OUTPUT_KEYS);
    let path = reader.path(section, "path", "out/Alerts.jsonl");
    let sink = match kind {
        SinkType::Stdout => {
            reader.useless(
                section,
                "path",
                "an output of type \"stdout\" writes to no file",
            );
            Sink::Stdout
        }
        SinkType::File if section.has("path") => Sink::File(path?),
        SinkType::File => {
            let example = "path = \"out/Alerts.jsonl\", or type = \"stdout\"";
            reader.missing(section, "path", example);
            return None;
        }
    };
    Some(Output {
        name: section.leaf().to_owned(),
        sink,
    })
}

const ON_ERROR: &[(&str, OnError)] = &[("drop", OnError::Drop), ("stop", OnError::Stop)];

fn read_errors(reader: &mut Reader, section: &Section) -> OnError {
    reader.known_keys(section, &["on_error"]);
    reader
        .choice(section, "on_error", ON_ERROR, &["dead_letter"])
        .unwrap_or_default()
}

const ORDERS: &[(&str, Order)] = &[("any", Order::Any), ("strict", Order::Strict)];

fn read_expect(reader: &mut Reader, section: &Section) -> Expect {
    reader.known_keys(section, &["order", "error"]);
    let order = reader
        .choice(section, "order", ORDERS, &[])
        .unwrap_or_default();
    // Unlike other texts this one may be empty: any rejection will do.
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
