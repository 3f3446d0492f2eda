//! The join keys of rows: the key columns as bytes, and the hash of their class.
//!
//! Two rows match if their keys are equal under `=`, which converts text beside numbers and times; rows that can match
//! have the same class and so the same hash. The encoding is self-delimiting, so a stored key needs no length. A row
//! with a NULL in a key column has no key and matches no row.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::column::Column;
use crate::eval;

/// The keys of a range of rows.
#[derive(Debug, Default)]
pub(crate) struct RowKeys {
    bytes: Vec<u8>,
    /// The start and end of each row's key in `bytes`.
    ranges: Vec<(u32, u32)>,
    hashes: Vec<u64>,
    /// Some keys are not their class: keys of the same class may differ from each other.
    converted: bool,
    /// Scratch space for a class.
    class: Vec<u8>,
}

/// A key and the hash of its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashedKey<'a> {
    pub hash: u64,
    pub key: &'a [u8],
}

/// The start of a row without a key.
pub(crate) const NO_KEY: u32 = u32::MAX;

/// Starts are 32 bits wide; keys of more rows than fit go to the next [`RowKeys`].
const BYTES_MAX: usize = 1 << 30;

impl RowKeys {
    /// The keys of the rows from `from` on, as many as fit (at least one).
    pub(super) fn new(columns: &[Column], from: usize, rows: usize) -> RowKeys {
        let mut keys = RowKeys {
            bytes: Vec::with_capacity((rows - from) * columns.len() * 10),
            ranges: Vec::with_capacity(rows - from),
            hashes: Vec::with_capacity(rows - from),
            ..RowKeys::default()
        };
        for row in from..rows {
            if keys.bytes.len() > BYTES_MAX {
                break;
            }
            keys.encode(columns, row);
        }
        keys
    }

    #[inline]
    fn encode(&mut self, columns: &[Column], row: usize) {
        let start = self.bytes.len();
        let mut plain = true;
        for column in columns {
            let value = column.get(row);
            if value.is_null() {
                self.bytes.truncate(start);
                self.push_none();
                return;
            }
            plain &= eval::encode_join_key(value, &mut self.bytes);
        }
        let hash = match plain {
            true => hash_of(&self.bytes[start..]),
            false => self.hash_of_class(start),
        };
        self.close(start, hash);
    }

    pub(super) fn push_none(&mut self) {
        self.ranges.push((NO_KEY, NO_KEY));
        self.hashes.push(0);
    }

    /// Adds a key that was stored.
    pub(super) fn push(&mut self, key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let hash = self.hash_of_class(start);
        self.close(start, hash);
    }

    fn hash_of_class(&mut self, start: usize) -> u64 {
        let key = &self.bytes[start..];
        self.class.clear();
        eval::append_class(key, &mut self.class);
        self.converted |= self.class != key;
        hash_of(&self.class)
    }

    #[inline]
    fn close(&mut self, start: usize, hash: u64) {
        self.ranges.push((start as u32, self.bytes.len() as u32));
        self.hashes.push(hash);
    }

    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether keys of one class may differ: then each must be compared.
    #[inline]
    pub(super) fn is_converted(&self) -> bool {
        self.converted
    }

    /// The start of the row's key, or [`NO_KEY`].
    #[inline]
    pub(super) fn start(&self, row: usize) -> u32 {
        self.ranges[row].0
    }

    #[inline]
    pub(super) fn key(&self, row: usize) -> Option<&[u8]> {
        match self.ranges[row] {
            (NO_KEY, _) => None,
            (start, end) => Some(&self.bytes[start as usize..end as usize]),
        }
    }

    #[inline]
    pub(super) fn hash(&self, row: usize) -> u64 {
        self.hashes[row]
    }

    /// Hash and key of a row, unless one of its keys is NULL.
    #[inline]
    pub(super) fn hashed_key(&self, row: usize) -> Option<HashedKey<'_>> {
        let hash = self.hashes[row];
        self.key(row).map(|key| HashedKey { hash, key })
    }

    pub(super) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Whether the key that starts at `start` has the class of `key`. Only a row that has a key has a start.
    #[inline]
    pub(super) fn is_of_class(&self, start: u32, key: &[u8]) -> bool {
        eval::same_class(&self.bytes[start as usize..], key)
    }

    /// Whether the key that starts at `start` equals `key`.
    #[inline]
    pub(super) fn equals(&self, start: u32, key: &[u8]) -> bool {
        eval::keys_equal(&self.bytes[start as usize..], key)
    }
}

#[inline]
fn hash_of(key: &[u8]) -> u64 {
    FixedState::default().hash_one(key)
}
