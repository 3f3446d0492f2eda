//! A block of decoded events with their times.
//!
//! Ordering needs the event time, which TIMESTAMP BY computes by any expression, and the substream key. An event
//! without one of them is rejected here with a reason, before any time policy.

use arrow_array::Array;
use arrow_buffer::BooleanBuffer;
use highwater_engine::eval::{self, Faults};
use highwater_engine::{Chunk, Column, ValueRef};
use highwater_query::plan::Expr;
use highwater_time::{Arrivals, Instant};

use crate::report::InputErrorKind;

/// A block's events with their times.
pub(crate) struct TimedEvents {
    pub chunk: Chunk,
    pub times: Vec<Instant>,
    pub arrivals: Option<Vec<Instant>>,
    /// The arrival of all events, if `arrivals` is `None`.
    pub default_arrivals: Arrivals<'static>,
    pub keys: Option<RowKeys>,
    /// The partition column, where the input has one.
    pub partitions: Option<Column>,
    /// The whole events, where dead letters or late events need them.
    pub whole: Option<Column>,
    pub lines: Vec<u64>,
}

impl TimedEvents {
    pub(crate) fn arrivals(&self) -> Arrivals<'_> {
        self.arrivals
            .as_ref()
            .map_or(self.default_arrivals, |arrivals| Arrivals::Each(arrivals))
    }

    pub(crate) fn keep(&self, mask: &BooleanBuffer) -> TimedEvents {
        fn pick<T: Clone>(values: &[T], mask: &BooleanBuffer) -> Vec<T> {
            mask.set_indices().map(|row| values[row].clone()).collect()
        }
        TimedEvents {
            chunk: self.chunk.filter(mask),
            times: pick(&self.times, mask),
            arrivals: self.arrivals.as_ref().map(|arrivals| pick(arrivals, mask)),
            default_arrivals: self.default_arrivals,
            keys: self.keys.as_ref().map(|keys| keys.keep(mask)),
            partitions: self.partitions.as_ref().map(|column| column.filter(mask)),
            whole: self.whole.as_ref().map(|column| column.filter(mask)),
            lines: pick(&self.lines, mask),
        }
    }
}

/// Substream keys as bytes and as text.
pub(crate) struct RowKeys {
    pub bytes: Vec<u8>,
    pub offsets: Vec<u32>,
    /// Only if the run traces events.
    pub shown: Option<Vec<String>>,
}

impl RowKeys {
    fn keep(&self, mask: &BooleanBuffer) -> RowKeys {
        let mut kept = RowKeys {
            bytes: Vec::new(),
            offsets: vec![0],
            shown: None,
        };
        for row in mask.set_indices() {
            let range = self.offsets[row] as usize..self.offsets[row + 1] as usize;
            kept.bytes.extend_from_slice(&self.bytes[range]);
            kept.offsets.push(kept.bytes.len() as u32);
        }
        kept.shown = self
            .shown
            .as_ref()
            .map(|s| mask.set_indices().map(|row| s[row].clone()).collect());
        kept
    }
}

/// Rows without an event time or key, with reasons.
pub(crate) struct RowErrors {
    rows: usize,
    by_row: std::collections::BTreeMap<usize, (InputErrorKind, String)>,
}

impl RowErrors {
    pub(crate) fn new(rows: usize) -> RowErrors {
        RowErrors {
            rows,
            by_row: Default::default(),
        }
    }

    pub(crate) fn add(
        &mut self,
        row: usize,
        kind: InputErrorKind,
        reason: impl FnOnce() -> String,
    ) {
        self.by_row.entry(row).or_insert_with(|| (kind, reason()));
    }

    pub(crate) fn any(&self) -> bool {
        !self.by_row.is_empty()
    }

    pub(crate) fn has(&self, row: usize) -> bool {
        self.by_row.contains_key(&row)
    }

    pub(crate) fn good(&self) -> BooleanBuffer {
        (0..self.rows).map(|row| !self.has(row)).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, InputErrorKind, &str)> {
        self.by_row
            .iter()
            .map(|(row, (kind, reason))| (*row, *kind, &reason[..]))
    }
}

pub(crate) fn times_column(times: &[Instant]) -> Column {
    Column::from_times(times.iter().map(|time| time.ticks()).collect())
}

/// The value of TIMESTAMP BY for every row.
pub(crate) fn event_times(expr: &Expr, chunk: &Chunk, errors: &mut RowErrors) -> Vec<Instant> {
    let mut faults = Faults::new(chunk.rows());
    let column = eval::evaluate(expr, chunk, &mut faults);
    for (row, fault) in faults.iter() {
        errors.add(row, InputErrorKind::Timestamp, || fault.reason.to_string());
    }
    if let Column::Time(times) = &column
        && times.nulls().is_none_or(|nulls| nulls.null_count() == 0)
    {
        return times
            .values()
            .iter()
            .map(|ticks| Instant::from_ticks(*ticks))
            .collect();
    }
    (0..chunk.rows())
        .map(|row| event_time(column.get(row), row, errors))
        .collect()
}

fn event_time(value: ValueRef<'_>, row: usize, errors: &mut RowErrors) -> Instant {
    let reason = match value {
        ValueRef::Time(time) => return time,
        ValueRef::Text(text) => match Instant::parse_iso(text.as_bytes()) {
            Some(time) => return time,
            None => format!("TIMESTAMP BY gives the text {text:?}, which is no ISO 8601 date-time"),
        },
        ValueRef::Null => "TIMESTAMP BY finds no ISO 8601 date-time in the event".into(),
        other => format!(
            "TIMESTAMP BY gives a {}, not an ISO 8601 date-time",
            other.type_name()
        ),
    };
    errors.add(row, InputErrorKind::Timestamp, || reason);
    Instant::BEFORE_ALL
}

pub(crate) fn substream_keys(
    keys: &[Expr],
    chunk: &Chunk,
    show: bool,
    errors: &mut RowErrors,
) -> Option<RowKeys> {
    if keys.is_empty() {
        return None;
    }
    let mut faults = Faults::new(chunk.rows());
    let columns: Vec<Column> = keys
        .iter()
        .map(|key| eval::evaluate(key, chunk, &mut faults))
        .collect();
    for (row, fault) in faults.iter() {
        errors.add(row, InputErrorKind::Key, || fault.reason.to_string());
    }
    let shown = show.then(Vec::new);
    let mut out = RowKeys {
        bytes: Vec::new(),
        offsets: vec![0],
        shown,
    };
    for row in 0..chunk.rows() {
        for column in &columns {
            let value = column.get(row);
            if value.is_null() {
                errors.add(row, InputErrorKind::Key, || {
                    "a key of TIMESTAMP BY .. OVER is NULL in this event".into()
                });
            }
            eval::encode_key(value, &mut out.bytes);
        }
        out.offsets.push(out.bytes.len() as u32);
        if let Some(shown) = &mut out.shown {
            shown.push(shown_key(&columns, row));
        }
    }
    Some(out)
}

fn shown_key(columns: &[Column], row: usize) -> String {
    let mut shown = String::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            shown.push(',');
        }
        eval::write_text(column.get(row), &mut shown);
    }
    shown
}
