//! A block of decoded events with their times.
//!
//! Before an event can be put in order its times must be read: TIMESTAMP BY may be any expression, and a substream has
//! keys. An event without a time or key is left out here, with its reason, and never meets a time policy.

use arrow_array::Array;
use arrow_buffer::BooleanBuffer;
use highwater_engine::eval::{self, Faults};
use highwater_engine::{Chunk, Column, ValueRef};
use highwater_query::plan::Expr;
use highwater_time::{Arrivals, Instant};

use crate::report::TroubleKind;

/// A block's events with their times.
pub(crate) struct TimedEvents {
    pub chunk: Chunk,
    pub times: Vec<Instant>,
    pub arrivals: Option<Vec<Instant>>,
    /// The arrival of all events, where there is none for each.
    pub otherwise: Arrivals<'static>,
    pub keys: Option<RowKeys>,
    /// The partition column, where the input has one.
    pub partitions: Option<Column>,
    /// The whole events, where dead letters or late events need them.
    pub whole: Option<Column>,
    pub lines: Vec<u64>,
}

impl TimedEvents {
    pub fn arrivals(&self) -> Arrivals<'_> {
        self.arrivals
            .as_ref()
            .map_or(self.otherwise, |arrivals| Arrivals::Each(arrivals))
    }

    pub fn keep(&self, mask: &BooleanBuffer) -> TimedEvents {
        fn pick<T: Clone>(values: &[T], mask: &BooleanBuffer) -> Vec<T> {
            mask.set_indices().map(|row| values[row].clone()).collect()
        }
        TimedEvents {
            chunk: self.chunk.filter(mask),
            times: pick(&self.times, mask),
            arrivals: self.arrivals.as_ref().map(|arrivals| pick(arrivals, mask)),
            otherwise: self.otherwise,
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
    /// Only with a witness.
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

/// Rows that cannot be timed, and why.
pub(crate) struct RowTroubles {
    rows: usize,
    by_row: std::collections::BTreeMap<usize, (TroubleKind, String)>,
}

impl RowTroubles {
    pub fn new(rows: usize) -> RowTroubles {
        RowTroubles {
            rows,
            by_row: Default::default(),
        }
    }

    pub fn add(&mut self, row: usize, kind: TroubleKind, reason: impl FnOnce() -> String) {
        self.by_row.entry(row).or_insert_with(|| (kind, reason()));
    }

    pub fn any(&self) -> bool {
        !self.by_row.is_empty()
    }

    pub fn has(&self, row: usize) -> bool {
        self.by_row.contains_key(&row)
    }

    pub fn good(&self) -> BooleanBuffer {
        (0..self.rows).map(|row| !self.has(row)).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, TroubleKind, &str)> {
        self.by_row
            .iter()
            .map(|(row, (kind, reason))| (*row, *kind, &reason[..]))
    }
}

pub(crate) fn times_column(times: &[Instant]) -> Column {
    Column::from_times(times.iter().map(|time| time.ticks()).collect())
}

/// The value of TIMESTAMP BY for every row.
pub(crate) fn event_times(expr: &Expr, chunk: &Chunk, troubles: &mut RowTroubles) -> Vec<Instant> {
    let mut faults = Faults::new(chunk.rows());
    let column = eval::evaluate(expr, chunk, &mut faults);
    for (row, fault) in faults.iter() {
        troubles.add(row, TroubleKind::Timestamp, || fault.reason.to_string());
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
        .map(|row| event_time(column.get(row), row, troubles))
        .collect()
}

fn event_time(value: ValueRef<'_>, row: usize, troubles: &mut RowTroubles) -> Instant {
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
    troubles.add(row, TroubleKind::Timestamp, || reason);
    Instant::BEFORE_ALL
}

pub(crate) fn substream_keys(
    keys: &[Expr],
    chunk: &Chunk,
    show: bool,
    troubles: &mut RowTroubles,
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
        troubles.add(row, TroubleKind::Key, || fault.reason.to_string());
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
                troubles.add(row, TroubleKind::Key, || {
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
