//! Groups of rows with equal keys, and their aggregates.
//!
//! Groups are emitted in order of first occurrence; the hash table only finds them. Two keys are one group if their
//! encoded bytes are equal. The first key is emitted as it was in the input: it is decoded from the bytes, unless the
//! bytes do not determine it ([`OriginalKeys`]).

use std::hash::BuildHasher;
use std::ops::Range;

use arrow_array::Array;
use arrow_buffer::BooleanBuffer;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_query::plan::{Aggregate, Expr};
use highwater_time::Instant;

use super::accumulate::{self, Accumulator};
use super::having::Having;
use super::window_operator::RowWriter;
use super::{Context, DataErrors, vec_growth};
use crate::chunk::{CHUNK_ROWS, Chunk};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};
use crate::value::ValueRef;

/// The keys and aggregates of a windowed query.
#[derive(Clone, Debug)]
pub(crate) struct GroupSpec {
    pub keys: Vec<Expr>,
    pub aggregates: Vec<Aggregate>,
    /// The filter of the next step, if it reads only aggregates: rows that fail it are not written.
    pub having: Option<Having>,
    /// All rows of a lane have the same group keys, because these are part of the lane's key.
    pub lane_determines_group: bool,
    /// Keys that differ only in case are one group.
    pub ignore_case: bool,
}

/// A chunk with its evaluated keys and arguments.
pub(crate) struct GroupInput {
    pub chunk: Chunk,
    pub keys: Vec<Column>,
    pub arguments: Vec<Option<Column>>,
    pub encoded: EncodedKeys,
    /// The keys in the form that is compared, if it differs.
    folded: Option<Vec<Column>>,
    /// The encoded bytes determine every key of this chunk.
    plain: bool,
}

/// One encoded key per row.
#[derive(Default)]
pub(crate) struct EncodedKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<u64>,
}

impl GroupSpec {
    /// Evaluates keys and arguments; drops and counts rows on which an expression fails.
    pub(crate) fn prepare(&self, chunk: Chunk, context: &mut Context<'_>) -> GroupInput {
        let mut prepared = self.prepare_unencoded(chunk, context);
        prepared.encoded = EncodedKeys::new(prepared.compared().iter(), prepared.chunk.rows());
        prepared
    }

    /// Like [`GroupSpec::prepare`] without encoding keys, for callers that need few of them ([`GroupInput::encode`]).
    pub(crate) fn prepare_unencoded(&self, chunk: Chunk, context: &mut Context<'_>) -> GroupInput {
        let mut faults = Faults::new(chunk.rows());
        let mut columns = self.evaluate(&chunk, &mut faults);
        let mut chunk = chunk;
        if !faults.is_silent() {
            chunk = context.errors.drop_failed_rows(chunk, &faults);
            columns = self.evaluate(&chunk, &mut Faults::new(chunk.rows()));
        }
        let (keys, arguments) = columns;
        let folded = self
            .ignore_case
            .then(|| keys.iter().map(eval::folded).collect());
        let plain = folded.is_none() && keys.iter().all(is_plain);
        GroupInput {
            chunk,
            keys,
            arguments,
            encoded: EncodedKeys::default(),
            folded,
            plain,
        }
    }

    fn evaluate(&self, chunk: &Chunk, faults: &mut Faults) -> (Vec<Column>, Vec<Option<Column>>) {
        let arguments = self.aggregates.iter().filter_map(|of| of.argument.as_ref());
        eval::prepare(self.keys.iter().chain(arguments), chunk);
        let keys = eval::evaluate_all(&self.keys, chunk, faults);
        let arguments = self
            .aggregates
            .iter()
            .map(|spec| accumulate::argument(spec, chunk, faults))
            .collect();
        (keys, arguments)
    }

    pub(crate) fn accumulators(&self) -> Vec<Accumulator> {
        self.aggregates.iter().map(Accumulator::new).collect()
    }

    /// Aggregates rows into their slots.
    pub(crate) fn update(
        &self,
        accumulators: &mut [Accumulator],
        input: &GroupInput,
        rows: Range<usize>,
        slots: &[u32],
    ) {
        for (index, accumulator) in accumulators.iter_mut().enumerate() {
            let argument = input.arguments[index].as_ref();
            accumulator.update(slots, rows.start, argument);
        }
    }
}

impl GroupInput {
    pub(crate) fn key(&self, row: usize) -> &[u8] {
        self.encoded.key(row)
    }

    pub(crate) fn hash(&self, row: usize) -> u64 {
        self.encoded.hash(row)
    }

    /// Whether the encoded bytes determine every key of this chunk.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// The keys in the form that is compared.
    pub(crate) fn compared(&self) -> &[Column] {
        self.folded.as_deref().unwrap_or(&self.keys)
    }

    /// Appends the encoded key of a row.
    pub(crate) fn encode(&self, row: usize, out: &mut Vec<u8>) {
        self.compared()
            .iter()
            .for_each(|key| eval::encode_key(key.get(row), out));
    }

    /// The keys of a row in snapshot form, if the encoded bytes do not determine them.
    pub(crate) fn original_key(&self, row: usize) -> Option<Box<[u8]>> {
        let usual = |(key, compared): (&Column, &Column)| match (key.get(row), compared.get(row)) {
            (ValueRef::Text(shown), ValueRef::Text(compared)) => shown == compared,
            (shown, _) => eval::looks_usual(shown),
        };
        if self.plain || self.keys.iter().zip(self.compared()).all(usual) {
            return None;
        }
        let mut writer = Vec::new();
        self.keys.iter().for_each(|key| writer.value(key.get(row)));
        Some(writer.into())
    }
}

fn is_plain(column: &Column) -> bool {
    matches!(
        column,
        Column::Null(_) | Column::Int(_) | Column::Text(_) | Column::Time(_)
    )
}

impl EncodedKeys {
    pub(crate) fn new<'a>(
        keys: impl Iterator<Item = &'a Column> + Clone,
        rows: usize,
    ) -> EncodedKeys {
        let mut encoded = EncodedKeys {
            bytes: Vec::with_capacity(rows * 12),
            ends: Vec::with_capacity(rows),
            hashes: Vec::with_capacity(rows),
        };
        let mut columns = keys.clone();
        match (columns.next(), columns.next()) {
            (Some(Column::Text(texts)), None) if texts.null_count() == 0 => {
                for row in 0..rows {
                    eval::encode_key(ValueRef::Text(texts.value(row)), &mut encoded.bytes);
                    encoded.close();
                }
            }
            (Some(Column::Int(ints)), None) if ints.null_count() == 0 => {
                for &int in &ints.values()[..rows] {
                    eval::encode_key(ValueRef::Int(int), &mut encoded.bytes);
                    encoded.close();
                }
            }
            _ => {
                for row in 0..rows {
                    for key in keys.clone() {
                        eval::encode_key(key.get(row), &mut encoded.bytes);
                    }
                    encoded.close();
                }
            }
        }
        encoded
    }

    /// Finishes the key of a row.
    #[inline]
    fn close(&mut self) {
        let start = self.ends.last().copied().unwrap_or(0);
        self.hashes.push(hash_key(&self.bytes[start..]));
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    pub(crate) fn hash(&self, row: usize) -> u64 {
        self.hashes[row]
    }
}

#[inline]
pub(crate) fn hash_key(key: &[u8]) -> u64 {
    FixedState::default().hash_one(key)
}

/// The original keys of groups whose encoded bytes do not determine them: bits, whole floats, records, arrays. In
/// snapshot form.
#[derive(Clone, Debug, Default)]
pub(crate) struct OriginalKeys(HashMap<u32, Box<[u8]>, FixedState>);

impl OriginalKeys {
    pub(crate) fn set(&mut self, slot: u32, look: Box<[u8]>) {
        self.0.insert(slot, look);
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&[u8]> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&slot).map(|look| &**look)
    }

    pub(crate) fn take(&mut self, slot: u32) -> Option<Box<[u8]>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.remove(&slot)
    }
}

/// The keys of groups, by slot.
pub(crate) trait GroupKeys {
    fn key(&self, slot: u32) -> &[u8];
    fn original_key(&self, slot: u32) -> Option<&[u8]>;
}

#[derive(Clone, Debug)]
pub(crate) struct Groups {
    table: HashTable<u32>,
    /// The encoded keys of all groups, and the end of each.
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    pub original_keys: OriginalKeys,
    pub accumulators: Vec<Accumulator>,
}

impl GroupKeys for Groups {
    #[inline]
    fn key(&self, slot: u32) -> &[u8] {
        key_of(&self.keys, &self.key_ends, slot)
    }

    fn original_key(&self, slot: u32) -> Option<&[u8]> {
        self.original_keys.get(slot)
    }
}

impl Groups {
    pub(crate) fn new(spec: &GroupSpec) -> Groups {
        Groups {
            table: HashTable::new(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            original_keys: OriginalKeys::default(),
            accumulators: spec.accumulators(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.key_ends.len()
    }

    pub(crate) fn state_bytes(&self) -> usize {
        self.keys.len() + aggregate_bytes(&self.accumulators, self.len())
    }

    /// Frees the hash table: no more rows will come.
    pub(crate) fn close(&mut self) {
        self.table = HashTable::new();
    }

    /// Adds the rows `rows` of a prepared chunk.
    pub(crate) fn add(
        &mut self,
        spec: &GroupSpec,
        input: &GroupInput,
        rows: Range<usize>,
        slots: &mut Vec<u32>,
    ) {
        slots.clear();
        for row in rows.clone() {
            let (hash, key) = (input.hash(row), input.key(row));
            let slot = match self.find(hash, key) {
                Some(slot) => slot,
                None => {
                    let slot = self.insert(hash, key);
                    if let Some(look) = input.original_key(row) {
                        self.original_keys.set(slot, look);
                    }
                    slot
                }
            };
            slots.push(slot);
        }
        let groups = self.len();
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.grow(groups));
        spec.update(&mut self.accumulators, input, rows, slots);
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.table
            .find(hash, |&slot| self.key(slot) == key)
            .copied()
    }

    fn insert(&mut self, hash: u64, key: &[u8]) -> u32 {
        let slot = self.key_ends.len() as u32;
        vec_growth::reserve(&mut self.keys, key.len());
        self.keys.extend_from_slice(key);
        vec_growth::reserve(&mut self.key_ends, 1);
        self.key_ends.push(self.keys.len() as u32);
        let (keys, ends) = (&self.keys, &self.key_ends);
        self.table
            .insert_unique(hash, slot, |&slot| hash_key(key_of(keys, ends, slot)));
        slot
    }

    /// The encoded keys of a group.
    pub(crate) fn encoded_key(&self, slot: u32) -> &[u8] {
        self.key(slot)
    }

    /// A copy of the given groups, in that order, to which no rows are added.
    pub(crate) fn pick(&self, slots: &[u32]) -> Groups {
        let mut picked = Groups {
            table: HashTable::new(),
            keys: Vec::new(),
            key_ends: Vec::with_capacity(slots.len()),
            original_keys: OriginalKeys::default(),
            accumulators: self.accumulators.iter().map(|of| of.pick(slots)).collect(),
        };
        for (at, &slot) in slots.iter().enumerate() {
            picked.keys.extend_from_slice(self.key(slot));
            picked.key_ends.push(picked.keys.len() as u32);
            if let Some(look) = self.original_keys.get(slot) {
                picked.original_keys.set(at as u32, look.into());
            }
        }
        picked
    }

    /// Writes one row per group.
    pub(crate) fn emit(
        &self,
        spec: &GroupSpec,
        end: i64,
        out: &mut RowWriter<'_>,
        errors: &mut DataErrors,
    ) {
        let groups = self.len();
        emit_all(spec, end, groups, self, &self.accumulators, out, errors);
    }

    pub(crate) fn snapshot(&self, out: &mut Vec<u8>) {
        snapshot(self, self.len(), &self.accumulators, out);
    }

    pub(crate) fn restore(spec: &GroupSpec, from: &mut Reader<'_>) -> Result<Groups, DecodeError> {
        let mut groups = Groups::new(spec);
        let len = from.count()?;
        for slot in 0..len {
            let key = from.blob()?;
            groups.insert(hash_key(key), key);
            if let Some(look) = restore_original_key(from)? {
                groups.original_keys.set(slot as u32, look);
            }
        }
        for accumulator in &mut groups.accumulators {
            accumulator.restore(len, from)?;
        }
        Ok(groups)
    }
}

#[inline]
fn key_of<'a>(bytes: &'a [u8], ends: &[u32], slot: u32) -> &'a [u8] {
    let start = match slot {
        0 => 0,
        _ => ends[slot as usize - 1] as usize,
    };
    &bytes[start..ends[slot as usize] as usize]
}

/// About the size of the aggregates of `groups` groups.
pub(crate) fn aggregate_bytes(accumulators: &[Accumulator], groups: usize) -> usize {
    let accumulators = accumulators.iter();
    accumulators.map(|of| of.state_bytes(groups)).sum()
}

pub(crate) fn snapshot(
    keys: &impl GroupKeys,
    groups: usize,
    accumulators: &[Accumulator],
    out: &mut Vec<u8>,
) {
    out.count(groups);
    for slot in 0..groups as u32 {
        out.blob(keys.key(slot));
        snapshot_original_key(keys.original_key(slot), out);
    }
    let accumulators = accumulators.iter();
    accumulators.for_each(|accumulator| accumulator.snapshot(out));
}

pub(crate) fn snapshot_original_key(look: Option<&[u8]>, out: &mut Vec<u8>) {
    out.u8(look.is_some().into());
    if let Some(look) = look {
        out.blob(look);
    }
}

pub(crate) fn restore_original_key(
    from: &mut Reader<'_>,
) -> Result<Option<Box<[u8]>>, DecodeError> {
    Ok(match from.u8()? {
        0 => None,
        _ => Some(from.blob()?.into()),
    })
}

/// Writes one row for each of the first `groups` slots, all at `end`.
pub(crate) fn emit_all(
    spec: &GroupSpec,
    end: i64,
    groups: usize,
    keys: &impl GroupKeys,
    accumulators: &[Accumulator],
    out: &mut RowWriter<'_>,
    errors: &mut DataErrors,
) {
    let mut slots: Vec<u32> = Vec::with_capacity(groups.min(CHUNK_ROWS));
    let times = vec![end; groups.min(CHUNK_ROWS)];
    for start in (0..groups).step_by(CHUNK_ROWS) {
        let stop = groups.min(start + CHUNK_ROWS);
        slots.clear();
        slots.extend(start as u32..stop as u32);
        let times = &times[..slots.len()];
        emit(spec, times, &slots, keys, accumulators, out, errors);
    }
}

/// Writes a row for each slot, at its time. Drops and counts groups whose result cannot be represented.
pub(crate) fn emit(
    spec: &GroupSpec,
    times: &[i64],
    slots: &[u32],
    keys: &impl GroupKeys,
    accumulators: &[Accumulator],
    out: &mut RowWriter<'_>,
    errors: &mut DataErrors,
) {
    let groups = GroupEmitter {
        spec,
        keys,
        accumulators,
    };
    groups.emit(times, slots, out, errors, |_, _| {});
}

/// Writes the rows of groups.
pub(crate) struct GroupEmitter<'a, K> {
    pub spec: &'a GroupSpec,
    pub keys: &'a K,
    pub accumulators: &'a [Accumulator],
}

impl<K: GroupKeys> GroupEmitter<'_, K> {
    /// Writes a row for each slot, at its time, after calling `before` with its index.
    pub(super) fn emit(
        &self,
        times: &[i64],
        slots: &[u32],
        out: &mut RowWriter<'_>,
        errors: &mut DataErrors,
        mut before: impl FnMut(usize, &mut RowWriter<'_>),
    ) {
        let spec = self.spec;
        let mut faults = Faults::new(slots.len());
        let results = self.results(slots, &mut faults);
        let kept = kept(spec, times, &results, &mut faults);
        errors.add_faults(&faults, |row| Instant::from_ticks(times[row]));
        let mut write = |row: usize| {
            before(row, out);
            let columns = out.begin(times[row]);
            let (shown, computed) = columns.split_at_mut(spec.keys.len());
            write_keys(self.keys, slots[row], shown);
            let results = results.iter().zip(self.accumulators);
            for (column, (result, accumulator)) in computed.iter_mut().zip(results) {
                match result {
                    Some(result) => column.push_from(result, row),
                    None => accumulator.write(slots[row] as usize, column),
                }
            }
        };
        match kept {
            None => (0..slots.len()).for_each(&mut write),
            Some(kept) => kept.set_indices().for_each(&mut write),
        }
    }

    /// The results needed before any row is written: those that can fail and those that HAVING reads. The others are
    /// computed only for the rows that pass.
    fn results(&self, slots: &[u32], faults: &mut Faults) -> Vec<Option<Column>> {
        let reads = |at: usize| match &self.spec.having {
            Some(having) => having.reads[at],
            None => false,
        };
        let accumulators = self.accumulators.iter().zip(&self.spec.aggregates);
        accumulators
            .enumerate()
            .map(|(at, (accumulator, spec))| {
                let first = accumulator.can_fail() || reads(at);
                first.then(|| accumulator.results(spec, slots, faults))
            })
            .collect()
    }
}

/// The rows to write; `None` means all.
fn kept(
    spec: &GroupSpec,
    times: &[i64],
    results: &[Option<Column>],
    faults: &mut Faults,
) -> Option<BooleanBuffer> {
    if spec.having.is_none() {
        return (!faults.is_empty()).then(|| faults.good());
    }
    let unread = || Column::Null(times.len());
    let results = results.iter().map(|of| of.clone().unwrap_or_else(unread));
    Some(passing(spec, times, &results.collect::<Vec<_>>(), faults))
}

/// The rows that HAVING lets pass, all without one.
pub(super) fn passing(
    spec: &GroupSpec,
    times: &[i64],
    results: &[Column],
    faults: &mut Faults,
) -> BooleanBuffer {
    let Some(having) = &spec.having else {
        return faults.good();
    };
    let keys = spec.keys.iter().map(|_| Column::Null(times.len()));
    let columns = keys.chain(results.iter().cloned()).collect();
    let chunk = Chunk::new(times.to_vec().into(), columns);
    eval::test(&having.keep, &chunk, faults)
}

fn write_keys(keys: &impl GroupKeys, slot: u32, columns: &mut [ColumnBuilder]) {
    if let Some(look) = keys.original_key(slot) {
        let mut look = Reader::new(look);
        for column in columns {
            column.push_owned(look.value().unwrap_or_default());
        }
        return;
    }
    let mut key = keys.key(slot);
    for column in columns {
        column.push(eval::decode_key(&mut key));
    }
}
