//! Tracks the checkpoint position while events begin in order and finish in any order.
//!
//! A checkpoint promises that no earlier event is needed any more, so it may not pass an unfinished event, even if
//! later ones are finished. [`OffsetTracker`] keeps the events between the checkpoint and the last one begun. Their
//! number is bounded: an event that never finishes stops the reading instead of filling the memory.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_log::Offset;

#[derive(Debug)]
pub(crate) struct OffsetTracker {
    done: Offset,
    /// Number of events before `done`, since the start.
    passed: u64,
    /// Events from the first unfinished one.
    window: VecDeque<Slot>,
    window_max: usize,
}

#[derive(Debug)]
struct Slot {
    /// The offset after this event.
    next: Offset,
    finished: bool,
}

/// The right to finish one event. If it is dropped, the event stays unfinished.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(u64);

impl OffsetTracker {
    /// Starts at an offset; everything before it is done.
    pub(crate) fn new(start: Offset, window_max: usize) -> OffsetTracker {
        OffsetTracker {
            done: start,
            passed: 0,
            window: VecDeque::new(),
            window_max: window_max.max(1),
        }
    }

    /// The highest offset below which everything is finished.
    pub(crate) fn done(&self) -> Offset {
        self.done
    }

    /// Events begun and not yet passed, finished ones included.
    #[cfg(test)]
    fn open(&self) -> usize {
        self.window.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.window.len() >= self.window_max
    }

    /// Begins the event at `offset`. `None` if the window is full.
    pub(crate) fn begin(&mut self, offset: Offset) -> Option<Ticket> {
        if self.is_full() {
            return None;
        }
        assert!(offset >= self.begun(), "events are begun in order");
        self.window.push_back(Slot {
            next: Offset(offset.0 + 1),
            finished: false,
        });
        Some(Ticket(self.passed + self.window.len() as u64 - 1))
    }

    /// Skips to `next`: the offsets below it have no event, as left by transaction markers and compaction.
    pub(crate) fn pass(&mut self, next: Offset) {
        match self.window.back_mut() {
            Some(last) => last.next = last.next.max(next),
            None => self.done = self.done.max(next),
        }
    }

    pub(crate) fn finish(&mut self, ticket: Ticket) {
        let slot = (ticket.0.checked_sub(self.passed))
            .and_then(|index| self.window.get_mut(usize::try_from(index).ok()?))
            .expect("a ticket belongs to an unfinished event of this tracker");
        slot.finished = true;
        while self.window.front().is_some_and(|slot| slot.finished)
            && let Some(slot) = self.window.pop_front()
        {
            assert!(slot.next > self.done, "a checkpoint goes forward");
            self.done = slot.next;
            self.passed += 1;
        }
    }

    /// The lowest offset of the next event.
    fn begun(&self) -> Offset {
        self.window.back().map_or(self.done, |last| last.next)
    }
}

/// When a checkpoint is due: after this many events, or this long after the first of them, whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointInterval {
    pub events: u64,
    pub period: Duration,
}

impl Default for CheckpointInterval {
    fn default() -> CheckpointInterval {
        CheckpointInterval {
            events: 1000,
            period: Duration::from_secs(5),
        }
    }
}

/// The last stored checkpoint and the time of the next.
#[derive(Debug)]
pub(crate) struct CheckpointSchedule {
    checkpoint_interval: CheckpointInterval,
    stored: CheckpointPosition,
    /// When the first event since the stored checkpoint was seen.
    since: Option<Duration>,
    /// Earliest time of the next attempt after a failure.
    not_before: Duration,
}

/// A position that can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointPosition {
    pub offset: Offset,
    /// Events passed up to that point.
    pub passed: u64,
}

impl OffsetTracker {
    pub(crate) fn point(&self) -> CheckpointPosition {
        CheckpointPosition {
            offset: self.done,
            passed: self.passed,
        }
    }
}

impl CheckpointSchedule {
    /// Begins with `stored` being on record.
    pub(crate) fn new(
        checkpoint_interval: CheckpointInterval,
        stored: CheckpointPosition,
    ) -> CheckpointSchedule {
        CheckpointSchedule {
            checkpoint_interval,
            stored,
            since: None,
            not_before: Duration::ZERO,
        }
    }

    /// The time of the next check, given the completed position at `now`: `now` or earlier if a checkpoint is due,
    /// `None` if there is nothing to store.
    pub(crate) fn due(&mut self, now: Duration, done: CheckpointPosition) -> Option<Duration> {
        if !self.is_behind(done) {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let due = match done.passed - self.stored.passed >= self.checkpoint_interval.events.max(1) {
            true => now,
            false => since.saturating_add(self.checkpoint_interval.period),
        };
        Some(due.max(self.not_before))
    }

    /// Notes that a checkpoint was stored, having been begun at `begun`.
    pub(crate) fn stored(&mut self, point: CheckpointPosition, begun: Duration) {
        assert!(
            point.offset >= self.stored.offset,
            "a checkpoint goes forward"
        );
        self.stored = point;
        // Events that finished during the write wait since its begin at the earliest.
        self.since = self.since.map(|_| begun);
    }

    /// Notes that one was not stored. The next is due a period after `now`, however many events
    /// that is.
    pub(crate) fn failed(&mut self, now: Duration) {
        self.not_before = now.saturating_add(self.checkpoint_interval.period);
    }

    /// True if something is done that is not stored.
    pub(crate) fn is_behind(&self, done: CheckpointPosition) -> bool {
        done.offset > self.stored.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    // proves C2
    #[test]
    fn the_checkpoint_waits_for_the_slowest_event() {
        let mut track = OffsetTracker::new(Offset(10), 8);
        let slow = track.begin(Offset(10)).unwrap();
        let fast = track.begin(Offset(11)).unwrap();
        track.finish(fast);
        assert_eq!((track.done(), track.open()), (Offset(10), 2));
        track.finish(slow);
        assert_eq!((track.done(), track.open()), (Offset(12), 0));
    }

    #[test]
    fn offsets_without_events_are_passed_with_the_event_before_them() {
        let mut track = OffsetTracker::new(Offset(0), 8);
        track.pass(Offset(3));
        assert_eq!(track.done(), Offset(3));
        let event = track.begin(Offset(5)).unwrap();
        track.pass(Offset(9));
        assert_eq!(track.done(), Offset(3));
        track.finish(event);
        assert_eq!((track.done(), track.passed), (Offset(9), 1));
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut track = OffsetTracker::new(Offset(0), 2);
        let first = track.begin(Offset(0)).unwrap();
        let second = track.begin(Offset(1)).unwrap();
        track.finish(second);
        assert_eq!(
            track.begin(Offset(2)),
            None,
            "the first still holds its place"
        );
        track.finish(first);
        assert!(track.begin(Offset(2)).is_some());
    }

    #[test]
    fn a_checkpoint_is_due_after_so_many_events_or_so_long() {
        let s = Duration::from_secs;
        let point = |passed: u64| CheckpointPosition {
            offset: Offset(passed as i64),
            passed,
        };
        let checkpoint_interval = CheckpointInterval {
            events: 10,
            period: s(5),
        };
        let mut schedule = CheckpointSchedule::new(checkpoint_interval, point(0));
        assert_eq!(schedule.due(s(1), point(0)), None);
        assert_eq!(schedule.due(s(2), point(3)), Some(s(7)));
        assert_eq!(schedule.due(s(3), point(9)), Some(s(7)));
        assert_eq!(schedule.due(s(4), point(10)), Some(s(4)));
        schedule.stored(point(10), s(4));
        assert_eq!(schedule.due(s(5), point(10)), None);
        assert_eq!(schedule.due(s(6), point(11)), Some(s(11)));
        schedule.failed(s(11));
        assert_eq!(schedule.due(s(12), point(12)), Some(s(16)));
        assert_eq!(schedule.due(s(13), point(99)), Some(s(16)));
    }

    proptest! {
        #[test]
        fn done_is_before_the_first_event_that_is_under_way(
            window_max in 1..20usize,
            steps in prop::collection::vec((any::<bool>(), 0..3i64, any::<prop::sample::Index>()), 0..300),
        ) {
            let mut track = OffsetTracker::new(Offset(0), window_max);
            let mut under_way = Vec::new();
            let mut unfinished = BTreeSet::new();
            let mut next = 0;
            for (begin, gap, which) in steps {
                if begin {
                    track.pass(Offset(next + gap));
                    next += gap;
                    if let Some(ticket) = track.begin(Offset(next)) {
                        under_way.push((next, ticket));
                        unfinished.insert(next);
                        next += 1;
                    }
                } else if !under_way.is_empty() {
                    let (offset, ticket) = under_way.swap_remove(which.index(under_way.len()));
                    unfinished.remove(&offset);
                    track.finish(ticket);
                }
                let limit = unfinished.first().copied().unwrap_or(next);
                prop_assert_eq!(track.done(), Offset(limit));
                prop_assert!(track.open() <= window_max);
            }
        }
    }
}
