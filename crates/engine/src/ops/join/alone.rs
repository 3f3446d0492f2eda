//! When rows of a LEFT JOIN are known to stay alone.
//!
//! A row is due at the last time at which a partner could have come. Where all rows wait equally long they fall due in the
//! order in which they came, and a count of those that are settled is all there is to keep. Bounds that are measured from
//! sources further to the left make each row wait as long as its own times say; then there is a queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use highwater_codec::{DecodeError, Reader, Writer};

use super::side::Side;

#[derive(Debug)]
pub(super) enum Waiting {
    /// Every row is due so long after its time; so many of the kept rows are settled.
    Equally { ticks: i64, settled: usize },
    /// Rows by due time and number; so many rows have been forgotten, which is the number of the oldest kept one.
    Each {
        queue: BinaryHeap<Reverse<(i64, u64)>>,
        forgotten: u64,
    },
}

impl Waiting {
    pub fn new(equally: bool, ticks: i64) -> Waiting {
        match equally {
            true => Waiting::Equally { ticks, settled: 0 },
            false => Waiting::Each {
                queue: BinaryHeap::new(),
                forgotten: 0,
            },
        }
    }

    /// The newest kept row of the side is due at `due`.
    pub fn add(&mut self, due: i64, side: &Side) {
        if let Waiting::Each { queue, forgotten } = self {
            let number = *forgotten + side.kept() as u64 - 1;
            queue.push(Reverse((due, number)));
        }
    }

    /// The first row that falls due, by its place among the kept ones, and when it does.
    pub fn first(&self, side: &Side) -> Option<(i64, usize)> {
        match self {
            Waiting::Equally { ticks, settled } => {
                let (time, _) = side.kept_row(*settled)?;
                Some((time.saturating_add(*ticks), *settled))
            }
            Waiting::Each { queue, forgotten } => {
                let Reverse((due, number)) = queue.peek()?;
                Some((*due, (number - forgotten) as usize))
            }
        }
    }

    /// The first row is settled.
    pub fn settle_first(&mut self) {
        match self {
            Waiting::Equally { settled, .. } => *settled += 1,
            Waiting::Each { queue, .. } => drop(queue.pop()),
        }
    }

    /// So many of the oldest kept rows are gone; all of them were settled, if anybody asked.
    pub fn forget(&mut self, rows: usize) {
        match self {
            Waiting::Equally { settled, .. } => *settled = settled.saturating_sub(rows),
            Waiting::Each { forgotten, .. } => *forgotten += rows as u64,
        }
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        match self {
            Waiting::Equally { settled, .. } => out.u64(*settled as u64),
            Waiting::Each { queue, forgotten } => {
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

    /// Reads what was written about a side that has been restored already.
    pub fn restore(&mut self, side: &Side, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let kept = side.kept() as u64;
        match self {
            Waiting::Equally { settled, .. } => {
                let rows = from.u64()?;
                if rows > kept {
                    return Err(DecodeError::Invalid("more rows are settled than kept"));
                }
                *settled = rows as usize;
            }
            Waiting::Each { queue, forgotten } => {
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
