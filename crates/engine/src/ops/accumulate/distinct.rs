//! COUNT(DISTINCT): equal grouping keys count once, NULL does not count.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use highwater_codec::{DecodeError, Reader, Writer};

use super::FailureReason;
use super::per_group::GroupState;
use crate::eval;
use crate::value::{Value, ValueRef};

/// Encoded keys in order of first occurrence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distinct {
    table: HashTable<u32>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Distinct {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, index: usize) -> &[u8] {
        key(&self.bytes, &self.ends, index)
    }

    fn insert(&mut self, new: &[u8]) {
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
}

impl GroupState for Distinct {
    type Rule = ();

    fn add(&mut self, (): &(), value: ValueRef<'_>, buffer: &mut Vec<u8>) {
        if !value.is_null() {
            buffer.clear();
            eval::encode_key(value, buffer);
            self.insert(buffer);
        }
    }

    fn absorb(&mut self, (): &(), other: &Distinct) {
        (0..other.len()).for_each(|index| self.insert(other.key(index)));
    }

    fn result(&self, (): &()) -> Result<Value, FailureReason> {
        Ok(Value::Int(self.len() as i64))
    }

    fn list_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.ends[..])
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.len());
        (0..self.len()).for_each(|index| out.blob(self.key(index)));
    }

    fn restore((): &(), from: &mut Reader<'_>) -> Result<Distinct, DecodeError> {
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
