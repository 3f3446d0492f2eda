//! Groups of rows with equal keys, and their aggregates.
//!
//! Groups keep the order in which they were first met, and come out in it: the hash table only finds them. Two keys are
//! one group when their encoded bytes are equal; what is shown is the first of them, kept as it came.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use highwater_query::plan::{Aggregate, Expr};
use highwater_time::Instant;

use super::accumulate::{self, Accumulator};
use super::lanes::RowsOut;
use super::{Context, DataErrors};
use crate::chunk::Chunk;
use crate::codec::{Reader, RestoreError, Writer};
use crate::column::Column;
use crate::eval::{self, Faults};

/// What a windowed query groups by and computes.
#[derive(Clone, Debug)]
pub(crate) struct GroupSpec {
    pub keys: Vec<Expr>,
    pub aggregates: Vec<Aggregate>,
}

/// A chunk with everything evaluated that grouping needs.
pub(crate) struct Prepared {
    pub chunk: Chunk,
    pub keys: Vec<Column>,
    pub arguments: Vec<Option<Column>>,
    encoded: Encoded,
}

/// One encoded key per row.
#[derive(Default)]
pub(crate) struct Encoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<u64>,
}

impl GroupSpec {
    /// Evaluates keys and arguments; rows on which an expression fails are counted and left out.
    pub fn prepare(&self, chunk: Chunk, context: &mut Context<'_>) -> Prepared {
        let mut faults = Faults::new(chunk.rows());
        let mut columns = self.evaluate(&chunk, &mut faults);
        let mut chunk = chunk;
        if !faults.is_empty() {
            chunk = context.errors.sift(chunk, &faults);
            columns = self.evaluate(&chunk, &mut Faults::new(chunk.rows()));
        }
        let (keys, arguments) = columns;
        let encoded = Encoded::new(keys.iter(), chunk.rows());
        Prepared {
            chunk,
            keys,
            arguments,
            encoded,
        }
    }

    fn evaluate(&self, chunk: &Chunk, faults: &mut Faults) -> (Vec<Column>, Vec<Option<Column>>) {
        let keys = self
            .keys
            .iter()
            .map(|key| eval::evaluate(key, chunk, faults))
            .collect();
        let arguments = self
            .aggregates
            .iter()
            .map(|spec| accumulate::argument(spec, chunk, faults))
            .collect();
        (keys, arguments)
    }
}

impl Prepared {
    pub fn key(&self, row: usize) -> &[u8] {
        self.encoded.key(row)
    }

    pub fn hash(&self, row: usize) -> u64 {
        self.encoded.hash(row)
    }
}

impl Encoded {
    pub fn new<'a>(keys: impl Iterator<Item = &'a Column> + Clone, rows: usize) -> Encoded {
        let mut encoded = Encoded {
            bytes: Vec::with_capacity(rows * 10),
            ends: Vec::with_capacity(rows),
            hashes: Vec::with_capacity(rows),
        };
        let state = FixedState::default();
        let mut start = 0;
        for row in 0..rows {
            for key in keys.clone() {
                eval::encode_key(key.get(row), &mut encoded.bytes);
            }
            encoded.hashes.push(state.hash_one(&encoded.bytes[start..]));
            start = encoded.bytes.len();
            encoded.ends.push(start);
        }
        encoded
    }

    pub fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    pub fn hash(&self, row: usize) -> u64 {
        self.hashes[row]
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Groups {
    table: HashTable<u32>,
    hashes: Vec<u64>,
    /// The encoded keys of all groups, one after the other, and where each ends.
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    /// The key values as first met, in snapshot form, and where each group's end.
    shown: Shown,
    accumulators: Vec<Accumulator>,
}

/// Values of all groups in snapshot form.
#[derive(Clone, Debug, Default)]
struct Shown {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Groups {
    pub fn new(spec: &GroupSpec) -> Groups {
        Groups {
            table: HashTable::new(),
            hashes: Vec::new(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            shown: Shown::default(),
            accumulators: spec.aggregates.iter().map(Accumulator::new).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Adds the rows `rows` of a prepared chunk.
    pub fn add(
        &mut self,
        spec: &GroupSpec,
        input: &Prepared,
        rows: std::ops::Range<usize>,
        slots: &mut Vec<u32>,
        errors: &mut DataErrors,
    ) {
        slots.clear();
        for row in rows.clone() {
            let (hash, key) = (input.hash(row), input.key(row));
            let slot = match self.find(hash, key) {
                Some(slot) => slot,
                None => self.insert(hash, key, |shown| {
                    input
                        .keys
                        .iter()
                        .for_each(|column| shown.value(column.get(row)));
                }),
            };
            slots.push(slot);
        }
        let time = input.chunk.time(rows.start);
        self.grow();
        for (index, accumulator) in self.accumulators.iter_mut().enumerate() {
            let argument = input.arguments[index].as_ref();
            let outcome = accumulator.update(slots, rows.start, argument);
            accumulate::note(outcome, &spec.aggregates[index], time, errors);
        }
    }

    /// Adds what another share of the same window gathered; its groups come after ours.
    pub fn absorb(&mut self, spec: &GroupSpec, other: &Groups, end: i64, errors: &mut DataErrors) {
        let slots: Vec<u32> = (0..other.len())
            .map(|slot| {
                let (hash, key) = (other.hashes[slot], other.key(slot));
                self.find(hash, key).unwrap_or_else(|| {
                    self.insert(hash, key, |out| {
                        out.bytes.extend_from_slice(other.shown(slot))
                    })
                })
            })
            .collect();
        self.grow();
        for (index, accumulator) in self.accumulators.iter_mut().enumerate() {
            let outcome = accumulator.absorb(&other.accumulators[index], &slots);
            accumulate::note(
                outcome,
                &spec.aggregates[index],
                Instant::from_ticks(end),
                errors,
            );
        }
    }

    fn grow(&mut self) {
        let groups = self.len();
        self.accumulators
            .iter_mut()
            .for_each(|accumulator| accumulator.grow(groups));
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.table
            .find(hash, |&slot| self.key(slot as usize) == key)
            .copied()
    }

    fn insert(&mut self, hash: u64, key: &[u8], show: impl FnOnce(&mut Writer)) -> u32 {
        let slot = self.hashes.len() as u32;
        self.hashes.push(hash);
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len() as u32);
        let mut writer = Writer {
            bytes: std::mem::take(&mut self.shown.bytes),
        };
        show(&mut writer);
        self.shown.bytes = writer.bytes;
        self.shown.ends.push(self.shown.bytes.len() as u32);
        self.table
            .insert_unique(hash, slot, |&slot| self.hashes[slot as usize]);
        slot
    }

    #[inline]
    fn key(&self, slot: usize) -> &[u8] {
        range_of(&self.keys, &self.key_ends, slot)
    }

    fn shown(&self, slot: usize) -> &[u8] {
        range_of(&self.shown.bytes, &self.shown.ends, slot)
    }

    /// Writes one row per group. A group whose result cannot be represented is counted and left out.
    pub fn emit(&self, spec: &GroupSpec, end: i64, out: &mut RowsOut, errors: &mut DataErrors) {
        let mut results = Vec::with_capacity(self.accumulators.len());
        for slot in 0..self.len() {
            results.clear();
            let mut failed = None;
            for (index, accumulator) in self.accumulators.iter().enumerate() {
                match accumulator.result(slot) {
                    Ok(value) => results.push(value),
                    Err(reason) => failed = Some((index, reason)),
                }
            }
            if let Some((index, reason)) = failed {
                let span = spec.aggregates[index].span;
                errors.add(Instant::from_ticks(end), span, || reason.to_string());
                continue;
            }
            let mut shown = Reader::new(self.shown(slot));
            let keys = spec.keys.iter().map(|_| shown.value().unwrap_or_default());
            out.row(end, keys.chain(results.drain(..)));
        }
    }

    pub fn snapshot(&self, out: &mut Writer) {
        out.count(self.len());
        for slot in 0..self.len() {
            out.u64(self.hashes[slot]);
            out.blob(self.key(slot));
            out.blob(self.shown(slot));
        }
        self.accumulators
            .iter()
            .for_each(|accumulator| accumulator.snapshot(out));
    }

    pub fn restore(spec: &GroupSpec, from: &mut Reader<'_>) -> Result<Groups, RestoreError> {
        let mut groups = Groups::new(spec);
        let len = from.count()?;
        for _ in 0..len {
            let hash = from.u64()?;
            let key = from.blob()?;
            let shown = from.blob()?;
            groups.insert(hash, key, |out| out.bytes.extend_from_slice(shown));
        }
        for accumulator in &mut groups.accumulators {
            accumulator.restore(len, from)?;
        }
        Ok(groups)
    }
}

#[inline]
fn range_of<'a>(bytes: &'a [u8], ends: &[u32], index: usize) -> &'a [u8] {
    let start = if index == 0 {
        0
    } else {
        ends[index - 1] as usize
    };
    &bytes[start..ends[index] as usize]
}
