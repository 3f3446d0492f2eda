//! Grouping keys under small numbers, shared by everything of one operator that holds them.
//!
//! A hopping window is five panes with mostly the same keys, and a key may have one session after the other. Keys are
//! hashed and compared once, when they come in; from then on a key is an index into plain lists. A number is given to
//! another key when nobody holds it any more. Numbers never show in a result, so their reuse decides nothing.

use hashbrown::HashTable;

use super::room;

/// Dead bytes are cleared away when they outweigh the living, but not for less than this.
const GARBAGE_BYTES_MIN: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    table: HashTable<u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    bytes: Vec<u8>,
    garbage: usize,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    start: usize,
    len: u32,
    holders: u32,
}

impl KeyTable {
    /// One more than the largest number in use.
    pub fn bound(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub fn key(&self, id: u32) -> &[u8] {
        let entry = &self.entries[id as usize];
        &self.bytes[entry.start..entry.start + entry.len as usize]
    }

    pub fn hash(&self, id: u32) -> u64 {
        self.entries[id as usize].hash
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let same = |&id: &u32| self.entries[id as usize].hash == hash && self.key(id) == key;
        self.table.find(hash, same).copied()
    }

    /// The number of a key, held once more.
    pub fn hold(&mut self, hash: u64, key: &[u8]) -> u32 {
        if let Some(id) = self.find(hash, key) {
            self.entries[id as usize].holders += 1;
            return id;
        }
        let entry = Entry {
            hash,
            start: self.bytes.len(),
            len: key.len() as u32,
            holders: 1,
        };
        room::make(&mut self.bytes, key.len());
        self.bytes.extend_from_slice(key);
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                room::make(&mut self.entries, 1);
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let entries = &self.entries;
        self.table
            .insert_unique(hash, id, |&id| entries[id as usize].hash);
        id
    }

    /// Holds a key that is held already once more.
    pub fn hold_again(&mut self, id: u32) -> u32 {
        self.entries[id as usize].holders += 1;
        id
    }

    /// Gives up one hold; true if it was the last.
    pub fn release(&mut self, id: u32) -> bool {
        let entry = &mut self.entries[id as usize];
        entry.holders -= 1;
        if entry.holders > 0 {
            return false;
        }
        self.garbage += entry.len as usize;
        if let Ok(found) = self.table.find_entry(entry.hash, |&other| other == id) {
            found.remove();
        }
        self.free.push(id);
        if self.garbage > GARBAGE_BYTES_MIN && self.garbage > self.bytes.len() / 2 {
            self.compact();
        }
        true
    }

    fn compact(&mut self) {
        let mut kept = Vec::with_capacity(self.bytes.len() - self.garbage);
        for entry in self.entries.iter_mut().filter(|entry| entry.holders > 0) {
            let start = kept.len();
            kept.extend_from_slice(&self.bytes[entry.start..entry.start + entry.len as usize]);
            entry.start = start;
        }
        self.bytes = kept;
        self.garbage = 0;
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
