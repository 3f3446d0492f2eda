//! JavaScript aggregates of hopping windows that go from window to window.
//!
//! A group is shown in every window while it has events, so its state is here from its first window to its last.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use highwater_codec::{DecodeError, Reader, Writer};

use super::accumulate::{Accumulator, Rolled};
use super::grid::PaneGrid;
use super::groups::{GroupSpec, Keyed};

#[derive(Debug)]
pub(crate) struct Rolls {
    size: i64,
    hop: i64,
    /// By lane and key, one for each JavaScript aggregate.
    states: HashMap<Box<[u8]>, Vec<Rolled>, FixedState>,
    scripts: usize,
}

impl Rolls {
    /// `None` where nothing can roll: no script, or windows that share no event.
    pub fn new(spec: &GroupSpec, grid: PaneGrid) -> Option<Rolls> {
        let scripts = spec.accumulators();
        let scripts = scripts.iter().filter(|a| matches!(a, Accumulator::User(_)));
        let scripts = scripts.count();
        let (size, hop) = grid.overlap()?;
        (scripts > 0).then(|| Rolls {
            size,
            hop,
            states: HashMap::default(),
            scripts,
        })
    }

    /// Finds the results of scripts for rows of which every group's windows come one after the other, without gaps.
    pub fn settle(
        &mut self,
        keys: &impl Keyed,
        rows: impl Iterator<Item = (u32, i64)>,
        accumulators: &mut [Accumulator],
    ) {
        let mut scripts: Vec<_> = (0..)
            .zip(accumulators.iter_mut().filter_map(scripted))
            .collect();
        scripts.retain(|(_, scripted)| scripted.rolls());
        if scripts.is_empty() {
            return;
        }
        for (slot, (lane, end)) in (0..).zip(rows) {
            let mut key = lane.to_le_bytes().to_vec();
            key.extend_from_slice(keys.key(slot));
            let fresh = || std::iter::repeat_with(Rolled::default).take(self.scripts);
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

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        let mut states: Vec<_> = self.states.iter().collect();
        states.sort_unstable_by_key(|(key, _)| *key);
        out.count(states.len());
        for (key, states) in states {
            out.blob(key);
            states.iter().for_each(|state| state.snapshot(out));
        }
    }

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for _ in 0..from.count()? {
            let key = from.blob()?.into();
            let states = (0..self.scripts).map(|_| Rolled::restore(from));
            self.states.insert(key, states.collect::<Result<_, _>>()?);
        }
        Ok(())
    }
}

fn scripted(accumulator: &mut Accumulator) -> Option<&mut super::accumulate::Scripted> {
    match accumulator {
        Accumulator::User(scripted) => Some(scripted),
        _ => None,
    }
}
