//! When the groups of sliding windows change, per lane.
//!
//! Events come in the order of their times, so the times at which they enter windows never fall, and neither do those
//! at which they leave, one size later: two lists per lane are enough, without a search.

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

/// The content of the window of a group changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub time: i64,
    pub lane: u32,
    pub slot: u32,
}

/// How many changes are taken at once, about: as many groups as the L1 cache holds.
const CHANGES_MAX: usize = 128;

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

    /// Takes the first changes up to and including `last`, until `out` has [`CHANGES_MAX`].
    fn take(&mut self, lane: u32, last: i64, out: &mut Vec<Change>) {
        let LaneChanges {
            restored,
            leaving,
            entering,
        } = self;
        let time = |list: &Changes| list.front().map_or(i64::MAX, |(time, _)| *time);
        while out.len() < CHANGES_MAX {
            let times = [time(restored), time(leaving), time(entering)];
            let first = times.into_iter().min().unwrap_or(i64::MAX);
            let list = match times.map(|time| time == first) {
                _ if first > last => return,
                [true, _, _] => &mut *restored,
                [_, true, _] => &mut *leaving,
                _ => &mut *entering,
            };
            let Some((time, slot)) = list.pop_front() else {
                return;
            };
            out.push(Change { time, lane, slot });
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
    /// An event enters the window of `slot` at `enters` and leaves at `leaves`. Both are no earlier than those of the
    /// lane's events before.
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

    /// Takes the first changes before `watermark`, of one lane or of all, in order. Takes none only if there is none.
    pub(super) fn take(&mut self, lane: Option<u32>, watermark: Instant, out: &mut Vec<Change>) {
        out.clear();
        let last = watermark.ticks().saturating_sub(1);
        if self.lanes.is_empty() && lane.is_none_or(|lane| lane == ONE_LANE) {
            return self.one.take(ONE_LANE, last, out);
        }
        let Some((time, lane)) = self.first(lane).filter(|(time, _)| *time <= last) else {
            return;
        };
        if lane == ONE_LANE {
            return self.one.take(ONE_LANE, time, out);
        }
        let Some(changes) = self.lanes.get_mut(&lane) else {
            return;
        };
        changes.take(lane, time, out);
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
    }

    /// The first change of one lane or of all.
    fn first(&self, lane: Option<u32>) -> Option<(i64, u32)> {
        match lane {
            None => {
                let one = self.one.first().map(|time| (time, ONE_LANE));
                let other = self.first.first().copied();
                [one, other].into_iter().flatten().min()
            }
            Some(ONE_LANE) => Some((self.one.first()?, ONE_LANE)),
            Some(lane) => Some((self.lanes.get(&lane)?.first()?, lane)),
        }
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

    /// Lane, time and slots, without a slot that follows itself.
    fn all(queue: &mut ChangeQueue, lane: Option<u32>, until: i64) -> Vec<(u32, i64, Vec<u32>)> {
        let (mut popped, mut changes) = (Vec::<(u32, i64, Vec<u32>)>::new(), Vec::new());
        loop {
            queue.take(lane, Instant::from_ticks(until), &mut changes);
            if changes.is_empty() {
                return popped;
            }
            for Change { time, lane, slot } in &changes {
                match popped
                    .last_mut()
                    .filter(|last| (last.0, last.1) == (*lane, *time))
                {
                    Some((_, _, slots)) if slots.last() == Some(slot) => {}
                    Some((_, _, slots)) => slots.push(*slot),
                    None => popped.push((*lane, *time, vec![*slot])),
                }
            }
        }
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
    fn many_changes_come_in_order_over_several_calls() {
        let mut queue = ChangeQueue::default();
        for event in 0..1_000 {
            queue.push(ONE_LANE, event as u32, event / 3, event / 3 + 100);
        }
        let popped = all(&mut queue, None, i64::MAX);
        assert!(popped.is_sorted_by_key(|(_, time, _)| *time));
        let slots = popped.iter().map(|(_, _, slots)| slots.len());
        assert_eq!(slots.sum::<usize>(), 2_000);
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
