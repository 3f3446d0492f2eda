//! Rows that no statement makes: dead letters, and late events with what became of them.
//!
//! Nothing in them depends on when or how fast the job ran, so they are numbered and delivered like any other row.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_connect::BadEvent;
use highwater_engine::codec::{ReadValue, WriteValue};
use highwater_engine::{DataError, Record, Value, eval};
use highwater_log::TopicPartition;
use highwater_time::{Instant, JudgedEvent};

use crate::dead::line_and_column;
use crate::report::TroubleKind;

/// A row and the time that it is ordered by.
#[derive(Clone, Debug)]
pub(super) struct SideRow {
    pub time: Instant,
    /// What letters of one partition and time are ordered by: the offset of the event.
    pub offset: u64,
    pub row: Value,
}

/// Where an event lies.
pub(super) struct EventLocation<'a> {
    pub input: &'a str,
    pub place: &'a TopicPartition,
    /// What it was taken from, where that is known.
    pub file: Option<&'a str>,
    pub offset: u64,
}

impl EventLocation<'_> {
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = vec![
            ("Source", text(self.input)),
            ("Hub", text(self.place.hub.as_str())),
            ("Partition", Value::Int(self.place.partition.into())),
            ("Offset", Value::Int(self.offset as i64)),
        ];
        fields.extend(self.file.map(|file| ("File", text(file))));
        fields
    }
}

impl SideRow {
    /// Of an event that never got as far as a time policy.
    pub fn of_event(
        spot: &EventLocation<'_>,
        (kind, arrival): (TroubleKind, Instant),
        reason: &str,
        event: Value,
    ) -> SideRow {
        let mut fields = data_error((kind.name(), kind.code()), reason);
        fields.extend(spot.fields());
        fields.extend([
            ("Event", event),
            ("EventEnqueuedUtcTime", Value::Time(arrival)),
        ]);
        SideRow::new(arrival, spot.offset, fields)
    }

    pub fn of_bad_event(spot: &EventLocation<'_>, arrival: Instant, bad: &BadEvent) -> SideRow {
        let kind = TroubleKind::of(bad.kind, false);
        SideRow::of_event(spot, (kind, arrival), &bad.reason, text(&bad.text))
    }

    /// Of a row that the query failed on; `spot` is that of the event that it was made of, where that is known.
    pub fn of_row(
        error: &DataError,
        query: (&str, &str),
        spot: Option<&EventLocation<'_>>,
    ) -> SideRow {
        let (line, column) = line_and_column(query.1, error.span.start as usize);
        let mut fields = data_error(("QueryRuntimeError", "RuntimeError"), &error.reason);
        fields.extend(spot.into_iter().flat_map(EventLocation::fields));
        fields.extend([
            ("Time", Value::Time(error.time)),
            ("Query", text(query.0)),
            ("Line", Value::Int(line as i64)),
            ("Column", Value::Int(column as i64)),
        ]);
        SideRow::new(error.time, spot.map_or(0, |spot| spot.offset), fields)
    }

    /// Of an event that a policy moved or dropped.
    pub fn of_fate(
        spot: &EventLocation<'_>,
        fate: &JudgedEvent,
        arrival: Instant,
        event: Value,
    ) -> SideRow {
        let mut fields = spot.fields();
        fields.extend([
            ("Event", event),
            ("Verdict", text(fate.verdict.name())),
            ("EventEnqueuedUtcTime", Value::Time(arrival)),
            ("EventTime", Value::Time(fate.event_time)),
            ("Watermark", time(fate.watermark_before)),
            ("Timestamp", fate.timestamp.map_or(Value::Null, Value::Time)),
        ]);
        SideRow::new(arrival, spot.offset, fields)
    }

    fn new(time: Instant, offset: u64, fields: Vec<(&'static str, Value)>) -> SideRow {
        let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
        SideRow {
            time,
            offset,
            row: Value::Record(Arc::new(Record::from_fields(fields.collect()))),
        }
    }

    /// What letters of rows are ordered by. Those of one event are told apart by what they say.
    pub fn order(&self) -> (Instant, u64, String) {
        let mut json = String::new();
        eval::write_json(self.row.view(), &mut json);
        (self.time, self.offset, json)
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.i64(self.time.ticks());
        out.u64(self.offset);
        out.value(self.row.view());
    }

    pub fn read(from: &mut Reader<'_>) -> Result<SideRow, DecodeError> {
        Ok(SideRow {
            time: Instant::from_ticks(from.i64()?),
            offset: from.u64()?,
            row: from.value()?,
        })
    }
}

/// The fields that Stream Analytics gives a data error.
fn data_error((kind, code): (&str, &str), reason: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("Type", text("DataError")),
        ("DataErrorType", text(kind)),
        ("ErrorCode", text(code)),
        ("Message", text(reason)),
    ]
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
