//! What readers may see of a partition: everything in it is durable, or as durable as the options
//! ask for.

use std::sync::Arc;

use highwater_log::producer_states::ProducerStates;
use highwater_log::{Bounds, EnqueueTime, Offset};

use super::index::Index;
use super::segment::Segment;
use super::tail::Tail;

pub struct View {
    pub start: Offset,
    pub stable: Offset,
    pub end: Offset,
    pub last_time: Option<EnqueueTime>,
    /// Closed segments, oldest first.
    pub closed: Vec<Arc<Segment>>,
    /// The segment that is written to; none before the first append.
    pub active: Option<ActiveSegment>,
    pub producers: ProducerStates,
    pub tail: Tail,
    /// Set when the end of the partition is not where the log ends but where it is damaged.
    pub damage: Option<Damage>,
    pub deleted: bool,
    /// Compaction has seen everything before this.
    pub compacted: Offset,
}

pub struct ActiveSegment {
    pub segment: Arc<Segment>,
    pub index: Index,
}

/// Bytes that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is damaged at byte {position}: {reason}")]
pub struct Damage {
    pub file: String,
    pub position: u64,
    pub reason: String,
}

impl View {
    pub fn bounds(&self) -> Bounds {
        Bounds {
            start: self.start,
            stable: self.stable,
            end: self.end,
            last_time: self.last_time,
            bytes: self.bytes(),
        }
    }

    pub fn bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|segment| segment.bytes).sum();
        closed + self.active.as_ref().map_or(0, |active| active.index.bytes)
    }

    pub fn segments(&self) -> usize {
        self.closed.len() + usize::from(self.active.is_some())
    }

    /// The closed segment that holds `offset`, if one does.
    pub fn closed_at(&self, offset: Offset) -> Option<&Arc<Segment>> {
        if self
            .active
            .as_ref()
            .is_some_and(|active| active.segment.base <= offset)
        {
            return None;
        }
        let count = self
            .closed
            .partition_point(|segment| segment.base <= offset);
        self.closed.get(count.checked_sub(1)?)
    }

    /// The base of the segment after the one with this base, or the end.
    pub fn base_after(&self, base: Offset) -> Offset {
        let later = self.closed.iter().map(|segment| segment.base);
        let later = later.chain(self.active.as_ref().map(|active| active.segment.base));
        later
            .filter(|other| *other > base)
            .min()
            .unwrap_or(self.end)
    }

    /// Whether a segment is still the one that is read for its offsets.
    pub fn holds(&self, id: u64) -> bool {
        self.closed.iter().any(|segment| segment.id == id)
            || self
                .active
                .as_ref()
                .is_some_and(|active| active.segment.id == id)
    }
}
