//! Interns grouping keys as small numbers, with reference counts.
//!
//! The panes of a hopping window have mostly the same keys, and a key may have one session after the other. A key is
//! hashed and compared once, on input; after that it is an index. A number is reused when its last reference is gone.
//! Results do not depend on numbers, so reuse is not observable.

use hashbrown::HashTable;

use super::key_bytes::{KeyBytes, KeyRef};
use super::vec_growth;

#[derive(Clone, Debug, Default)]
pub(crate) struct KeyTable {
    table: HashTable<u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    bytes: KeyBytes,
}

#[derive(Clone, Debug)]
struct Entry {
    key: KeyRef,
    hash: u32,
    holders: u32,
}

const _: () = assert!(size_of::<Entry>() == 16);

/// The stored half of a hash.
#[inline]
pub(crate) fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A table hash from the stored half.
#[inline]
pub(crate) fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl KeyTable {
    /// One more than the largest number in use.
    pub(super) fn bound(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn state_bytes(&self) -> usize {
        size_of_val(&self.entries[..]) + self.bytes.len()
    }

    #[inline]
    pub(super) fn key(&self, id: u32) -> &[u8] {
        self.bytes.get(self.entries[id as usize].key)
    }

    /// Half of the hash of a key.
    pub(super) fn half_hash(&self, id: u32) -> u32 {
        self.entries[id as usize].hash
    }

    #[inline]
    fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let same = |&id: &u32| self.entries[id as usize].hash == hash && self.key(id) == key;
        self.table.find(spread(hash), same).copied()
    }

    /// The number of a key. Adds a reference.
    pub(super) fn hold(&mut self, hash: u64, key: &[u8]) -> u32 {
        let hash = half(hash);
        if let Some(id) = self.find(hash, key) {
            self.entries[id as usize].holders += 1;
            return id;
        }
        let entry = Entry {
            key: self.bytes.put(key),
            hash,
            holders: 1,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                vec_growth::reserve(&mut self.entries, 1);
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let entries = &self.entries;
        self.table
            .insert_unique(spread(hash), id, |&id| spread(entries[id as usize].hash));
        id
    }

    /// Adds a reference to a known key.
    pub(super) fn hold_again(&mut self, id: u32) -> u32 {
        self.entries[id as usize].holders += 1;
        id
    }

    /// Drops a reference; true if it was the last.
    pub(super) fn release(&mut self, id: u32) -> bool {
        let entry = &mut self.entries[id as usize];
        entry.holders -= 1;
        if entry.holders > 0 {
            return false;
        }
        let (key, hash) = (entry.key, spread(entry.hash));
        if let Ok(found) = self.table.find_entry(hash, |&other| other == id) {
            found.remove();
        }
        self.free.push(id);
        if self.bytes.forget(key) {
            let living = self.entries.iter_mut().filter(|entry| entry.holders > 0);
            self.bytes.keep_only(living.map(|entry| &mut entry.key));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_only_when_nobody_holds_them() {
        let mut keys = KeyTable::default();
        let (a, b) = (keys.hold(1, b"a"), keys.hold(1, b"b"));
        assert_ne!(a, b);
        assert_eq!(keys.hold(1, b"a"), a);
        assert!(!keys.release(a));
        assert!(keys.release(a));
        let c = keys.hold(2, b"ccc");
        assert_eq!(c, a);
        assert_eq!((keys.key(b), keys.key(c)), (&b"b"[..], &b"ccc"[..]));
    }

    #[test]
    fn keys_of_any_length_are_told_apart_though_their_hashes_agree() {
        let mut keys = KeyTable::default();
        let all: Vec<Vec<u8>> = [0, 1, 65_534, 65_535, 70_000]
            .map(|len| vec![b'x'; len])
            .into();
        let ids: Vec<u32> = all.iter().map(|key| keys.hold(7, key)).collect();
        for (id, key) in ids.iter().zip(&all) {
            assert_eq!(keys.key(*id), key);
            assert_eq!(keys.hold(7, key), *id);
        }
    }

    #[test]
    fn clearing_away_keeps_the_living() {
        let mut keys = KeyTable::default();
        let text = |i: u64| format!("key {i:060}");
        let ids: Vec<u32> = (0..5_000)
            .map(|i| keys.hold(i, text(i).as_bytes()))
            .collect();
        for (i, id) in ids.iter().enumerate().filter(|(i, _)| i % 7 > 0) {
            assert!(keys.release(*id), "{i}");
        }
        assert!(keys.bytes.len() < 5_000 * 64 / 2);
        for (i, id) in ids.iter().enumerate().filter(|(i, _)| i % 7 == 0) {
            assert_eq!(keys.key(*id), text(i as u64).as_bytes());
            assert_eq!(keys.hold(i as u64, text(i as u64).as_bytes()), *id);
        }
    }
}
