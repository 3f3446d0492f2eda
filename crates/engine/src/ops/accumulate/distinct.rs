//! COUNT(DISTINCT): equal grouping keys count once, NULL does not count.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use highwater_codec::{DecodeError, Reader, Writer};

use crate::column::Column;
use crate::eval;

/// Encoded keys in order of first occurrence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distinct {
    table: HashTable<u32>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Distinct {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, index: usize) -> &[u8] {
        key(&self.bytes, &self.ends, index)
    }

    pub(crate) fn insert(&mut self, new: &[u8]) {
        let hash = |key: &[u8]| FixedState::default().hash_one(key);
        let hashed = hash(new);
        if self
            .table
            .find(hashed, |&index| self.key(index as usize) == new)
            .is_some()
        {
            return;
        }
        let index = self.ends.len() as u32;
        self.bytes.extend_from_slice(new);
        self.ends.push(self.bytes.len());
        let (bytes, ends) = (&self.bytes, &self.ends);
        self.table.insert_unique(hashed, index, |&index| {
            hash(key(bytes, ends, index as usize))
        });
    }

    pub(crate) fn absorb(&mut self, other: &Distinct) {
        (0..other.len()).for_each(|index| self.insert(other.key(index)));
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.len());
        (0..self.len()).for_each(|index| out.blob(self.key(index)));
    }

    pub(crate) fn restore(from: &mut Reader<'_>) -> Result<Distinct, DecodeError> {
        let mut set = Distinct::default();
        for _ in 0..from.count()? {
            set.insert(from.blob()?);
        }
        Ok(set)
    }
}

fn key<'a>(bytes: &'a [u8], ends: &[usize], index: usize) -> &'a [u8] {
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &bytes[start..ends[index]]
}

pub(super) fn update(sets: &mut [Distinct], slots: &[u32], start: usize, column: &Column) {
    let mut key = Vec::new();
    for (row, &slot) in slots.iter().enumerate() {
        let value = column.get(start + row);
        if value.is_null() {
            continue;
        }
        key.clear();
        eval::encode_key(value, &mut key);
        sets[slot as usize].insert(&key);
    }
}
