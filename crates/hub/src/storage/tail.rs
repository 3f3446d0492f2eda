//! Recent batches in memory, so that readers who keep up are served without a copy and without the
//! disk. All partitions share one budget; the oldest bytes of the node go first.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Weak;

use bytes::Bytes;
use highwater_log::Offset;
use highwater_log::batch::Batches;
use parking_lot::Mutex;

use super::Store;

/// Whole batches that lie together, from `base` up to `next`.
#[derive(Clone, Debug)]
pub struct Piece {
    pub base: Offset,
    pub next: Offset,
    pub bytes: Bytes,
}

/// The recent batches of one partition, without a gap up to its end.
#[derive(Default)]
pub struct Tail {
    pieces: VecDeque<Piece>,
}

impl Tail {
    pub fn push(&mut self, piece: Piece) {
        self.pieces.push_back(piece);
    }

    pub fn drop_oldest(&mut self) {
        self.pieces.pop_front();
    }

    /// Whole batches from the one that holds `from`, none of them past `limit`; `None` if they are
    /// not in memory any more.
    pub fn read(&self, from: Offset, limit: Offset, bytes_max: usize) -> Option<Vec<Bytes>> {
        if self.pieces.front().is_none_or(|first| first.base > from) {
            return None;
        }
        let skipped = self.pieces.partition_point(|piece| piece.next <= from);
        let mut room = bytes_max;
        let mut found = Vec::new();
        for piece in self.pieces.range(skipped..) {
            let wanted = wanted(piece, from, limit, room, found.is_empty());
            let to_the_end = wanted.end == piece.bytes.len();
            if !wanted.is_empty() {
                room = room.saturating_sub(wanted.len());
                found.push(piece.bytes.slice(wanted));
            }
            if !to_the_end {
                break;
            }
        }
        Some(found)
    }
}

/// Where in a piece the batches lie that are wanted; at least one if it is the `first` of all.
fn wanted(piece: &Piece, from: Offset, limit: Offset, room: usize, first: bool) -> Range<usize> {
    if piece.base >= from && piece.next <= limit && piece.bytes.len() <= room {
        return 0..piece.bytes.len();
    }
    let mut wanted = 0..0;
    for batch in Batches::new(&piece.bytes).flatten() {
        if batch.header.last_offset() < from {
            wanted = batch.end()..batch.end();
            continue;
        }
        let fits = batch.end() - wanted.start <= room || first && wanted.is_empty();
        if batch.header.next_offset() > limit || !fits {
            break;
        }
        wanted.end = batch.end();
    }
    wanted
}

/// The room that all tails share.
pub struct Budget {
    bytes_max: usize,
    pieces: Mutex<Pieces>,
}

struct Pieces {
    bytes: usize,
    oldest_first: VecDeque<(Weak<Store>, usize)>,
}

impl Budget {
    pub fn new(bytes_max: usize) -> Budget {
        let pieces = Pieces {
            bytes: 0,
            oldest_first: VecDeque::new(),
        };
        Budget {
            bytes_max,
            pieces: Mutex::new(pieces),
        }
    }

    /// Counts a piece that a store has taken in, and drops the oldest while there are too many.
    pub fn add(&self, store: Weak<Store>, bytes: usize) {
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
