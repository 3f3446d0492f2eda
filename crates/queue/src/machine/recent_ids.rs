//! The ids of recent messages, for duplicate detection.

use std::collections::{BTreeMap, BTreeSet};

use super::KnownId;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RecentIds {
    known: BTreeMap<String, (i64, u64)>,
    /// The same, oldest first.
    oldest: BTreeSet<(i64, String)>,
}

impl RecentIds {
    /// The sequence number of the message with this id.
    pub(super) fn find(&self, id: &str) -> Option<u64> {
        self.known.get(id).map(|(_, seq)| *seq)
    }

    pub(super) fn insert(&mut self, new: KnownId) {
        if let Some((at_ms, _)) = self.known.insert(new.id.clone(), (new.at_ms, new.seq)) {
            self.oldest.remove(&(at_ms, new.id.clone()));
        }
        self.oldest.insert((new.at_ms, new.id));
    }

    pub(super) fn extend(&mut self, known: &[KnownId]) {
        known.iter().for_each(|known| self.insert(known.clone()));
    }

    /// Forgets all ids from `until_ms` or before.
    pub(super) fn forget(&mut self, until_ms: i64) {
        while let Some((at_ms, _)) = self.oldest.first() {
            if *at_ms > until_ms {
                break;
            }
            if let Some((_, id)) = self.oldest.pop_first() {
                self.known.remove(&id);
            }
        }
    }

    /// Ids after `after`, in order.
    pub(super) fn after(&self, after: Option<&str>) -> impl Iterator<Item = KnownId> + '_ {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let range = self.known.range::<str, _>((from, Unbounded));
        range.map(|(id, (at_ms, seq))| KnownId {
            at_ms: *at_ms,
            seq: *seq,
            id: id.clone(),
        })
    }
}
