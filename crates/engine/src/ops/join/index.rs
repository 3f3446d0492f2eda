//! A hash index of the newest buffered row of each key.
//!
//! An open-addressing table with linear probing. A slot has part of the hash and the number of a row, so that one cache
//! line nearly always decides. Rows are removed without touching the table: their slots are dead, may be reused, and
//! are dropped when the table is rebuilt. A lookup misses the cache once here, so there is only one table.

#[derive(Debug)]
pub(super) struct Index {
    /// Tag and row, or [`EMPTY`]; a power of two of them.
    slots: Vec<u64>,
    bits: u32,
    /// Slots that are not empty, dead ones included.
    used: usize,
    /// Rows since the last rebuild. Row numbers wrap after 2^32 rows, and a dead slot must be gone by then.
    inserted: u32,
}

/// No tag is odd, so no used slot has this value.
const EMPTY: u64 = u64::MAX;
const BITS_MIN: u32 = 4;
const INSERTED_MAX: u32 = 1 << 31;

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32 & !1
}

#[inline]
fn tag_in(slot: u64) -> u32 {
    (slot >> 32) as u32
}

impl Index {
    pub(super) fn new() -> Index {
        Index {
            slots: vec![EMPTY; 1 << BITS_MIN],
            bits: BITS_MIN,
            used: 0,
            inserted: 0,
        }
    }

    /// The first slot of a tag. The upper bits decide, so a rebuilt table keeps the order of the old one.
    #[inline]
    fn home(&self, tag: u32) -> usize {
        (tag >> (u32::BITS - self.bits)) as usize
    }

    /// Where a search for the hash starts, to prefetch it.
    #[inline]
    pub(super) fn first_slot(&self, hash: u64) -> u64 {
        self.slots[self.home(tag_of(hash))]
    }

    /// The first row whose tag matches that of the hash: a guess for prefetching.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// The row with that hash for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = tag_of(hash);
        let mut at = self.home(tag);
        loop {
            let slot = self.slots[at];
            if slot == EMPTY {
                return None;
            }
            if tag_in(slot) == tag && is_it(slot as u32) {
                return Some(slot as u32);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Replaces and returns the row for which `is_it` holds, or inserts a new slot.
    pub(super) fn replace(
        &mut self,
        hash: u64,
        row: u32,
        is_alive: impl Fn(u32) -> bool,
        is_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        if self.used * 8 >= self.slots.len() * 5 || self.inserted >= INSERTED_MAX {
            self.rebuild(&is_alive);
        }
        self.inserted += 1;
        let tag = tag_of(hash);
        let new = u64::from(tag) << 32 | u64::from(row);
        let (mut at, mut free) = (self.home(tag), None);
        loop {
            let slot = self.slots[at];
            if slot == EMPTY {
                break;
            }
            if !is_alive(slot as u32) {
                free = free.or(Some(at));
            } else if tag_in(slot) == tag && is_it(slot as u32) {
                self.slots[at] = new;
                return Some(slot as u32);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.used += usize::from(free.is_none());
        self.slots[free.unwrap_or(at)] = new;
        None
    }

    fn rebuild(&mut self, is_alive: &impl Fn(u32) -> bool) {
        let lives = |slot: &u64| *slot != EMPTY && is_alive(*slot as u32);
        let alive = self.slots.iter().filter(|slot| lives(slot)).count();
        let bits = (alive * 2 + 1).next_power_of_two().trailing_zeros();
        self.bits = bits.clamp(BITS_MIN, 31);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; 1 << self.bits]);
        for slot in old.into_iter().filter(lives) {
            let mut at = self.home(tag_in(slot));
            while self.slots[at] != EMPTY {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = slot;
        }
        (self.used, self.inserted) = (alive, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Keys come and go; some share their hash, and all hashes lie close together.
    #[test]
    fn the_newest_living_row_of_a_key_is_found() {
        let mut index = Index::new();
        let mut rows: VecDeque<u64> = VecDeque::new();
        let mut base = u32::MAX - 3_000;
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, hash) = (seed >> 54, (seed >> 54 & 0xff) << 56 | 0x5500_0000_0000);
            let newest = rows.iter().rposition(|known| *known == key);
            let newest = newest.map(|at| base.wrapping_add(at as u32));
            let alive = |row: u32| (row.wrapping_sub(base) as usize) < rows.len();
            let is_it = |row: u32| alive(row) && rows[row.wrapping_sub(base) as usize] == key;
            assert_eq!(index.find(hash, is_it), newest);
            let row = base.wrapping_add(rows.len() as u32);
            assert_eq!(index.replace(hash, row, alive, is_it), newest);
            rows.push_back(key);
            let keep = (seed >> 40) as usize % 700;
            while rows.len() > keep.max(200) {
                rows.pop_front();
                base = base.wrapping_add(1);
            }
        }
        assert!(index.slots.len() <= 4_096, "{} slots", index.slots.len());
    }
}
