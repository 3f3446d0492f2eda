//! How far a group has come in each place, and what open transactions would make of that.

use std::collections::BTreeMap;

use highwater_log::{HubId, Place, StoredOffset};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub stored: StoredOffset,
    /// The hub it was stored for. One of the same name made later starts anew.
    pub hub: HubId,
    /// When it was stored, in milliseconds since 1970.
    pub time_ms: i64,
}

pub(super) type Placed = (Place, Position);

/// Stored positions are durable; pending ones may still be on their way to the disk, which does no
/// harm, because nobody is shown them.
#[derive(Debug, Default)]
pub(super) struct Positions {
    pub stored: BTreeMap<Place, Position>,
    /// By producer id.
    pub pending: BTreeMap<i64, BTreeMap<Place, Position>>,
}

impl Positions {
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.pending.is_empty()
    }

    pub fn is_pending(&self, place: &Place) -> bool {
        (self.pending.values()).any(|places| places.contains_key(place))
    }

    pub fn pend(&mut self, producer: i64, positions: &[Placed]) {
        let pending = self.pending.entry(producer).or_default();
        pending.extend(positions.iter().cloned());
    }

    /// Takes back what could not be stored, unless something else has taken its place.
    pub fn unpend(&mut self, producer: i64, positions: &[Placed]) {
        let Some(pending) = self.pending.get_mut(&producer) else {
            return;
        };
        for (place, position) in positions {
            if pending.get(place) == Some(position) {
                pending.remove(place);
            }
        }
        if pending.is_empty() {
            self.pending.remove(&producer);
        }
    }

    /// The record of one pending position was taken away.
    pub fn settle(&mut self, producer: i64, place: &Place) {
        if let Some(pending) = self.pending.get_mut(&producer) {
            pending.remove(place);
            if pending.is_empty() {
                self.pending.remove(&producer);
            }
        }
    }

    /// Places whose position was stored before `before_ms` and that no open transaction touches.
    pub fn older_than(&self, before_ms: i64) -> Vec<Place> {
        let old = |(place, position): &(&Place, &Position)| {
            position.time_ms <= before_ms && !self.is_pending(place)
        };
        let places = self.stored.iter().filter(old);
        places.map(|(place, _)| place.clone()).collect()
    }
}
