//! The bytes of many keys, one after the other, and where each of them lies.
//!
//! Keys come and go. What is left of those that went is cleared away when it outweighs the living, so a key is copied a
//! few times at most however long it stays.

use std::ops::Range;

use super::room;

/// Dead bytes are cleared away when they outweigh the living, but not for less than this.
const GARBAGE_BYTES_MIN: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct KeyBytes {
    bytes: Vec<u8>,
    garbage: usize,
}

/// Where the bytes of a key lie: the start in 48 bits, the length in 16. Of a long key the length stands before its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(u64);

impl Place {
    /// Of a key that is kept nowhere.
    pub const NOWHERE: Place = Place(0);

    /// Says that the key is long.
    const LONG: u64 = 0xffff;

    #[inline]
    fn start(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// The same key at another start.
    fn moved(self, start: usize) -> Place {
        Place((start as u64) << 16 | self.0 & Place::LONG)
    }

    /// Where the key lies.
    #[inline]
    fn range(self, bytes: &[u8]) -> Range<usize> {
        match self.0 & Place::LONG {
            Place::LONG => {
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
    pub fn put(&mut self, key: &[u8]) -> Place {
        let start = self.bytes.len() as u64;
        let len = (key.len() as u64).min(Place::LONG);
        if len == Place::LONG {
            self.bytes
                .extend_from_slice(&(key.len() as u64).to_le_bytes());
        }
        room::make(&mut self.bytes, key.len());
        self.bytes.extend_from_slice(key);
        Place(start << 16 | len)
    }

    /// The same key once more.
    pub fn put_again(&mut self, place: Place) -> Place {
        let start = self.bytes.len();
        let whole = self.whole(place);
        room::make(&mut self.bytes, whole.len());
        self.bytes.extend_from_within(whole);
        place.moved(start)
    }

    #[inline]
    pub fn get(&self, place: Place) -> &[u8] {
        &self.bytes[place.range(&self.bytes)]
    }

    /// Everything that belongs to a key.
    #[inline]
    fn whole(&self, place: Place) -> Range<usize> {
        place.start()..place.range(&self.bytes).end
    }

    /// The key at this place will not be looked at any more. True when it is time to [`clear away`](Self::keep_only).
    pub fn forget(&mut self, place: Place) -> bool {
        self.garbage += self.whole(place).len();
        self.garbage > GARBAGE_BYTES_MIN && self.garbage > self.bytes.len() / 2
    }

    /// Clears away all keys but these, and tells each its new place.
    pub fn keep_only<'a>(&mut self, living: impl Iterator<Item = &'a mut Place>) {
        let mut kept = Vec::with_capacity(self.bytes.len() - self.garbage);
        for place in living {
            let whole = &self.bytes[self.whole(*place)];
            *place = place.moved(kept.len());
            kept.extend_from_slice(whole);
        }
        self.bytes = kept;
        self.garbage = 0;
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}
