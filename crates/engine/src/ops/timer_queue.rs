//! Timers per lane, each with a value.
//!
//! Stateful windows have timers: the end of a window, the close of a session. With substreams each lane has its own
//! watermark; without them there is only lane 0. Timers fire in order of time, then lane.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::Instant;

/// The lane of an input without substreams.
pub(crate) const ONE_LANE: u32 = 0;

#[derive(Debug)]
pub(crate) struct TimerQueue<T> {
    lanes: HashMap<u32, BTreeMap<i64, T>, FixedState>,
    /// The first timer of every lane.
    first: BTreeSet<(i64, u32)>,
}

impl<T> Default for TimerQueue<T> {
    fn default() -> TimerQueue<T> {
        TimerQueue {
            lanes: HashMap::default(),
            first: BTreeSet::new(),
        }
    }
}

impl<T> TimerQueue<T> {
    /// The value of the timer at `due` in `lane`, created on first use.
    pub(super) fn at(&mut self, lane: u32, due: i64, make: impl FnOnce() -> T) -> &mut T {
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

    /// Takes the earliest timer before `watermark`, of one lane or of all.
    pub(super) fn pop(&mut self, lane: Option<u32>, watermark: Instant) -> Option<(u32, i64, T)> {
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

    pub(super) fn snapshot(&self, out: &mut Vec<u8>, mut put: impl FnMut(&T, &mut Vec<u8>)) {
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

    pub(super) fn restore(
        from: &mut Reader<'_>,
        mut get: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<TimerQueue<T>, DecodeError> {
        let mut queue = TimerQueue::default();
        for _ in 0..from.count()? {
            let lane = from.u32()?;
            for _ in 0..from.count()? {
                let due = from.i64()?;
                let thing = get(from)?;
                queue.at(lane, due, || thing);
            }
        }
        Ok(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_things_come_out_by_time_then_lane() {
        let mut queue = TimerQueue::default();
        for (lane, due) in [(2, 30), (1, 20), (2, 10), (1, 30), (3, 10)] {
            queue.at(lane, due, || (lane, due));
        }
        let mut popped = Vec::new();
        while let Some((_, _, thing)) = queue.pop(None, Instant::from_ticks(30)) {
            popped.push(thing);
        }
        assert_eq!(popped, [(2, 10), (3, 10), (1, 20)]);
        assert_eq!(
            queue.pop(Some(1), Instant::AFTER_ALL).map(|p| p.2),
            Some((1, 30))
        );
        assert!(queue.pop(Some(1), Instant::AFTER_ALL).is_none());
    }
}
