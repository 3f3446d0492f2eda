//! What a run did, and what went wrong on the way.
//!
//! Every event read is accounted for: it was kept, dropped by a policy of the user's choice, or lost to an error. Errors
//! are all counted; the first few of each kind are kept with file, line and reason.

use std::collections::BTreeMap;

use highwater_engine::{DataError, DataErrors};
use highwater_time::{Counts, Instant};

/// How many examples of each kind of trouble are kept.
const SAMPLES_MAX: usize = 5;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub inputs: Vec<InputReport>,
    pub outputs: Vec<OutputReport>,
    /// Rows that a query expression failed on.
    pub errors: DataErrors,
}

#[derive(Clone, Debug, Default)]
pub struct InputReport {
    pub name: String,
    pub bytes: u64,
    /// Events that became rows and were put in order.
    pub time: Counts,
    pub troubles: Troubles,
    /// Remarks about whole files, such as one that was cut short while being read.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct OutputReport {
    pub name: String,
    pub rows: u64,
}

/// Why an event never got as far as a time policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TroubleKind {
    /// The line is no JSON object that we can read.
    Json,
    /// The arrival column is missing or no date-time.
    Arrival,
    /// TIMESTAMP BY gives no date-time.
    Timestamp,
    /// A key of TIMESTAMP BY .. OVER is NULL.
    Key,
    /// Reading stopped before the end of the file.
    File,
}

impl TroubleKind {
    /// The name of the data error, as users know it.
    pub fn name(self) -> &'static str {
        match self {
            TroubleKind::Json => "InputDeserializerError.InvalidData",
            TroubleKind::Arrival => "InvalidArrivalTime",
            TroubleKind::Timestamp => "InvalidInputTimeStamp",
            TroubleKind::Key => "InvalidInputTimeStampKey",
            TroubleKind::File => "InputFileError",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub file: String,
    pub line: u64,
    pub reason: String,
    pub sample: String,
}

#[derive(Clone, Debug, Default)]
pub struct Troubles {
    kinds: BTreeMap<TroubleKind, (u64, Vec<Trouble>)>,
}

impl Troubles {
    pub fn add(&mut self, kind: TroubleKind, trouble: impl FnOnce() -> Trouble) {
        let (count, samples) = self.kinds.entry(kind).or_default();
        *count += 1;
        if samples.len() < SAMPLES_MAX {
            samples.push(trouble());
        }
    }

    pub fn merge(&mut self, other: Troubles) {
        for (kind, (count, samples)) in other.kinds {
            let ours = self.kinds.entry(kind).or_default();
            ours.0 += count;
            ours.1.extend(samples);
            ours.1.truncate(SAMPLES_MAX);
        }
    }

    pub fn count(&self) -> u64 {
        self.kinds.values().map(|(count, _)| count).sum()
    }

    pub fn of(&self, kind: TroubleKind) -> u64 {
        self.kinds.get(&kind).map_or(0, |(count, _)| *count)
    }

    pub fn iter(&self) -> impl Iterator<Item = (TroubleKind, u64, &[Trouble])> {
        self.kinds
            .iter()
            .map(|(kind, (count, samples))| (*kind, *count, &samples[..]))
    }
}

impl InputReport {
    pub fn merge(&mut self, other: InputReport) {
        self.bytes += other.bytes;
        self.time.merge(&other.time);
        self.troubles.merge(other.troubles);
        self.notes.extend(other.notes);
    }

    /// Events that were read, whatever became of them.
    pub fn events(&self) -> u64 {
        self.time.read + self.troubles.count() - self.troubles.of(TroubleKind::File)
    }
}

impl Report {
    /// Whether something was lost that no policy of the user's asked for.
    pub fn lost_data(&self) -> bool {
        self.errors.count > 0 || self.inputs.iter().any(|input| input.troubles.count() > 0)
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
