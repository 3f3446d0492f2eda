//! The state of operators in bytes per key, event or session, without column values.

use highwater_query::plan::Aggregate;

use super::accumulate::Accumulator;
use super::{join, pattern, session, sliding, sliding_aggregate};
use crate::value::Value;

pub(crate) const VALUE: usize = size_of::<Value>();

/// A hash table slot and the offsets of a stored key.
const INTERNED: usize = 24;

pub(crate) const PANE_GROUP: usize = INTERNED;
pub(crate) const SESSION: usize = session::BYTES + INTERNED;
pub(crate) const SLIDING_GROUP: usize = sliding::GROUP_BYTES + INTERNED;
pub(crate) const SLIDING_EVENT: usize = sliding::EVENT_BYTES;
pub(crate) const JOINED_ROW: usize = join::ROW_BYTES;
pub(crate) const ANALYTIC_KEY: usize = INTERNED;
pub(crate) const ATTEMPT: usize = pattern::ATTEMPT_BYTES;

/// The fixed state of an aggregate per group.
pub(crate) fn of_group(spec: &Aggregate) -> usize {
    Accumulator::new(spec).slot_bytes()
}

/// Whether a sliding window stores the argument of an aggregate with each event.
pub(crate) fn is_read_by_sliding(spec: &Aggregate) -> bool {
    sliding_aggregate::reads_events(spec)
}
