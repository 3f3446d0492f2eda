//! How many subscriptions of a topic refer to each of its messages.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// Only what is durable counts: a reference before the position of its subscription moves on, and its end when a crash
/// cannot undo it.
#[derive(Default)]
pub(super) struct TopicReferences(Mutex<State>);

#[derive(Default)]
struct State {
    counts: BTreeMap<u64, u32>,
    /// Messages that the last subscription has released.
    done: Vec<u64>,
}

impl TopicReferences {
    pub(super) fn add(&self, seqs: &BTreeSet<u64>) {
        let mut state = self.0.lock();
        for seq in seqs {
            *state.counts.entry(*seq).or_default() += 1;
        }
    }

    pub(super) fn release(&self, seqs: Vec<u64>) {
        let state = &mut *self.0.lock();
        for seq in seqs {
            let Some(count) = state.counts.get_mut(&seq) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                state.counts.remove(&seq);
                state.done.push(seq);
            }
        }
    }

    /// The messages that were released since the last call.
    pub(super) fn take_done(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().done)
    }

    /// Those of some unreferenced messages.
    pub(super) fn unreferenced(&self, seqs: impl Iterator<Item = u64>) -> Vec<u64> {
        let state = self.0.lock();
        seqs.filter(|seq| !state.counts.contains_key(seq)).collect()
    }
}
