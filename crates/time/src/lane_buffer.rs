//! The reorder buffer of one lane, which seldom holds more than one event.
//!
//! There may be a million lanes, and most buffer only the key's latest event. So the first event is
//! stored inline in the lane, in the same cache line, and only further events allocate.

use highwater_codec::{DecodeError, Reader};

use crate::Instant;
use crate::reorder_buffer::{self, ReorderBuffer};

type BufferedEvent = (Instant, u64);

/// No event: sorts after all events.
const NONE: BufferedEvent = (Instant::AFTER_ALL, u64::MAX);

/// Events as (timestamp, row). Rows grow from one event to the next.
#[derive(Clone, Debug)]
pub(crate) struct LaneBuffer {
    /// Sorts before all events in `more`.
    first: BufferedEvent,
    more: Option<Box<ReorderBuffer>>,
}

impl Default for LaneBuffer {
    fn default() -> LaneBuffer {
        LaneBuffer {
            first: NONE,
            more: None,
        }
    }
}

impl LaneBuffer {
    pub(crate) fn len(&self) -> usize {
        let more = self.more.as_ref().map_or(0, |more| more.len());
        usize::from(self.first != NONE) + more
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<BufferedEvent> {
        (self.first != NONE).then_some(self.first)
    }

    #[inline]
    pub(crate) fn pop_first(&mut self) -> Option<BufferedEvent> {
        let first = self.first()?;
        self.first = match &self.more {
            None => NONE,
            Some(_) => self.pop_more(),
        };
        Some(first)
    }

    /// The first event of `more`. An empty `more` is freed.
    #[cold]
    fn pop_more(&mut self) -> BufferedEvent {
        let Some(more) = &mut self.more else {
            return NONE;
        };
        let next = more.pop_first().unwrap_or(NONE);
        if more.len() == 0 {
            self.more = None;
        }
        next
    }

    /// Adds an event and releases, sorted, all events up to and including `to`.
    #[inline]
    pub(crate) fn push_and_release(
        &mut self,
        time: Instant,
        row: u64,
        to: Instant,
        mut out: impl FnMut(Instant, u64),
    ) {
        self.release(to.min(time), &mut out);
        if time <= to {
            out(time, row);
            self.release(to, &mut out);
        } else {
            self.push((time, row));
        }
    }

    #[inline]
    fn release(&mut self, to: Instant, out: &mut impl FnMut(Instant, u64)) {
        while let Some((time, row)) = self.first()
            && time <= to
        {
            self.pop_first();
            out(time, row);
        }
    }

    fn push(&mut self, new: BufferedEvent) {
        let later = self.first.max(new);
        self.first = self.first.min(new);
        if later != NONE {
            self.more.get_or_insert_default().push(later.0, later.1);
        }
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        let more = self.more.as_ref().map(|more| more.sorted());
        let held: Vec<BufferedEvent> = self
            .first()
            .into_iter()
            .chain(more.into_iter().flatten())
            .collect();
        reorder_buffer::write_sorted(&held, out);
    }

    /// Reads the bytes of [`LaneBuffer::snapshot`]. An event after `latest` is an error.
    pub(crate) fn restore(
        from: &mut Reader<'_>,
        latest: Instant,
    ) -> Result<LaneBuffer, DecodeError> {
        let mut buffer = LaneBuffer::default();
        for held in reorder_buffer::read_sorted(from, latest)? {
            if held == NONE {
                return Err(DecodeError::Invalid("an event has no number"));
            }
            buffer.push(held);
        }
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn it_holds_and_gives_out_what_a_sorted_list_would(
            steps in prop::collection::vec((0..60i64, 0..60i64, 0..8u8), 0..100)
        ) {
            let mut buffer = LaneBuffer::default();
            let mut naive: Vec<BufferedEvent> = Vec::new();
            for ((time, to, step), row) in steps.into_iter().zip(0..) {
                if step == 0 {
                    let popped = (!naive.is_empty()).then(|| naive.remove(0));
                    prop_assert_eq!(buffer.pop_first(), popped);
                } else if step == 1 {
                    let mut bytes = Vec::new();
                    buffer.snapshot(&mut bytes);
                    let restored = LaneBuffer::restore(&mut Reader::new(&bytes), Instant::AFTER_ALL);
                    buffer = restored.expect("a good snapshot");
                } else {
                    let (time, to) = (Instant::from_ticks(time), Instant::from_ticks(to));
                    naive.push((time, row));
                    naive.sort();
                    let due = naive.partition_point(|held| held.0 <= to);
                    let expected: Vec<BufferedEvent> = naive.drain(..due).collect();
                    let mut given = Vec::new();
                    buffer.push_and_release(time, row, to, |time, row| given.push((time, row)));
                    prop_assert_eq!(given, expected);
                }
                prop_assert_eq!(buffer.first(), naive.first().copied());
                prop_assert_eq!(buffer.len(), naive.len());
            }
        }
    }
}
