//! What is due when, per lane.
//!
//! Every stateful window keeps something that falls due at a point in time: a pane that ends, a window to emit, a
//! session to close. With substreams each lane has its own clock; without them there is the one lane 0. Due things come
//! out in order of time, then lane, whatever order they went in.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::Instant;

/// The lane of an input without substreams.
pub(crate) const ONE_LANE: u32 = 0;

#[derive(Debug)]
pub(crate) struct Agenda<T> {
    lanes: HashMap<u32, BTreeMap<i64, T>, FixedState>,
    /// The first due time of every lane that has one.
    first: BTreeSet<(i64, u32)>,
}

impl<T> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda {
            lanes: HashMap::default(),
            first: BTreeSet::new(),
        }
    }
}

impl<T> Agenda<T> {
    /// What is due at `due` in `lane`, made on first use.
    pub fn at(&mut self, lane: u32, due: i64, make: impl FnOnce() -> T) -> &mut T {
        let dues = self.lanes.entry(lane).or_default();
        match dues.first_key_value().map(|(&first, _)| first) {
            Some(first) if first <= due => {}
            earlier => {
                if let Some(first) = earlier {
                    self.first.remove(&(first, lane));
                }
                self.first.insert((due, lane));
            }
        }
        dues.entry(due).or_insert_with(make)
    }

    /// Takes the earliest thing due before `watermark`, of one lane or of all.
    pub fn pop(&mut self, lane: Option<u32>, watermark: Instant) -> Option<(u32, i64, T)> {
        let (due, lane) = match lane {
            None => self.first.first().copied()?,
            Some(lane) => (*self.lanes.get(&lane)?.first_key_value()?.0, lane),
        };
        if due >= watermark.ticks() {
            return None;
        }
        self.first.remove(&(due, lane));
        let dues = self.lanes.get_mut(&lane)?;
        let (due, thing) = dues.pop_first()?;
        match dues.first_key_value() {
            Some((&next, _)) => {
                self.first.insert((next, lane));
            }
            None => {
                self.lanes.remove(&lane);
            }
        }
        Some((lane, due, thing))
    }

    pub fn snapshot(&self, out: &mut Vec<u8>, mut put: impl FnMut(&T, &mut Vec<u8>)) {
        let mut lanes: Vec<_> = self.lanes.iter().collect();
        lanes.sort_unstable_by_key(|(lane, _)| **lane);
        out.count(lanes.len());
        for (lane, dues) in lanes {
            out.u32(*lane);
            out.count(dues.len());
            for (due, thing) in dues {
                out.i64(*due);
                put(thing, out);
            }
        }
    }

    pub fn restore(
        from: &mut Reader<'_>,
        mut get: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<Agenda<T>, DecodeError> {
        let mut agenda = Agenda::default();
        for _ in 0..from.count()? {
            let lane = from.u32()?;
            for _ in 0..from.count()? {
                let due = from.i64()?;
                let thing = get(from)?;
                agenda.at(lane, due, || thing);
            }
        }
        Ok(agenda)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_things_come_out_by_time_then_lane() {
        let mut agenda = Agenda::default();
        for (lane, due) in [(2, 30), (1, 20), (2, 10), (1, 30), (3, 10)] {
            agenda.at(lane, due, || (lane, due));
        }
        let mut popped = Vec::new();
        while let Some((_, _, thing)) = agenda.pop(None, Instant::from_ticks(30)) {
            popped.push(thing);
        }
        assert_eq!(popped, [(2, 10), (3, 10), (1, 20)]);
        assert_eq!(
            agenda.pop(Some(1), Instant::AFTER_ALL).map(|p| p.2),
            Some((1, 30))
        );
        assert!(agenda.pop(Some(1), Instant::AFTER_ALL).is_none());
    }
}
