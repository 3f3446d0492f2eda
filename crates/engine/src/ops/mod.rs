//! The operators of a pipeline.
//!
//! An operator takes chunks and watermarks and can be snapshot and restored. It reads no clock, and its output depends
//! on its rows and watermarks, not on chunk boundaries. A stateful operator emits only on a watermark, and the rows it
//! emits after watermark `w` are never earlier than `w`.

mod accumulate;
mod analytic;
mod apply;
mod cells;
mod change_queue;
mod event_pool;
mod fanout;
mod groups;
pub(crate) mod having;
mod hopping_scripts;
mod join;
mod key_bytes;
mod key_table;
mod keyed_slots;
mod lookup;
mod merge;
mod output_budget;
mod pane_grid;
mod pane_window;
mod panes;
mod pattern;
mod row_keys;
mod session;
mod short_key;
mod sliding;
mod sliding_aggregate;
pub(crate) mod state_sizes;
mod stateless;
mod substream_join;
mod timer_queue;
mod untested_rows;
mod vec_growth;
mod window_operator;

use highwater_codec::{DecodeError, Reader};
use highwater_query::Span;
use highwater_time::Instant;

use crate::chunk::Chunk;
use crate::eval::Faults;

pub(crate) use analytic::Analytics;
pub(crate) use apply::Apply;
pub(crate) use groups::{GroupSpec, Groups};
pub(crate) use join::Join;
pub use lookup::ReferenceTable;
pub(crate) use lookup::{Lookup, LookupTable};
pub use merge::Merge;
pub use output_budget::{OutputBudget, OutputOverflow};
pub(crate) use pane_grid::PaneGrid;
pub(crate) use pane_window::PaneWindow;
pub(crate) use panes::{PaneFill, PaneJoin};
pub(crate) use pattern::Matcher;
pub(crate) use session::{KeySessions, SessionRule, Sessions};
pub(crate) use sliding::Sliding;
pub(crate) use stateless::{Filter, Project};
pub(crate) use substream_join::{KeyOperator, LaneNamer, SubstreamJoin};
pub(crate) use window_operator::WindowOperator;

/// The input and output of operators.
#[derive(Clone, Debug)]
pub enum Item {
    Rows(Chunk),
    /// Finished panes of one partition, to be joined with those of other partitions.
    PartialPanes(Vec<PartialPane>),
    /// No row with an earlier time will follow.
    Watermark(Instant),
}

impl Item {
    fn map_rows(self, change: impl FnOnce(Chunk) -> Chunk) -> Item {
        match self {
            Item::Rows(chunk) => Item::Rows(change(chunk)),
            other => other,
        }
    }
}

/// The groups of one partition in one pane.
#[derive(Clone, Debug)]
pub struct PartialPane {
    pub(crate) end: i64,
    pub(crate) groups: Groups,
}

pub trait Operator: Send {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>);

    /// Writes the state; an operator without state writes nothing.
    fn snapshot(&self, _out: &mut Vec<u8>) {}

    fn restore(&mut self, _from: &mut Reader<'_>) -> Result<(), DecodeError> {
        Ok(())
    }

    /// An operator with the same state, where that takes less than a snapshot.
    fn duplicate(&self) -> Option<Box<dyn Operator>> {
        None
    }

    /// About the size of the state in bytes, in proportion to its snapshot: values in lists count with their fixed
    /// part. At most as expensive as a visit of every key, and much cheaper than a snapshot.
    fn state_bytes(&self) -> usize {
        0
    }

    /// Adds a port that starts at the combined watermark of the others. `false` if the operator cannot have more ports.
    fn add_port(&mut self) -> bool {
        false
    }
}

/// The output of an operator.
#[derive(Debug)]
pub struct Context<'a> {
    pub out: &'a mut Vec<Item>,
    pub errors: &'a mut DataErrors,
    pub budget: &'a OutputBudget,
    pub trace: Option<&'a mut Vec<WindowEntry>>,
}

/// Rows dropped because an expression failed: all are counted, the first few are kept as samples.
#[derive(Clone, Debug, Default)]
pub struct DataErrors {
    pub count: u64,
    pub samples: Vec<DataError>,
    pub warnings: DataWarnings,
    /// All errors since the last [`DataErrors::take_collected`]; only after [`DataErrors::collect_all`].
    collected: Option<Vec<DataError>>,
}

/// Rows with a value that was corrected: all are counted, the first one is kept.
#[derive(Clone, Debug, Default)]
pub struct DataWarnings {
    pub count: u64,
    pub first: Option<DataError>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError {
    pub time: Instant,
    pub span: Span,
    pub reason: String,
    /// The input event of the row, if the chunk has origins.
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
        if self.samples.len() >= SAMPLES_MAX && self.collected.is_none() {
            return;
        }
        let reason = reason();
        let error = DataError {
            time,
            span,
            reason,
            origin,
        };
        if let Some(collected) = &mut self.collected {
            collected.push(error.clone());
        }
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(error);
        }
    }

    /// From now on collects every error. The caller must drain them with [`DataErrors::take_collected`].
    pub fn collect_all(&mut self) {
        self.collected.get_or_insert_default();
    }

    /// The errors since the last call.
    pub fn take_collected(&mut self) -> Vec<DataError> {
        self.collected
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Counts the warnings.
    pub(crate) fn add_warnings(&mut self, faults: &Faults, time: impl Fn(usize) -> Instant) {
        for (row, warning) in faults.warnings() {
            self.warnings.count += 1;
            self.warnings.first.get_or_insert_with(|| DataError {
                time: time(row),
                span: warning.span,
                reason: warning.text.into(),
                origin: None,
            });
        }
    }

    /// Counts the faults and the warnings.
    pub(crate) fn add_faults(&mut self, faults: &Faults, time: impl Fn(usize) -> Instant) {
        self.add_warnings(faults, &time);
        for (row, fault) in faults.iter() {
            self.add(time(row), fault.span, || fault.reason.to_string());
        }
    }

    pub fn merge(&mut self, other: DataErrors) {
        self.warnings.count += other.warnings.count;
        self.warnings.first = self.warnings.first.take().or(other.warnings.first);
        self.count += other.count;
        let free = SAMPLES_MAX - self.samples.len();
        self.samples.extend(other.samples.into_iter().take(free));
    }

    /// Returns the rows of `chunk` that did not fail, and counts the others.
    pub(crate) fn drop_failed_rows(&mut self, chunk: Chunk, faults: &Faults) -> Chunk {
        self.add_warnings(faults, |row| chunk.time(row));
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

/// The event `origin` entered the window (start, end].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEntry {
    pub origin: u64,
    pub start: Instant,
    pub end: Instant,
}
