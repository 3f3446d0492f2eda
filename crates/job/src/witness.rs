//! The fates of single events, kept only on request.

use highwater_engine::WindowEntry;
use highwater_time::JudgedEvent;

use crate::report::TroubleKind;

/// The fates of single events.
#[derive(Debug, Default)]
pub struct Witness {
    pub fates: Vec<EventFate>,
    /// Events that never got as far as a time policy.
    pub lost: Vec<LostEvent>,
    pub windows: Vec<WindowEntry>,
}

#[derive(Clone, Debug)]
pub struct EventFate {
    /// File and line; see [`origin_file`] and [`origin_line`].
    pub origin: u64,
    pub partition: usize,
    /// The substream key, where the input has substreams.
    pub key: Option<String>,
    pub fate: JudgedEvent,
}

#[derive(Clone, Debug)]
pub struct LostEvent {
    pub origin: u64,
    pub kind: TroubleKind,
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
