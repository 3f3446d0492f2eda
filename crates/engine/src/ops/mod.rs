//! Operators: what a pipeline is made of.
//!
//! An operator is four functions: push a chunk, advance the watermark, snapshot, restore. It never sees a clock, and
//! what it emits depends on the rows and watermarks it was given, not on how they were cut into chunks. Only a
//! watermark makes a stateful operator emit, and the rows it emits after watermark `w` are never earlier than `w`.

mod accumulate;
mod agenda;
mod analytic;
mod apply;
mod cells;
mod fanout;
mod grid;
mod groups;
pub(crate) mod having;
mod interned;
mod join;
mod key_bytes;
mod keys;
mod lanes;
mod lookup;
mod meeting;
mod merge;
mod pane_window;
mod panes;
mod pattern;
mod rolling;
mod rolls;
mod room;
mod session;
pub(crate) mod sizes;
mod sliding;
mod stateless;

use highwater_codec::{DecodeError, Reader};
use highwater_query::Span;
use highwater_time::Instant;

use crate::chunk::Chunk;
use crate::eval::Faults;

pub(crate) use analytic::Analytics;
pub(crate) use apply::Apply;
pub(crate) use grid::PaneGrid;
pub(crate) use groups::{GroupSpec, Groups};
pub(crate) use join::Join;
pub(crate) use lanes::Windowed;
pub use lookup::ReferenceTable;
pub(crate) use lookup::{Lookup, LookupTable};
pub(crate) use meeting::{Meeting, Member, Named};
pub use merge::Merge;
pub(crate) use pane_window::PaneWindow;
pub(crate) use panes::{PaneFill, PaneJoin};
pub(crate) use pattern::Matcher;
pub(crate) use session::{KeySessions, Rule as SessionRule, Sessions};
pub(crate) use sliding::Sliding;
pub(crate) use stateless::{Filter, Project};

/// What flows along an edge of a pipeline.
#[derive(Clone, Debug)]
pub enum Item {
    Rows(Chunk),
    /// Finished panes of a windowed aggregate, on their way to meet those of other partitions.
    Shares(Vec<Share>),
    /// No row with an earlier time will follow.
    Watermark(Instant),
}

/// One partition's share of one pane.
#[derive(Clone, Debug)]
pub struct Share {
    pub(crate) end: i64,
    pub(crate) groups: Groups,
}

pub trait Operator: Send {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>);
    fn snapshot(&self, out: &mut Vec<u8>);
    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError>;

    /// Adds a port behind the others, which has come as far as all of them have. `false` where that cannot be.
    fn add_port(&mut self) -> bool {
        false
    }
}

/// Where an operator leaves what it made.
#[derive(Debug)]
pub struct Context<'a> {
    pub out: &'a mut Vec<Item>,
    pub errors: &'a mut DataErrors,
    pub trace: Option<&'a mut Vec<WindowEntry>>,
}

/// Rows that were left out because an expression failed on them: all counted, the first few kept.
#[derive(Clone, Debug, Default)]
pub struct DataErrors {
    pub count: u64,
    pub samples: Vec<DataError>,
    pub remarks: Remarks,
    /// Every one of them, until it is taken; only where somebody asked with [`DataErrors::keep_all`].
    kept: Option<Vec<DataError>>,
}

/// Rows in which something was put right: all counted, the first one kept.
#[derive(Clone, Debug, Default)]
pub struct Remarks {
    pub count: u64,
    pub first: Option<DataError>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError {
    pub time: Instant,
    pub span: Span,
    pub reason: String,
    /// The event that the row was made of, where rows know.
    pub origin: Option<u64>,
}

pub(crate) const SAMPLES_MAX: usize = 10;

impl DataErrors {
    pub fn add(&mut self, time: Instant, span: Span, reason: impl FnOnce() -> String) {
        self.add_from(None, time, span, reason);
    }

    fn add_from(
        &mut self,
        origin: Option<u64>,
        time: Instant,
        span: Span,
        reason: impl FnOnce() -> String,
    ) {
        self.count += 1;
        if self.samples.len() >= SAMPLES_MAX && self.kept.is_none() {
            return;
        }
        let reason = reason();
        let error = DataError {
            time,
            span,
            reason,
            origin,
        };
        if let Some(kept) = &mut self.kept {
            kept.push(error.clone());
        }
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(error);
        }
    }

    /// From now on keeps every error for [`DataErrors::take_kept`]; whoever asks must take them as they come.
    pub fn keep_all(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// The errors since the last call, where they are kept.
    pub fn take_kept(&mut self) -> Vec<DataError> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Counts what was put right.
    pub(crate) fn note(&mut self, faults: &Faults, time: impl Fn(usize) -> Instant) {
        for (row, remark) in faults.remarks() {
            self.remarks.count += 1;
            self.remarks.first.get_or_insert_with(|| DataError {
                time: time(row),
                span: remark.span,
                reason: remark.text.into(),
                origin: None,
            });
        }
    }

    pub fn merge(&mut self, other: DataErrors) {
        self.remarks.count += other.remarks.count;
        self.remarks.first = self.remarks.first.take().or(other.remarks.first);
        self.count += other.count;
        let room = SAMPLES_MAX - self.samples.len();
        self.samples.extend(other.samples.into_iter().take(room));
    }

    /// The rows of `chunk` that did not fail; those that did are counted.
    pub(crate) fn sift(&mut self, chunk: Chunk, faults: &Faults) -> Chunk {
        self.note(faults, |row| chunk.time(row));
        if faults.is_empty() {
            return chunk;
        }
        for (row, fault) in faults.iter() {
            let origin = chunk.origins.as_ref().map(|origins| origins[row]);
            self.add_from(origin, chunk.time(row), fault.span, || {
                fault.reason.to_string()
            });
        }
        chunk.filter(&faults.good())
    }
}

/// That the event `origin` entered the window (start, end].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEntry {
    pub origin: u64,
    pub start: Instant,
    pub end: Instant,
}
