//! The bytes of many keys in one buffer.
//!
//! Removed keys leave garbage, which is compacted when it exceeds the live bytes, so a key is copied a few times at
//! most.

use std::ops::Range;

use super::vec_growth;

/// Less garbage than this is not compacted.
const GARBAGE_BYTES_MIN: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct KeyBytes {
    bytes: Vec<u8>,
    garbage: usize,
}

/// The position of a key: the start in 48 bits, the length in 16. The length of a long key precedes its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRef(u64);

impl KeyRef {
    /// No key.
    pub(super) const NONE: KeyRef = KeyRef(0);

    /// Marks a long key.
    const LONG: u64 = 0xffff;

    #[inline]
    fn start(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// The same key at another start.
    fn moved(self, start: usize) -> KeyRef {
        KeyRef((start as u64) << 16 | self.0 & KeyRef::LONG)
    }

    /// Where the key lies.
    #[inline]
    fn range(self, bytes: &[u8]) -> Range<usize> {
        match self.0 & KeyRef::LONG {
            KeyRef::LONG => {
                let key = self.start() + size_of::<u64>();
                let mut len = [0; size_of::<u64>()];
                len.copy_from_slice(&bytes[self.start()..key]);
                key..key + u64::from_le_bytes(len) as usize
            }
            len => self.start()..self.start() + len as usize,
        }
    }
}

impl KeyBytes {
    pub(super) fn put(&mut self, key: &[u8]) -> KeyRef {
        let start = self.bytes.len() as u64;
        let len = (key.len() as u64).min(KeyRef::LONG);
        if len == KeyRef::LONG {
            self.bytes
                .extend_from_slice(&(key.len() as u64).to_le_bytes());
        }
        vec_growth::reserve(&mut self.bytes, key.len());
        self.bytes.extend_from_slice(key);
        KeyRef(start << 16 | len)
    }

    /// Copies a key.
    pub(super) fn put_again(&mut self, key: KeyRef) -> KeyRef {
        let start = self.bytes.len();
        let whole = self.whole(key);
        vec_growth::reserve(&mut self.bytes, whole.len());
        self.bytes.extend_from_within(whole);
        key.moved(start)
    }

    #[inline]
    pub(super) fn get(&self, key: KeyRef) -> &[u8] {
        &self.bytes[key.range(&self.bytes)]
    }

    /// The bytes of a key with its length prefix.
    #[inline]
    fn whole(&self, key: KeyRef) -> Range<usize> {
        key.start()..key.range(&self.bytes).end
    }

    /// Marks a key as garbage. Returns whether the caller should [compact](Self::keep_only).
    pub(super) fn forget(&mut self, key: KeyRef) -> bool {
        self.garbage += self.whole(key).len();
        self.garbage > GARBAGE_BYTES_MIN && self.garbage > self.bytes.len() / 2
    }

    /// Removes all other keys and updates the references.
    pub(super) fn keep_only<'a>(&mut self, living: impl Iterator<Item = &'a mut KeyRef>) {
        let mut kept = Vec::with_capacity(self.bytes.len() - self.garbage);
        for key in living {
            let whole = &self.bytes[self.whole(*key)];
            *key = key.moved(kept.len());
            kept.extend_from_slice(whole);
        }
        self.bytes = kept;
        self.garbage = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}
