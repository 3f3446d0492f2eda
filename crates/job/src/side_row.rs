//! Rows that no statement makes: dead letters, and late events with their verdicts.
//!
//! A dead letter has the fields of a Stream Analytics data error (Source, Type, DataErrorType, ErrorCode, Message), and
//! those that locate and repeat the event. Files and hubs have different names for them, which users rely on. No field
//! depends on when or how fast the job ran, so side rows are numbered and delivered like all rows.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::codec::{ReadValue, WriteValue};
use highwater_engine::{DataError, OutputOverflow, Record, Value, eval};
use highwater_log::TopicPartition;
use highwater_query::TextPosition;
use highwater_time::{Instant, JudgedEvent};

use crate::account::shown_file;
use crate::load::Job;
use crate::report::InputErrorKind;

/// A row and the time that it is ordered by.
#[derive(Clone, Debug)]
pub(crate) struct SideRow {
    pub time: Instant,
    /// Orders rows of one stream and time: the offset or the line of the event.
    pub offset: u64,
    pub row: Value,
}

/// The source of a stream.
#[derive(Clone, Debug)]
pub(crate) enum StreamLocation {
    Hub {
        input: String,
        place: TopicPartition,
    },
    /// The file as the job file calls it.
    File { input: String, file: String },
}

impl StreamLocation {
    pub(crate) fn input(&self) -> &str {
        match self {
            StreamLocation::Hub { input, .. } | StreamLocation::File { input, .. } => input,
        }
    }
}

/// The location of an event.
#[derive(Clone, Copy)]
pub(crate) struct EventLocation<'a> {
    pub stream: &'a StreamLocation,
    /// The followed file that the event was read from, if it is known.
    pub file: Option<&'a str>,
    /// Offset or line; `None` for the whole file.
    pub offset: Option<u64>,
}

/// The query in dead letters.
pub(crate) struct QueryText {
    /// Its name in the job file.
    pub name: String,
    pub text: String,
}

/// An event that was lost before any time policy.
pub(crate) struct RejectedEvent<'a> {
    pub location: EventLocation<'a>,
    pub kind: InputErrorKind,
    pub reason: &'a str,
    pub event: Value,
    pub arrival: Option<Instant>,
}

/// A row that the query failed on.
pub(crate) struct FailedRow<'a> {
    pub error: &'a DataError,
    pub query: &'a QueryText,
    /// The location of the row's event; `None` if the row has several.
    pub location: Option<EventLocation<'a>>,
    pub event: Value,
}

impl QueryText {
    pub(crate) fn of(job: &Job) -> QueryText {
        QueryText {
            name: shown_file(&job.query_name, &job.file.folder),
            text: job.query.clone(),
        }
    }

    /// Why a job fails whose step has made too many rows.
    pub(crate) fn overflow_reason(&self, overflow: OutputOverflow) -> String {
        let OutputOverflow {
            step,
            span,
            bytes_max,
        } = overflow;
        let line = span.map(|span| TextPosition::of(&self.text, span).line);
        let line = line.map_or(String::new(), |line| {
            format!(" in line {line} of the query")
        });
        format!(
            "the {step}{line} makes more than {bytes_max} bytes of rows from one batch of events: let it make fewer, or \
             raise jobs.state_bytes_max"
        )
    }
}

type Fields = Vec<(&'static str, Value)>;

impl SideRow {
    /// The dead letter of an event. `None` for an event of a hub without an arrival, which has no order.
    pub(crate) fn of_rejected(rejected: RejectedEvent<'_>) -> Option<SideRow> {
        let RejectedEvent {
            location,
            kind,
            reason,
            event,
            arrival,
        } = rejected;
        let error = data_error(kind.name(), kind.code(), reason);
        match location.stream {
            StreamLocation::File { .. } => {
                let fields = file_letter(error, Some(location), event, Value::Null, Value::Null);
                Some(SideRow::new(Instant::BEFORE_ALL, location.offset, fields))
            }
            StreamLocation::Hub { .. } => {
                let mut fields = error;
                fields.extend(location.hub_fields());
                fields.push(("Event", event));
                fields.push(("EventEnqueuedUtcTime", Value::Time(arrival?)));
                Some(SideRow::new(arrival?, location.offset, fields))
            }
        }
    }

    /// The dead letter of a row of a job over files.
    pub(crate) fn of_failed_in_files(failed: &FailedRow<'_>) -> SideRow {
        let FailedRow { error, query, .. } = failed;
        let TextPosition { line, column, .. } = TextPosition::of(&query.text, error.span);
        let place = record(vec![
            ("Name", text(&query.name)),
            ("Line", Value::Int(line as i64)),
            ("Column", Value::Int(column as i64)),
        ]);
        let data_error = data_error("QueryRuntimeError", "RuntimeError", &error.reason);
        let (event, time) = (failed.event.clone(), Value::Time(error.time));
        let fields = file_letter(data_error, failed.location, event, time, place);
        let offset = failed.location.and_then(|location| location.offset);
        SideRow::new(error.time, offset, fields)
    }

    /// The dead letter of a row of a job over hubs.
    pub(crate) fn of_failed_in_hubs(failed: &FailedRow<'_>) -> SideRow {
        let FailedRow { error, query, .. } = failed;
        let TextPosition { line, column, .. } = TextPosition::of(&query.text, error.span);
        let mut fields = data_error("QueryRuntimeError", "RuntimeError", &error.reason);
        fields.extend(failed.location.iter().flat_map(EventLocation::hub_fields));
        fields.extend([
            ("Time", Value::Time(error.time)),
            ("Query", text(&query.name)),
            ("Line", Value::Int(line as i64)),
            ("Column", Value::Int(column as i64)),
        ]);
        let offset = failed.location.and_then(|location| location.offset);
        SideRow::new(error.time, offset, fields)
    }

    /// The row of an event that a policy adjusted or dropped.
    pub(crate) fn of_late(
        location: EventLocation<'_>,
        judged: &JudgedEvent,
        arrival: Instant,
        event: Value,
    ) -> SideRow {
        let mut fields = location.hub_fields();
        fields.extend([
            ("Event", event),
            ("Verdict", text(judged.verdict.name())),
            ("EventEnqueuedUtcTime", Value::Time(arrival)),
            ("EventTime", Value::Time(judged.event_time)),
            ("Watermark", time(judged.watermark_before)),
            (
                "Timestamp",
                judged.timestamp.map_or(Value::Null, Value::Time),
            ),
        ]);
        SideRow::new(arrival, location.offset, fields)
    }

    fn new(time: Instant, offset: Option<u64>, fields: Fields) -> SideRow {
        SideRow {
            time,
            offset: offset.unwrap_or_default(),
            row: record(fields),
        }
    }

    /// The order of rows that the query failed on. Those of one event differ by their text.
    pub(crate) fn order(&self) -> (Instant, u64, String) {
        let mut json = String::new();
        eval::write_json(self.row.view(), &mut json);
        (self.time, self.offset, json)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.i64(self.time.ticks());
        out.u64(self.offset);
        out.value(self.row.view());
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<SideRow, DecodeError> {
        Ok(SideRow {
            time: Instant::from_ticks(from.i64()?),
            offset: from.u64()?,
            row: from.value()?,
        })
    }
}

impl EventLocation<'_> {
    fn hub_fields(&self) -> Fields {
        let mut fields = vec![("Source", text(self.stream.input()))];
        if let StreamLocation::Hub { place, .. } = self.stream {
            fields.push(("Hub", text(place.hub.as_str())));
            fields.push(("Partition", Value::Int(place.partition.into())));
        }
        let offset = self.offset.unwrap_or_default();
        fields.push(("Offset", Value::Int(offset as i64)));
        fields.extend(self.file.map(|file| ("File", text(file))));
        fields
    }
}

/// The fields that Stream Analytics gives a data error.
fn data_error(kind: &str, code: &str, reason: &str) -> Fields {
    vec![
        ("Type", text("DataError")),
        ("DataErrorType", text(kind)),
        ("ErrorCode", text(code)),
        ("Message", text(reason)),
    ]
}

fn file_letter(
    error: Fields,
    location: Option<EventLocation<'_>>,
    event: Value,
    time: Value,
    query: Value,
) -> Fields {
    let input = location.map(|location| text(location.stream.input()));
    let file = location.and_then(|location| match location.stream {
        StreamLocation::File { file, .. } => Some(text(file)),
        StreamLocation::Hub { .. } => None,
    });
    let line = location.and_then(|location| location.offset);
    let mut fields = vec![("Source", input.unwrap_or(Value::Null))];
    fields.extend(error);
    fields.extend([
        ("Event", event),
        ("File", file.unwrap_or(Value::Null)),
        (
            "Line",
            line.map_or(Value::Null, |line| Value::Int(line as i64)),
        ),
        ("Time", time),
        ("Query", query),
    ]);
    fields
}

fn record(fields: Fields) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
    Value::Record(Arc::new(Record::from_fields(fields.collect())))
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn time(time: Instant) -> Value {
    match time > Instant::BEFORE_ALL {
        true => Value::Time(time),
        false => Value::Null,
    }
}

/// The start of a text, at most that many bytes.
pub(crate) fn prefix(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
