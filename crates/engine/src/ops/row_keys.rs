//! The join keys of rows: the key columns as bytes, and their hash.
//!
//! Two rows match if their bytes are equal. The encoding is self-delimiting, so a stored key needs no length: it equals
//! another key if it starts with it. A row with a NULL in a key column has no key and matches no row.

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
        for column in columns {
            let value = column.get(row);
            if value.is_null() {
                self.bytes.truncate(start);
                self.push_none();
                return;
            }
            eval::encode_key(value, &mut self.bytes);
        }
        self.close(start);
    }

    pub(super) fn push_none(&mut self) {
        self.ranges.push((NO_KEY, NO_KEY));
        self.hashes.push(0);
    }

    pub(super) fn push(&mut self, key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.close(start);
    }

    #[inline]
    fn close(&mut self, start: usize) {
        let hash = FixedState::default().hash_one(&self.bytes[start..]);
        self.ranges.push((start as u32, self.bytes.len() as u32));
        self.hashes.push(hash);
    }

    pub(super) fn len(&self) -> usize {
        self.ranges.len()
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

    pub(super) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The first byte of the key that starts at `start`, to prefetch it.
    #[inline]
    pub(super) fn first_byte(&self, start: u32) -> u8 {
        self.bytes.get(start as usize).copied().unwrap_or(0)
    }

    /// Whether the key that starts at `start` equals `key`.
    #[inline]
    pub(super) fn is(&self, start: u32, key: &[u8]) -> bool {
        self.bytes[start as usize..].starts_with(key)
    }
}
