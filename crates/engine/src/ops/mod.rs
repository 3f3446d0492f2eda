//! Operators: what a pipeline is made of.
//!
//! An operator is four functions: push a chunk, advance the watermark, snapshot, restore. It never sees a clock, and
//! what it emits depends on the rows and watermarks it was given, not on how they were cut into chunks. Only a
//! watermark makes a stateful operator emit, and the rows it emits after watermark `w` are never earlier than `w`.

mod accumulate;
mod agenda;
mod groups;
mod lanes;
mod merge;
mod panes;
mod session;
mod sliding;
mod stateless;

use highwater_query::Span;
use highwater_time::Instant;

use crate::chunk::Chunk;
use crate::codec::{Reader, RestoreError, Writer};
use crate::eval::Faults;

pub(crate) use groups::{GroupSpec, Groups};
pub(crate) use lanes::Windowed;
pub use merge::Merge;
pub(crate) use panes::{PaneFill, PaneGrid, PaneJoin, PaneWindow};
pub(crate) use session::Sessions;
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
    fn snapshot(&self, out: &mut Writer);
    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError>;
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError {
    pub time: Instant,
    pub span: Span,
    pub reason: String,
}

pub(crate) const SAMPLES_MAX: usize = 10;

impl DataErrors {
    pub fn add(&mut self, time: Instant, span: Span, reason: impl FnOnce() -> String) {
        self.count += 1;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(DataError {
                time,
                span,
                reason: reason(),
            });
        }
    }

    pub fn merge(&mut self, other: DataErrors) {
        self.count += other.count;
        let room = SAMPLES_MAX - self.samples.len();
        self.samples.extend(other.samples.into_iter().take(room));
    }

    /// The rows of `chunk` that did not fail; those that did are counted.
    pub(crate) fn sift(&mut self, chunk: Chunk, faults: &Faults) -> Chunk {
        if faults.is_empty() {
            return chunk;
        }
        for (row, fault) in faults.iter() {
            self.add(chunk.time(row), fault.span, || fault.reason.to_string());
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
