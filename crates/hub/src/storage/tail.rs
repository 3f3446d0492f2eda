//! Recent batches in memory, for readers at the end of the log. All partitions share one budget; the oldest bytes of
//! the node are dropped first.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Weak;

use bytes::Bytes;
use highwater_log::Offset;
use highwater_log::batch::Batches;
use parking_lot::Mutex;

use super::Store;

/// Consecutive whole batches from `base` to `next`, exclusive.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub base: Offset,
    pub next: Offset,
    pub bytes: Bytes,
}

/// The recent batches of one partition, contiguous up to its end.
#[derive(Default)]
pub(super) struct Tail {
    pieces: VecDeque<Piece>,
    /// Reads below this offset go to disk, where compaction has removed records.
    compacted_end: Option<Offset>,
}

impl Tail {
    pub(super) fn set_compacted_end(&mut self, end: Offset) {
        self.compacted_end = Some(end);
    }

    pub(super) fn push(&mut self, piece: Piece) {
        self.pieces.push_back(piece);
    }

    pub(super) fn drop_oldest(&mut self) {
        self.pieces.pop_front();
    }

    /// Whole batches from the one that contains `from`, none past `limit`; `None` if they are not in memory.
    pub(super) fn read(&self, from: Offset, limit: Offset, bytes_max: usize) -> Option<Vec<Bytes>> {
        let is_compacted = self.compacted_end.is_some_and(|end| from < end);
        if is_compacted || self.pieces.front().is_none_or(|first| first.base > from) {
            return None;
        }
        let skipped = self.pieces.partition_point(|piece| piece.next <= from);
        let mut available = bytes_max;
        let mut found = Vec::new();
        for piece in self.pieces.range(skipped..) {
            let wanted = wanted(piece, from, limit, available, found.is_empty());
            let to_the_end = wanted.end == piece.bytes.len();
            if !wanted.is_empty() {
                available = available.saturating_sub(wanted.len());
                found.push(piece.bytes.slice(wanted));
            }
            if !to_the_end {
                break;
            }
        }
        Some(found)
    }
}

/// The range of batches to return from a piece; at least one batch if it is the `first` piece.
fn wanted(
    piece: &Piece,
    from: Offset,
    limit: Offset,
    available: usize,
    first: bool,
) -> Range<usize> {
    if piece.base >= from && piece.next <= limit && piece.bytes.len() <= available {
        return 0..piece.bytes.len();
    }
    let mut wanted = 0..0;
    for batch in Batches::new(&piece.bytes).flatten() {
        if batch.header.last_offset() < from {
            wanted = batch.end()..batch.end();
            continue;
        }
        let fits = batch.end() - wanted.start <= available || first && wanted.is_empty();
        if batch.header.next_offset() > limit || !fits {
            break;
        }
        wanted.end = batch.end();
    }
    wanted
}

/// The budget that all tails share.
pub(crate) struct Budget {
    bytes_max: usize,
    pieces: Mutex<Pieces>,
}

struct Pieces {
    bytes: usize,
    oldest_first: VecDeque<(Weak<Store>, usize)>,
}

impl Budget {
    pub(crate) fn new(bytes_max: usize) -> Budget {
        let pieces = Pieces {
            bytes: 0,
            oldest_first: VecDeque::new(),
        };
        Budget {
            bytes_max,
            pieces: Mutex::new(pieces),
        }
    }

    /// Adds a piece of a store and drops the oldest pieces above the budget.
    pub(crate) fn add(&self, store: Weak<Store>, bytes: usize) {
        let mut pieces = self.pieces.lock();
        pieces.bytes += bytes;
        pieces.oldest_first.push_back((store, bytes));
        while pieces.bytes > self.bytes_max
            && let Some((store, bytes)) = pieces.oldest_first.pop_front()
        {
            pieces.bytes -= bytes;
            if let Some(store) = store.upgrade() {
                store.drop_oldest_of_tail();
            }
        }
    }
}
