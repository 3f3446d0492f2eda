//! When the groups of sliding windows change, per lane.
//!
//! Events come in the order of their times, so the times at which they enter windows never fall, and neither do those at
//! which they leave, one size later: two lists per lane are enough, without a search.

use std::collections::{BTreeSet, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::Instant;

use super::timer_queue::ONE_LANE;

#[derive(Debug, Default)]
pub(super) struct ChangeQueue {
    /// Of [`ONE_LANE`], the only one without substreams.
    one: LaneChanges,
    /// Of the others.
    lanes: HashMap<u32, LaneChanges, FixedState>,
    /// The first change of every one of these.
    first: BTreeSet<(i64, u32)>,
}

/// Times and slots, in order.
type Changes = VecDeque<(i64, u32)>;

/// At equal times, changes come in the order of the fields.
#[derive(Debug, Default)]
struct LaneChanges {
    /// Of a snapshot, which does not tell entering from leaving.
    restored: Changes,
    leaving: Changes,
    entering: Changes,
}

impl LaneChanges {
    fn lists(&self) -> [&Changes; 3] {
        [&self.restored, &self.leaving, &self.entering]
    }

    fn is_empty(&self) -> bool {
        self.lists().into_iter().all(VecDeque::is_empty)
    }

    fn first(&self) -> Option<i64> {
        let firsts = self.lists().map(|list| list.front().map(|(time, _)| *time));
        firsts.into_iter().flatten().min()
    }

    /// Takes the slots that change at `time`, which is the first.
    fn take(&mut self, time: i64, slots: &mut Vec<u32>) {
        let LaneChanges {
            restored,
            leaving,
            entering,
        } = self;
        for list in [restored, leaving, entering] {
            while let Some(&(at, slot)) = list.front()
                && at == time
            {
                list.pop_front();
                if slots.last() != Some(&slot) {
                    slots.push(slot);
                }
            }
        }
    }

    /// All changes in order.
    fn sorted(&self) -> Vec<(i64, u32)> {
        let mut all: Vec<_> = self.lists().into_iter().flatten().copied().collect();
        all.sort_by_key(|(time, _)| *time);
        all
    }
}

impl ChangeQueue {
    /// An event enters the window of `slot` at `enters` and leaves at `leaves`. Both are no earlier than those of the lane's
    /// events before.
    pub(super) fn push(&mut self, lane: u32, slot: u32, enters: i64, leaves: i64) {
        if lane == ONE_LANE {
            self.one.entering.push_back((enters, slot));
            self.one.leaving.push_back((leaves, slot));
            return;
        }
        let changes = self.lanes.entry(lane).or_default();
        let first = changes.first();
        changes.entering.push_back((enters, slot));
        changes.leaving.push_back((leaves, slot));
        let earliest = enters.min(leaves);
        if first.is_none_or(|first| earliest < first) {
            if let Some(first) = first {
                self.first.remove(&(first, lane));
            }
            self.first.insert((earliest, lane));
        }
    }

    /// Takes the slots that change at the earliest time before `watermark`, of one lane or of all: lane and time.
    pub(super) fn pop(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        slots: &mut Vec<u32>,
    ) -> Option<(u32, i64)> {
        slots.clear();
        let (time, lane) = match lane {
            None => {
                let one = self.one.first().map(|time| (time, ONE_LANE));
                let other = self.first.first().copied();
                [one, other].into_iter().flatten().min()?
            }
            Some(ONE_LANE) => (self.one.first()?, ONE_LANE),
            Some(lane) => (self.lanes.get(&lane)?.first()?, lane),
        };
        if time >= watermark.ticks() {
            return None;
        }
        if lane == ONE_LANE {
            self.one.take(time, slots);
            return Some((lane, time));
        }
        let changes = self.lanes.get_mut(&lane)?;
        changes.take(time, slots);
        let next = changes.first();
        self.first.remove(&(time, lane));
        match next {
            Some(next) => {
                self.first.insert((next, lane));
            }
            None => {
                self.lanes.remove(&lane);
            }
        }
        Some((lane, time))
    }

    /// Slots that change soon, without substreams; a guess for prefetching.
    pub(super) fn upcoming(&self, count: usize) -> impl Iterator<Item = u32> {
        let LaneChanges {
            leaving, entering, ..
        } = &self.one;
        let lists = leaving
            .iter()
            .take(count)
            .chain(entering.iter().take(count));
        lists.map(|(_, slot)| *slot)
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        let one = Some((&ONE_LANE, &self.one)).filter(|(_, changes)| !changes.is_empty());
        let mut lanes: Vec<_> = self.lanes.iter().chain(one).collect();
        lanes.sort_unstable_by_key(|(lane, _)| **lane);
        out.count(lanes.len());
        for (lane, changes) in lanes {
            out.u32(*lane);
            let changes = changes.sorted();
            let at_once = || changes.chunk_by(|a, b| a.0 == b.0);
            out.count(at_once().count());
            for at_once in at_once() {
                out.i64(at_once[0].0);
                out.count(at_once.len());
                at_once.iter().for_each(|(_, slot)| out.u32(*slot));
            }
        }
    }

    /// `slots` reads a list of slots that exist.
    pub(super) fn restore(
        from: &mut Reader<'_>,
        slots: impl Fn(&mut Reader<'_>) -> Result<Vec<u32>, DecodeError>,
    ) -> Result<ChangeQueue, DecodeError> {
        let mut queue = ChangeQueue::default();
        for _ in 0..from.count()? {
            let lane = from.u32()?;
            let mut restored = Changes::new();
            for _ in 0..from.count()? {
                let time = from.i64()?;
                if restored.back().is_some_and(|(before, _)| *before > time) {
                    return Err(DecodeError::Invalid("changes that are out of order"));
                }
                restored.extend(slots(from)?.into_iter().map(|slot| (time, slot)));
            }
            let first = restored.front().map(|(first, _)| *first);
            let changes = LaneChanges {
                restored,
                ..LaneChanges::default()
            };
            match (first, lane) {
                (None, _) => {}
                (Some(_), ONE_LANE) => queue.one = changes,
                (Some(first), lane) => {
                    queue.first.insert((first, lane));
                    queue.lanes.insert(lane, changes);
                }
            }
        }
        Ok(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut ChangeQueue, lane: Option<u32>, until: i64) -> Vec<(u32, i64, Vec<u32>)> {
        let (mut popped, mut slots) = (Vec::new(), Vec::new());
        while let Some((lane, time)) = queue.pop(lane, Instant::from_ticks(until), &mut slots) {
            popped.push((lane, time, slots.clone()));
        }
        popped
    }

    fn filled() -> ChangeQueue {
        let mut queue = ChangeQueue::default();
        for (lane, slot, time) in [(0, 1, 10), (1, 7, 5), (0, 2, 10), (0, 2, 15), (0, 3, 20)] {
            queue.push(lane, slot, time, time + 10);
        }
        queue
    }

    #[test]
    fn changes_come_by_time_then_lane_and_what_leaves_comes_first() {
        let mut queue = filled();
        assert_eq!(all(&mut queue, None, 20).len(), 4, "at 5, 10, 15 and 15");
        let expected = [(0, 20, vec![1, 2, 3]), (0, 25, vec![2]), (0, 30, vec![3])];
        assert_eq!(all(&mut queue, Some(0), 100), expected);
        assert!(all(&mut queue, None, 100).is_empty());
    }

    #[test]
    fn a_restored_queue_gives_the_same_changes() {
        let (mut queue, mut bytes) = (filled(), Vec::new());
        all(&mut queue, None, 12);
        queue.snapshot(&mut bytes);
        let read = |from: &mut Reader<'_>| (0..from.count()?).map(|_| from.u32()).collect();
        let mut restored =
            ChangeQueue::restore(&mut Reader::new(&bytes), read).expect("it was written");
        for queue in [&mut queue, &mut restored] {
            queue.push(0, 9, 20, 30);
            queue.push(0, 9, 25, 35);
        }
        let mut again = [Vec::new(), Vec::new()];
        queue.snapshot(&mut again[0]);
        restored.snapshot(&mut again[1]);
        assert_eq!(again[0], again[1]);
        assert_eq!(all(&mut restored, None, 100), all(&mut queue, None, 100));
    }
}
