//! State of JavaScript aggregates from one hopping window to the next.
//!
//! A group is emitted in every window while it has events, so its state lives from its first window to its last.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use highwater_codec::{DecodeError, Reader, Writer};

use super::accumulate::{Accumulator, RollingScript};
use super::groups::{GroupKeys, GroupSpec};
use super::pane_grid::PaneGrid;

#[derive(Debug)]
pub(crate) struct HoppingScripts {
    size: i64,
    hop: i64,
    /// By lane and key, one for each JavaScript aggregate.
    states: HashMap<Box<[u8]>, Vec<RollingScript>, FixedState>,
    scripts: usize,
}

impl HoppingScripts {
    /// `None` without JavaScript aggregates or with windows that do not overlap.
    pub(super) fn new(spec: &GroupSpec, grid: PaneGrid) -> Option<HoppingScripts> {
        let scripts = spec.accumulators();
        let scripts = scripts.iter().filter(|a| matches!(a, Accumulator::User(_)));
        let scripts = scripts.count();
        let (size, hop) = grid.overlap()?;
        (scripts > 0).then(|| HoppingScripts {
            size,
            hop,
            states: HashMap::default(),
            scripts,
        })
    }

    /// Computes the results of the scripts for rows (lane, window end). The windows of a group are consecutive.
    pub(super) fn compute(
        &mut self,
        keys: &impl GroupKeys,
        rows: impl Iterator<Item = (u32, i64)>,
        accumulators: &mut [Accumulator],
    ) {
        let mut scripts: Vec<_> = (0..)
            .zip(accumulators.iter_mut().filter_map(scripted))
            .collect();
        scripts.retain(|(_, scripted)| scripted.can_roll());
        if scripts.is_empty() {
            return;
        }
        for (slot, (lane, end)) in (0..).zip(rows) {
            let mut key = lane.to_le_bytes().to_vec();
            key.extend_from_slice(keys.key(slot));
            let fresh = || std::iter::repeat_with(RollingScript::default).take(self.scripts);
            let known = self.states.remove(&key[..]);
            let mut states = known.unwrap_or_else(|| fresh().collect());
            let last = scripts
                .iter_mut()
                .map(|(script, scripted)| scripted.roll(&mut states[*script], end, self.size))
                .max();
            let next_start = end.saturating_add(self.hop - self.size);
            if last.flatten().is_some_and(|last| last > next_start) {
                self.states.insert(key.into(), states);
            }
        }
    }

    pub(super) fn state_bytes(&self) -> usize {
        let states = self.states.values().flatten();
        states.map(RollingScript::state_bytes).sum()
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        let mut states: Vec<_> = self.states.iter().collect();
        states.sort_unstable_by_key(|(key, _)| *key);
        out.count(states.len());
        for (key, states) in states {
            out.blob(key);
            states.iter().for_each(|state| state.snapshot(out));
        }
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for _ in 0..from.count()? {
            let key = from.blob()?.into();
            let states = (0..self.scripts).map(|_| RollingScript::restore(from));
            self.states.insert(key, states.collect::<Result<_, _>>()?);
        }
        Ok(())
    }
}

fn scripted(accumulator: &mut Accumulator) -> Option<&mut super::accumulate::ScriptAggregates> {
    match accumulator {
        Accumulator::User(scripted) => Some(scripted),
        _ => None,
    }
}
