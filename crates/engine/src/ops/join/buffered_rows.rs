//! The buffered rows of one side: a ring buffer that rows enter and leave in time order, and an index of their keys.
//!
//! An entry is one cache line with the key in it, so that a lookup costs two cache misses: one for the slot of the
//! index, one for the entry. Each entry links to the previous one with a key of the same class, and the index has the
//! newest. A row is removed by leaving the ring buffer: a link out of the buffer is the end of the chain.

use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::super::row_keys::HashedKey;
use super::super::short_key::{ShortKey, WantedKey};
use super::block_ring::BlockRing;
use super::index::Index;
use super::side::RowRef;
use crate::eval;

/// Shorter keys are in the entry.
const KEY_BYTES: usize = 40;
/// How many rows are prefetched at once.
pub(super) const PREFETCH_ROWS: usize = 64;
/// With fewer buffered rows everything is in the cache.
const PREFETCH_MIN_ROWS: usize = 4_096;

/// A row that later rows of the other side may match.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct BufferedRow {
    pub time: i64,
    pub row_ref: RowRef,
    key: ShortKey<KEY_BYTES>,
    /// The lower half of the hash of its class; the index compares the upper half.
    hash: u32,
    /// The previous row with a key of the same class; itself if there is none.
    before: u32,
}

const _: () = assert!(size_of::<BufferedRow>() == 64);

/// The size of a buffered row without its values: its entry, with its key if that is short, and its index slot.
pub(in crate::ops) const ROW_BYTES: usize = size_of::<BufferedRow>() + size_of::<u64>();

#[derive(Debug)]
pub(super) struct BufferedRows {
    index: Index,
    rows: Rows,
}

#[derive(Debug, Default)]
struct Rows {
    list: BlockRing<BufferedRow>,
    /// The number of the first row, wrapping at 32 bits.
    base: u32,
    /// The keys that are not in their entries, by the number of the row.
    long_keys: HashMap<u32, Box<[u8]>, FixedState>,
}

impl BufferedRows {
    pub(super) fn new() -> BufferedRows {
        BufferedRows {
            index: Index::new(),
            rows: Rows::default(),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = BufferedRows::new();
    }

    pub(super) fn len(&self) -> usize {
        self.rows.list.len()
    }

    /// A row, counted from the oldest.
    pub(super) fn get(&self, index: usize) -> Option<&BufferedRow> {
        self.rows.list.get(index)
    }

    pub(super) fn range_mut(
        &mut self,
        range: Range<usize>,
    ) -> impl Iterator<Item = &mut BufferedRow> {
        self.rows.list.range_mut(range)
    }

    /// The number of rows at the front for which `is_before` holds; it holds for none behind them.
    pub(super) fn partition_point(&self, is_before: impl Fn(&BufferedRow) -> bool) -> usize {
        self.rows.list.partition_point(is_before)
    }

    /// The rows with their keys, in time order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BufferedRow, Option<&[u8]>)> {
        (0..).zip(self.rows.list.iter()).map(|(index, row)| {
            let id = self.rows.base.wrapping_add(index);
            let key = (row.key != ShortKey::NONE).then(|| self.rows.key(id, row));
            (row, key)
        })
    }

    /// Adds the newest row with its hash and key, if it has one.
    pub(super) fn push(&mut self, time: i64, row_ref: RowRef, key: Option<HashedKey<'_>>) {
        let rows = &mut self.rows;
        let id = rows.base.wrapping_add(rows.list.len() as u32);
        let mut row = BufferedRow {
            time,
            row_ref,
            key: ShortKey::NONE,
            hash: 0,
            before: id,
        };
        if let Some(key) = key {
            let wanted = WantedKey::new(key);
            let newest = self.index.replace(
                key.hash,
                id,
                |id| rows.get(id).is_some(),
                |id| rows.has_class(id, &wanted),
            );
            (row.key, row.hash) = (wanted.short, key.hash as u32);
            row.before = newest.unwrap_or(id);
            if row.key.is_long() {
                rows.long_keys.insert(id, key.key.into());
            }
        }
        rows.list.push_back(row);
    }

    /// Visits the rows with an equal key, newest first. `converted`: the keys of a class may differ.
    #[inline]
    pub(super) fn find(
        &self,
        key: HashedKey<'_>,
        converted: bool,
        mut visit: impl FnMut(i64, RowRef),
    ) {
        let (rows, wanted) = (&self.rows, WantedKey::new(key));
        let newest = self.index.find(key.hash, |id| rows.has_class(id, &wanted));
        let row_of = |id: u32| rows.get(id).map(|row| (id, row));
        let mut at = newest.and_then(row_of);
        // Otherwise all keys of a class are the same.
        if !converted && !at.is_some_and(|(id, row)| rows.has_key(id, row, &wanted)) {
            return;
        }
        while let Some((id, row)) = at {
            if !converted || rows.has_key(id, row, &wanted) {
                visit(row.time, row.row_ref);
            }
            at = match row.before == id {
                true => None,
                false => row_of(row.before),
            };
        }
    }

    /// Touches the memory that lookups of these hashes will touch, at most [`PREFETCH_ROWS`] of them. Each step runs
    /// over all hashes before the next, so that cache misses overlap, and no step branches on what has just been
    /// touched.
    pub(super) fn prefetch(&self, hashes: &[u64]) {
        if self.rows.list.len() < PREFETCH_MIN_ROWS {
            return;
        }
        let slots = hashes.iter().map(|hash| self.index.first_slot(*hash));
        std::hint::black_box(slots.fold(0, u64::wrapping_add));
        let mut guesses = [None; PREFETCH_ROWS];
        for (guess, hash) in guesses.iter_mut().zip(hashes) {
            *guess = self.index.guess(*hash);
        }
        let found = guesses.into_iter().flatten();
        let found = found.filter_map(|id| self.rows.get(id));
        std::hint::black_box(found.map(|row| row.before).fold(0, u32::wrapping_add));
    }

    /// Drops the rows before `time` and returns their number.
    pub(super) fn drop_before(&mut self, time: i64) -> usize {
        let rows = &mut self.rows;
        let mut gone = 0;
        while let Some(row) = rows.list.pop_front_if(|row| row.time < time) {
            if row.key.is_long() {
                rows.long_keys.remove(&rows.base);
            }
            rows.base = rows.base.wrapping_add(1);
            gone += 1;
        }
        gone
    }
}

impl Rows {
    #[inline]
    fn get(&self, id: u32) -> Option<&BufferedRow> {
        self.list.get(id.wrapping_sub(self.base) as usize)
    }

    fn key<'a>(&'a self, id: u32, row: &'a BufferedRow) -> &'a [u8] {
        let long = || self.long_keys.get(&id).map_or(&[][..], |key| key);
        row.key.bytes().unwrap_or_else(long)
    }

    /// Whether a row has a key of the same class.
    #[inline]
    fn has_class(&self, id: u32, wanted: &WantedKey<'_, KEY_BYTES>) -> bool {
        let row = self.get(id).filter(|row| row.hash == wanted.hash as u32);
        row.is_some_and(|row| {
            wanted.is(&row.key) || eval::same_class(self.key(id, row), wanted.key)
        })
    }

    /// Whether a row has an equal key.
    #[inline]
    fn has_key(&self, id: u32, row: &BufferedRow, wanted: &WantedKey<'_, KEY_BYTES>) -> bool {
        wanted.is(&row.key) || eval::keys_equal(self.key(id, row), wanted.key)
    }
}
