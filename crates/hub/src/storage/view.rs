//! The published state of a partition: as durable as the options require.

use std::sync::Arc;

use highwater_log::producer_states::ProducerStates;
use highwater_log::{Bounds, EnqueueTime, Offset};

use super::compaction_progress::CompactionProgress;
use super::index::Index;
use super::segment::Segment;
use super::tail::Tail;

pub(super) struct View {
    pub start: Offset,
    pub stable: Offset,
    pub end: Offset,
    pub last_time: Option<EnqueueTime>,
    /// Closed segments, oldest first.
    pub closed: Vec<Arc<Segment>>,
    /// The segment being written; `None` before the first append.
    pub active: Option<ActiveSegment>,
    pub producers: ProducerStates,
    pub tail: Tail,
    /// Set if `end` is the position of damage and not the end of the log.
    pub damage: Option<Damage>,
    pub deleted: bool,
    pub compacted: CompactionProgress,
}

pub(super) struct ActiveSegment {
    pub segment: Arc<Segment>,
    pub index: Index,
}

/// Bytes that differ from the written ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is damaged at byte {position}: {reason}")]
pub struct Damage {
    pub file: String,
    pub position: u64,
    pub reason: String,
}

impl View {
    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            start: self.start,
            stable: self.stable,
            end: self.end,
            last_time: self.last_time,
            bytes: self.bytes(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|segment| segment.bytes).sum();
        closed + self.active.as_ref().map_or(0, |active| active.index.bytes)
    }

    pub(super) fn segments(&self) -> usize {
        self.closed.len() + usize::from(self.active.is_some())
    }

    /// The closed segment that contains `offset`.
    pub(super) fn closed_at(&self, offset: Offset) -> Option<&Arc<Segment>> {
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
    pub(super) fn base_after(&self, base: Offset) -> Offset {
        let later = self.closed.iter().map(|segment| segment.base);
        let later = later.chain(self.active.as_ref().map(|active| active.segment.base));
        later
            .filter(|other| *other > base)
            .min()
            .unwrap_or(self.end)
    }

    /// Whether the segment is in use.
    pub(super) fn holds(&self, id: u64) -> bool {
        self.closed.iter().any(|segment| segment.id == id)
            || self
                .active
                .as_ref()
                .is_some_and(|active| active.segment.id == id)
    }
}
