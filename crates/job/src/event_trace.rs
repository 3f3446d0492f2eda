//! The trace of single events, recorded on request.

use highwater_engine::WindowEntry;
use highwater_time::JudgedEvent;

use crate::report::InputErrorKind;

/// What happened to every event.
#[derive(Debug, Default)]
pub struct EventTrace {
    pub events: Vec<TracedEvent>,
    /// Events that were lost before any time policy.
    pub lost: Vec<LostEvent>,
    pub windows: Vec<WindowEntry>,
}

impl EventTrace {
    pub(crate) fn merge(&mut self, other: EventTrace) {
        self.events.extend(other.events);
        self.lost.extend(other.lost);
        self.windows.extend(other.windows);
    }
}

#[derive(Clone, Debug)]
pub struct TracedEvent {
    /// File and line; see [`origin_file`] and [`origin_line`].
    pub origin: u64,
    pub partition: usize,
    /// The substream key, where the input has substreams.
    pub key: Option<String>,
    pub judged: JudgedEvent,
}

#[derive(Clone, Debug)]
pub struct LostEvent {
    pub origin: u64,
    pub kind: InputErrorKind,
    pub reason: String,
}

const LINE_BITS: u32 = 44;

pub(crate) fn origin(file: usize, line: u64) -> u64 {
    (file as u64) << LINE_BITS | line
}

pub fn origin_file(origin: u64) -> usize {
    (origin >> LINE_BITS) as usize
}

pub fn origin_line(origin: u64) -> u64 {
    origin & ((1 << LINE_BITS) - 1)
}
