//! The report of a run: rows, events and errors.
//!
//! Every event read is accounted for: it was kept, dropped by a policy of the user's choice, or lost to an error.
//! Errors are all counted; the first few of each kind are kept with file, line and reason.

use std::collections::BTreeMap;

use highwater_connect::BadKind;
use highwater_engine::{DataError, DataErrors};
use highwater_time::{Instant, VerdictCounts};

/// How many samples of each kind of error are stored.
const SAMPLES_MAX: usize = 5;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub inputs: Vec<InputReport>,
    pub outputs: Vec<OutputReport>,
    /// Rows that a query expression failed on.
    pub errors: DataErrors,
    /// Events and rows that were written to the dead-letter output.
    pub dead_letters: u64,
}

#[derive(Clone, Debug, Default)]
pub struct InputReport {
    pub name: String,
    pub bytes: u64,
    /// Events that became rows and were put in order.
    pub time: VerdictCounts,
    pub errors: InputErrors,
    /// Remarks about whole files, such as one that was cut short while being read.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct OutputReport {
    pub name: String,
    pub rows: u64,
    /// Remarks about the rows written, such as values that the format has no column for.
    pub notes: Vec<String>,
}

/// Why an event was lost before any time policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InputErrorKind {
    /// The event cannot be decoded in the format of its input.
    Json,
    /// The arrival column is missing or not a date-time.
    Arrival,
    /// TIMESTAMP BY gives no date-time.
    Timestamp,
    /// A key of TIMESTAMP BY .. OVER is NULL.
    Key,
    /// A value is not of the type that CREATE TABLE declares.
    Type,
    /// A column that CREATE TABLE declares is absent.
    Missing,
    /// The header of a CSV file is unusable; none of its events were read.
    Header,
    /// The file is not compressed as declared; none of its events were read.
    Compression,
    /// The file is not of the declared format, or damaged from some position on.
    Format,
    /// Reading stopped before the end of the file.
    File,
}

impl InputErrorKind {
    /// The name of the data error, as users know it.
    pub fn name(self) -> &'static str {
        match self {
            InputErrorKind::Json => "InputDeserializerError.InvalidData",
            InputErrorKind::Arrival => "InvalidArrivalTime",
            InputErrorKind::Timestamp => "InvalidInputTimeStamp",
            InputErrorKind::Key => "InvalidInputTimeStampKey",
            InputErrorKind::Type => "InputDeserializerError.TypeConversionError",
            InputErrorKind::Missing => "InputDeserializerError.MissingColumns",
            InputErrorKind::Header => "InputDeserializerError.InvalidHeader",
            InputErrorKind::Compression => "InputDeserializerError.InvalidCompressionType",
            InputErrorKind::Format => "InputDeserializerError.InvalidData",
            InputErrorKind::File => "InputFileError",
        }
    }

    /// The code of the data error, as users know it.
    pub fn code(self) -> &'static str {
        match self {
            InputErrorKind::Timestamp => "InputEventTimestampNotFound",
            InputErrorKind::Key => "InputEventTimestampByOverValueNotFound",
            InputErrorKind::Arrival => "InputEventArrivalTimeNotFound",
            InputErrorKind::File => "InputFileError",
            _ => "InputDeserializationError",
        }
    }

    /// Whether it is about a whole file and not about one event.
    pub(crate) fn is_of_file(self) -> bool {
        matches!(
            self,
            InputErrorKind::Header
                | InputErrorKind::Compression
                | InputErrorKind::Format
                | InputErrorKind::File
        )
    }

    /// The kind of an event's error, or of a file's where `of_file`.
    pub(crate) fn of(kind: BadKind, of_file: bool) -> InputErrorKind {
        match kind {
            BadKind::InvalidData if of_file => InputErrorKind::Format,
            BadKind::InvalidData => InputErrorKind::Json,
            BadKind::TypeConversion => InputErrorKind::Type,
            BadKind::MissingColumns => InputErrorKind::Missing,
            BadKind::InvalidHeader => InputErrorKind::Header,
            BadKind::InvalidCompression => InputErrorKind::Compression,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputErrorSample {
    pub file: String,
    pub line: u64,
    pub reason: String,
    pub event: String,
}

impl InputErrorSample {
    /// The reason, prefixed with file and line if they are known.
    pub fn located(&self) -> String {
        match self.line {
            0 => self.reason.clone(),
            line => format!("{}:{line}: {}", self.file, self.reason),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct InputErrors {
    kinds: BTreeMap<InputErrorKind, InputErrorSummary>,
}

/// All errors of one kind.
#[derive(Clone, Debug, Default)]
pub struct InputErrorSummary {
    pub count: u64,
    /// The first few.
    pub samples: Vec<InputErrorSample>,
    /// The first and the last arrival among those whose arrival is known.
    pub arrivals: Option<(Instant, Instant)>,
}

impl InputErrorSummary {
    fn note_arrivals(&mut self, from: Instant, to: Instant) {
        self.arrivals = Some(match self.arrivals {
            Some((first, last)) => (first.min(from), last.max(to)),
            None => (from, to),
        });
    }
}

impl InputErrors {
    pub fn add(
        &mut self,
        kind: InputErrorKind,
        arrival: Option<Instant>,
        sample: impl FnOnce() -> InputErrorSample,
    ) {
        let sum = self.kinds.entry(kind).or_default();
        sum.count += 1;
        if sum.samples.len() < SAMPLES_MAX {
            sum.samples.push(sample());
        }
        if let Some(arrival) = arrival {
            sum.note_arrivals(arrival, arrival);
        }
    }

    pub fn merge(&mut self, other: InputErrors) {
        for (kind, theirs) in other.kinds {
            let ours = self.kinds.entry(kind).or_default();
            ours.count += theirs.count;
            ours.samples.extend(theirs.samples);
            ours.samples.truncate(SAMPLES_MAX);
            if let Some((from, to)) = theirs.arrivals {
                ours.note_arrivals(from, to);
            }
        }
    }

    pub fn count(&self) -> u64 {
        self.kinds.values().map(|sum| sum.count).sum()
    }

    pub fn of(&self, kind: InputErrorKind) -> u64 {
        self.kinds.get(&kind).map_or(0, |sum| sum.count)
    }

    /// The numbers of events that could not be decoded, and of events with an unusable value.
    pub(crate) fn by_stage(&self) -> (u64, u64) {
        self.iter()
            .fold((0, 0), |(read, converted), (kind, sum)| match kind {
                InputErrorKind::Json
                | InputErrorKind::Format
                | InputErrorKind::Header
                | InputErrorKind::Compression => (read + sum.count, converted),
                _ => (read, converted + sum.count),
            })
    }

    pub fn iter(&self) -> impl Iterator<Item = (InputErrorKind, &InputErrorSummary)> {
        self.kinds.iter().map(|(kind, sum)| (*kind, sum))
    }
}

impl InputReport {
    pub fn merge(&mut self, other: InputReport) {
        self.bytes += other.bytes;
        self.time.merge(&other.time);
        self.errors.merge(other.errors);
        self.notes.extend(other.notes);
    }

    /// All events that were read.
    pub fn events(&self) -> u64 {
        let of_events = self.errors.iter().filter(|(kind, _)| !kind.is_of_file());
        self.time.read + of_events.map(|(_, sum)| sum.count).sum::<u64>()
    }
}

impl Report {
    /// Whether events were lost other than by the user's policies.
    pub fn lost_data(&self) -> bool {
        self.errors.count > 0 || self.inputs.iter().any(|input| input.errors.count() > 0)
    }

    pub fn first_error(&self) -> Option<&DataError> {
        self.errors.samples.first()
    }
}

/// A time in the summary: short, to the millisecond.
pub fn short_time(time: Instant) -> String {
    let text = time.to_string();
    text.strip_suffix("0000Z")
        .map(|t| format!("{t}Z"))
        .unwrap_or(text)
}
