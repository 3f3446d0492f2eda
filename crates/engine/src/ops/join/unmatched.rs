//! When rows of a LEFT JOIN are known to be unmatched.
//!
//! A row is due at the last time at which a match can come. If all rows wait equally long they are due in input order, and
//! a count of the resolved rows is enough. Bounds that are measured from sources further to the left give each row a delay
//! of its own; then a queue is needed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use highwater_codec::{DecodeError, Reader, Writer};

use super::side::JoinSide;

#[derive(Debug)]
pub(super) enum UnmatchedQueue {
    /// Every row is due `ticks` after its time; the first `resolved` buffered rows are resolved.
    SameDelay { ticks: i64, resolved: usize },
    /// Rows by due time and number; `forgotten` is the number of the oldest buffered row.
    OwnDelay {
        queue: BinaryHeap<Reverse<(i64, u64)>>,
        forgotten: u64,
    },
}

impl UnmatchedQueue {
    pub(super) fn new(equally: bool, ticks: i64) -> UnmatchedQueue {
        match equally {
            true => UnmatchedQueue::SameDelay { ticks, resolved: 0 },
            false => UnmatchedQueue::OwnDelay {
                queue: BinaryHeap::new(),
                forgotten: 0,
            },
        }
    }

    /// Adds the newest buffered row of the side.
    pub(super) fn add(&mut self, due: i64, side: &JoinSide) {
        if let UnmatchedQueue::OwnDelay { queue, forgotten } = self {
            let number = *forgotten + side.buffered() as u64 - 1;
            queue.push(Reverse((due, number)));
        }
    }

    /// The due time and the index of the first due row.
    pub(super) fn first(&self, side: &JoinSide) -> Option<(i64, usize)> {
        match self {
            UnmatchedQueue::SameDelay { ticks, resolved } => {
                let (time, _) = side.buffered_row(*resolved)?;
                Some((time.saturating_add(*ticks), *resolved))
            }
            UnmatchedQueue::OwnDelay { queue, forgotten } => {
                let Reverse((due, number)) = queue.peek()?;
                Some((*due, (number - forgotten) as usize))
            }
        }
    }

    /// Removes the first row.
    pub(super) fn pop_first(&mut self) {
        match self {
            UnmatchedQueue::SameDelay { resolved, .. } => *resolved += 1,
            UnmatchedQueue::OwnDelay { queue, .. } => drop(queue.pop()),
        }
    }

    /// The oldest `rows` buffered rows are dropped. In an outer join all of them are resolved.
    pub(super) fn forget(&mut self, rows: usize) {
        match self {
            UnmatchedQueue::SameDelay { resolved, .. } => *resolved = resolved.saturating_sub(rows),
            UnmatchedQueue::OwnDelay { forgotten, .. } => *forgotten += rows as u64,
        }
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        match self {
            UnmatchedQueue::SameDelay { resolved, .. } => out.u64(*resolved as u64),
            UnmatchedQueue::OwnDelay { queue, forgotten } => {
                let mut rows: Vec<(i64, u64)> = queue.iter().map(|Reverse(row)| *row).collect();
                rows.sort_unstable();
                out.count(rows.len());
                for (due, number) in rows {
                    out.i64(due);
                    out.u64(number - forgotten);
                }
            }
        }
    }

    /// Restores the queue of a side that is already restored.
    pub(super) fn restore(
        &mut self,
        side: &JoinSide,
        from: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        let kept = side.buffered() as u64;
        match self {
            UnmatchedQueue::SameDelay { resolved, .. } => {
                let rows = from.u64()?;
                if rows > kept {
                    return Err(DecodeError::Invalid("more rows are resolved than kept"));
                }
                *resolved = rows as usize;
            }
            UnmatchedQueue::OwnDelay { queue, forgotten } => {
                queue.clear();
                *forgotten = 0;
                for _ in 0..from.count()? {
                    let (due, number) = (from.i64()?, from.u64()?);
                    if number >= kept {
                        return Err(DecodeError::Invalid("a row waits that is not kept"));
                    }
                    queue.push(Reverse((due, number)));
                }
            }
        }
        Ok(())
    }
}
