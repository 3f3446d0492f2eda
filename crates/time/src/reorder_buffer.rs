//! Buffers events until the watermark has passed them, then releases them sorted.
//!
//! Most events arrive nearly in order, so the buffer is a sorted run that grows at its end. An event
//! that is a few positions out of order is inserted into the run; one that is further back goes to a
//! heap, and a release merges the two. A release costs no more than the events it releases,
//! regardless of the buffer's size. One event with a clock far ahead does not degrade the run: it
//! stays last and the others are inserted before it.
//!
//! Ties are ordered by handle, because queries with LAG can observe their order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use highwater_codec::{DecodeError, Reader, Writer};

use crate::Instant;
use crate::snapshot;

/// The greatest distance from the end of the run at which an event is inserted.
const INSERT_DISTANCE_MAX: usize = 32;

/// Entries as (timestamp, handle).
#[derive(Clone, Debug)]
pub(crate) struct ReorderBuffer<H = u64> {
    run: VecDeque<(Instant, H)>,
    stragglers: BinaryHeap<Reverse<(Instant, H)>>,
}

impl<H: Ord> Default for ReorderBuffer<H> {
    fn default() -> ReorderBuffer<H> {
        ReorderBuffer {
            run: VecDeque::new(),
            stragglers: BinaryHeap::new(),
        }
    }
}

impl<H: Copy + Ord> ReorderBuffer<H> {
    pub(crate) fn len(&self) -> usize {
        self.run.len() + self.stragglers.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, time: Instant, handle: H) {
        match self.run.back() {
            Some(&last) if (time, handle) < last => self.push_straggler((time, handle)),
            _ => self.run.push_back((time, handle)),
        }
    }

    #[inline(never)]
    fn push_straggler(&mut self, new: (Instant, H)) {
        let distance = self.run.len().min(INSERT_DISTANCE_MAX);
        let mut near = self.run.iter().rev().take(distance);
        match near.position(|&held| held <= new) {
            Some(places) => self.run.insert(self.run.len() - places, new),
            None if distance == self.run.len() => self.run.push_front(new),
            None => self.stragglers.push(Reverse(new)),
        }
    }

    /// The entry that will be released first.
    pub(crate) fn first(&self) -> Option<(Instant, H)> {
        match (self.run.front(), self.stragglers.peek()) {
            (Some(&run), Some(&Reverse(straggler))) => Some(run.min(straggler)),
            (run, straggler) => run.copied().or(straggler.map(|&Reverse(held)| held)),
        }
    }

    /// Some of the entries that will be released soon; a guess for prefetching.
    pub(crate) fn upcoming(&self, count: usize) -> impl Iterator<Item = H> {
        self.run.iter().take(count).map(|&(_, handle)| handle)
    }

    pub(crate) fn pop_first(&mut self) -> Option<(Instant, H)> {
        match (self.run.front(), self.stragglers.peek()) {
            (run, Some(&Reverse(straggler))) if run.is_none_or(|&run| straggler < run) => {
                self.stragglers.pop().map(|Reverse(held)| held)
            }
            _ => self.run.pop_front(),
        }
    }

    /// Releases all entries up to and including `to`, sorted by (timestamp, handle).
    pub(crate) fn release(&mut self, to: Instant, mut out: impl FnMut(Instant, H)) {
        while let Some(&Reverse(straggler)) = self.stragglers.peek()
            && straggler.0 <= to
        {
            while let Some(&held) = self.run.front()
                && held < straggler
            {
                self.run.pop_front();
                out(held.0, held.1);
            }
            self.stragglers.pop();
            out(straggler.0, straggler.1);
        }
        let due = self.run.partition_point(|&(time, _)| time <= to);
        self.run.drain(..due).for_each(|(time, row)| out(time, row));
    }

    /// All entries, sorted.
    pub(crate) fn sorted(&self) -> Vec<(Instant, H)> {
        let mut held: Vec<_> = self.run.iter().copied().collect();
        held.extend(self.stragglers.iter().map(|&Reverse(held)| held));
        held.sort_unstable();
        held
    }
}

impl ReorderBuffer {
    /// Writes the events sorted, so that equal contents give equal bytes.
    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        write_sorted(&self.sorted(), out);
    }

    /// Reads the bytes of [`ReorderBuffer::snapshot`]. An event after `latest` is an error.
    pub(crate) fn restore(
        from: &mut Reader<'_>,
        latest: Instant,
    ) -> Result<ReorderBuffer, DecodeError> {
        Ok(ReorderBuffer {
            run: read_sorted(from, latest)?.into(),
            stragglers: BinaryHeap::new(),
        })
    }
}

pub(crate) fn write_sorted(held: &[(Instant, u64)], out: &mut Vec<u8>) {
    out.count(held.len());
    for &(time, row) in held {
        snapshot::write_instant(out, time);
        out.u64(row);
    }
}

pub(crate) fn read_sorted(
    from: &mut Reader<'_>,
    latest: Instant,
) -> Result<Vec<(Instant, u64)>, DecodeError> {
    let count = from.count()?;
    let mut held = Vec::new();
    for _ in 0..count {
        let next = (snapshot::read_instant(from)?, from.u64()?);
        if held.last().is_some_and(|last| *last >= next) {
            return Err(DecodeError::Invalid("held events are not sorted"));
        }
        if next.0 > latest {
            return Err(DecodeError::Invalid(
                "a held event lies past the latest one",
            ));
        }
        held.push(next);
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(buffer: &mut ReorderBuffer, to: i64) -> Vec<(i64, u64)> {
        let mut out = Vec::new();
        buffer.release(Instant::from_ticks(to), |time, row| {
            out.push((time.ticks(), row))
        });
        out
    }

    fn filled(times: impl IntoIterator<Item = i64>) -> ReorderBuffer {
        let mut buffer = ReorderBuffer::default();
        for (time, row) in times.into_iter().zip(0..) {
            buffer.push(Instant::from_ticks(time), row);
        }
        buffer
    }

    #[test]
    fn ties_leave_in_the_order_of_their_handles() {
        let mut buffer = filled([5, 7, 5, 6, 5]);
        assert_eq!(drain(&mut buffer, 6), [(5, 0), (5, 2), (5, 4), (6, 3)]);
        assert_eq!(drain(&mut buffer, 6), []);
        assert_eq!(buffer.len(), 1);
    }

    #[test]
    fn one_clock_far_ahead_does_not_spoil_the_run() {
        let buffer = filled([0, 1_000_000].into_iter().chain(1..50_000));
        assert_eq!(buffer.run.len(), 50_001);
        assert!(buffer.stragglers.is_empty());
    }

    #[test]
    fn an_event_far_back_waits_in_the_heap_and_still_leaves_first() {
        let mut buffer = filled((100..200).chain([3, 2, 150]));
        assert_eq!(buffer.stragglers.len(), 3);
        assert_eq!(drain(&mut buffer, 100), [(2, 101), (3, 100), (100, 0)]);
        assert_eq!(drain(&mut buffer, 300).len(), 100);
    }

    /// Half a million events held and as many small releases: were a release to look at all that
    /// is held, this would take hours.
    #[test]
    fn a_release_costs_what_it_gives_out_however_much_is_held() {
        const HELD: i64 = 500_000;
        let mut buffer = ReorderBuffer::default();
        let mut released = 0;
        for i in 0..2 * HELD {
            let back = if i % 5 == 0 { i * 7_919 % HELD } else { 0 };
            buffer.push(Instant::from_ticks((i - back).max(i - HELD)), i as u64);
            buffer.release(Instant::from_ticks(i - HELD), |_, _| released += 1);
        }
        assert_eq!(released + buffer.len(), 2 * HELD as usize);
        assert!(buffer.stragglers.len() > 10_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn releases_are_sorted_prefixes_of_what_is_held_and_snapshots_change_nothing(
            steps in prop::collection::vec((0..200i64, 0..40i64), 0..300)
        ) {
            let mut buffer = ReorderBuffer::default();
            let mut naive: Vec<(i64, u64)> = Vec::new();
            for ((time, release), row) in steps.into_iter().zip(0..) {
                buffer.push(Instant::from_ticks(time), row);
                naive.push((time, row));
                naive.sort();
                prop_assert_eq!(
                    buffer.first(),
                    naive.first().map(|&(time, row)| (Instant::from_ticks(time), row))
                );
                if release == 0 {
                    let due = naive.partition_point(|held| held.0 <= time);
                    let expected: Vec<_> = naive.drain(..due).collect();
                    prop_assert_eq!(drain(&mut buffer, time), expected);
                } else if release == 1 {
                    let (time, row) = naive.remove(0);
                    prop_assert_eq!(buffer.pop_first(), Some((Instant::from_ticks(time), row)));
                } else if release == 2 {
                    let mut bytes = Vec::new();
                    buffer.snapshot(&mut bytes);
                    let restored = ReorderBuffer::restore(&mut Reader::new(&bytes), Instant::AFTER_ALL);
                    buffer = restored.expect("a good snapshot");
                }
                prop_assert_eq!(buffer.len(), naive.len());
            }
        }
    }
}
