//! The events that wait in one lane: seldom more than one.
//!
//! There may be a million lanes, and most hold the key's latest event and nothing else. So the first
//! event lies in the lane itself, where it is found with the rest of the lane in one look at memory,
//! and only what waits behind it takes a buffer.

use crate::Instant;
use crate::reorder::{self, Reorder};
use crate::snapshot::RestoreError;

type Held = (Instant, u64);

/// Stands for no event: it comes after all events.
const NONE: Held = (Instant::AFTER_ALL, u64::MAX);

/// Events as (timestamp, row). Rows grow from one event to the next.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Before everything in `more`.
    first: Held,
    more: Option<Box<Reorder>>,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            first: NONE,
            more: None,
        }
    }
}

impl Waiting {
    pub fn len(&self) -> usize {
        let more = self.more.as_ref().map_or(0, |more| more.len());
        usize::from(self.first != NONE) + more
    }

    #[inline]
    pub fn first(&self) -> Option<Held> {
        (self.first != NONE).then_some(self.first)
    }

    #[inline]
    pub fn pop_first(&mut self) -> Option<Held> {
        let first = self.first()?;
        self.first = match &self.more {
            None => NONE,
            Some(_) => self.next(),
        };
        Some(first)
    }

    /// The first of those behind; an empty buffer is let go of, so that nobody looks into it again.
    #[cold]
    fn next(&mut self) -> Held {
        let Some(more) = &mut self.more else {
            return NONE;
        };
        let next = more.pop_first().unwrap_or(NONE);
        if more.len() == 0 {
            self.more = None;
        }
        next
    }

    /// Adds an event and gives out, sorted, everything up to and including `to`.
    #[inline]
    pub fn admit(
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

    fn push(&mut self, new: Held) {
        let later = self.first.max(new);
        self.first = self.first.min(new);
        if later != NONE {
            self.more.get_or_insert_default().push(later.0, later.1);
        }
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        let more = self.more.as_ref().map(|more| more.sorted());
        let held: Vec<Held> = self
            .first()
            .into_iter()
            .chain(more.into_iter().flatten())
            .collect();
        reorder::put_sorted(&held, out);
    }

    /// Reads what [`Waiting::snapshot`] wrote; no event may lie past `latest`.
    pub fn restore(from: &mut &[u8], latest: Instant) -> Result<Waiting, RestoreError> {
        let mut waiting = Waiting::default();
        for held in reorder::take_sorted(from, latest)? {
            if held == NONE {
                return Err(RestoreError::Invalid("an event has no number"));
            }
            waiting.push(held);
        }
        Ok(waiting)
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
            let mut waiting = Waiting::default();
            let mut naive: Vec<Held> = Vec::new();
            for ((time, to, step), row) in steps.into_iter().zip(0..) {
                if step == 0 {
                    let popped = (!naive.is_empty()).then(|| naive.remove(0));
                    prop_assert_eq!(waiting.pop_first(), popped);
                } else if step == 1 {
                    let mut bytes = Vec::new();
                    waiting.snapshot(&mut bytes);
                    let restored = Waiting::restore(&mut bytes.as_slice(), Instant::AFTER_ALL);
                    waiting = restored.expect("a good snapshot");
                } else {
                    let (time, to) = (Instant::from_ticks(time), Instant::from_ticks(to));
                    naive.push((time, row));
                    naive.sort();
                    let due = naive.partition_point(|held| held.0 <= to);
                    let expected: Vec<Held> = naive.drain(..due).collect();
                    let mut given = Vec::new();
                    waiting.admit(time, row, to, |time, row| given.push((time, row)));
                    prop_assert_eq!(given, expected);
                }
                prop_assert_eq!(waiting.first(), naive.first().copied());
                prop_assert_eq!(waiting.len(), naive.len());
            }
        }
    }
}
