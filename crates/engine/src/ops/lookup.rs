//! JOIN with reference data, a table without event time.
//!
//! The table is built once for all partitions. Rows keep their order, and the matches of one row are in table order.
//! With equalities in ON matches are looked up by key; otherwise every row of the table is a candidate. Residual
//! conditions are evaluated for many candidates at once.
//!
//! Refreshed reference data has several snapshots. A row sees the newest snapshot at its own time (or the first one, if
//! the row is older than all), so a replay sees the same data as the first run.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use highwater_query::plan::{Expr, LookupNode, Pred, Reference, ReferenceStep, Side};
use highwater_time::Instant;

use super::fanout::Fanout;
use super::output_budget::copied_bytes;
use super::row_keys::{HashedKey, RowKeys};
use super::short_key::{ShortKey, WantedKey};
use super::{Context, DataErrors, Item, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk};
use crate::column::Column;
use crate::eval::{self, Faults};

/// Loaded reference data: snapshots with the time from which each is valid.
#[derive(Clone, Debug, Default)]
pub struct ReferenceTable {
    /// Never empty for a table that is read; the columns are the reference's `reads`.
    pub snapshots: Vec<(Instant, Chunk)>,
}

impl ReferenceTable {
    /// A table that never changes.
    pub fn fixed(columns: Vec<Column>, rows: usize) -> ReferenceTable {
        let times = vec![Instant::BEFORE_ALL.ticks(); rows];
        ReferenceTable {
            snapshots: vec![(Instant::BEFORE_ALL, Chunk::new(times.into(), columns))],
        }
    }

    /// The table after the query steps that read only the table.
    pub(crate) fn after_steps(&self, plan: &Reference, errors: &mut DataErrors) -> ReferenceTable {
        let mut table = self.clone();
        for (_, chunk) in &mut table.snapshots {
            for step in &plan.steps {
                *chunk = take_step(step, chunk, errors);
            }
        }
        table
    }
}

fn take_step(step: &ReferenceStep, chunk: &Chunk, errors: &mut DataErrors) -> Chunk {
    let mut faults = Faults::new(chunk.rows());
    match step {
        ReferenceStep::Filter(keep) => {
            let mask = eval::test(keep, chunk, &mut faults);
            errors.drop_failed_rows(chunk.clone(), &faults);
            chunk.filter(&mask)
        }
        ReferenceStep::Project(items) => {
            let columns =
                eval::evaluate_all(items.iter().map(|item| &item.expr), chunk, &mut faults);
            errors.drop_failed_rows(chunk.with_columns(columns), &faults)
        }
    }
}

/// How many rows are prefetched together.
const PREFETCH_ROWS: usize = 32;

/// A table indexed for one lookup, shared by all partitions.
#[derive(Debug)]
pub(crate) struct LookupTable {
    snapshots: Vec<Snapshot>,
}

#[derive(Debug)]
struct Snapshot {
    from: Instant,
    rows: usize,
    columns: Vec<Column>,
    /// `None` if every row is a candidate.
    index: Option<Index>,
}

/// Finds the rows with a key.
#[derive(Debug)]
struct Index {
    /// The keys in pieces, each with the number of its first row.
    keys: Vec<(usize, RowKeys)>,
    table: HashTable<KeyRows>,
    /// A list from the oldest row of a class of keys to the newest.
    next: Vec<u32>,
    /// Keys of one class may differ; see [`RowKeys`].
    converted: bool,
}

/// The rows with a class of keys. A lookup of a short key that one row has touches no other memory of the index.
#[derive(Clone, Copy, Debug)]
struct KeyRows {
    /// The key of the newest row.
    key: ShortKey,
    /// The upper half of the hash.
    hash: u32,
    oldest: u32,
    newest: u32,
}

impl LookupTable {
    pub(crate) fn new(
        table: &ReferenceTable,
        node: &LookupNode,
        errors: &mut DataErrors,
    ) -> LookupTable {
        let keys: Vec<&Expr> = node.keys.iter().map(|(_, right)| right).collect();
        let mut snapshots: Vec<Snapshot> = table
            .snapshots
            .iter()
            .map(|(from, chunk)| Snapshot::new(*from, chunk, &keys, errors))
            .collect();
        snapshots.sort_by_key(|snapshot| snapshot.from);
        LookupTable { snapshots }
    }

    /// The snapshot that a row of that time sees.
    fn at(&self, time: i64) -> usize {
        let after = self
            .snapshots
            .partition_point(|snapshot| snapshot.from.ticks() <= time);
        after.saturating_sub(1)
    }
}

impl Snapshot {
    fn new(from: Instant, chunk: &Chunk, keys: &[&Expr], errors: &mut DataErrors) -> Snapshot {
        let mut faults = Faults::new(chunk.rows());
        let columns: Vec<Column> = eval::evaluate_all(keys.iter().copied(), chunk, &mut faults);
        // A row whose key cannot be computed matches nothing; its key is NULL by now.
        errors.drop_failed_rows(chunk.clone(), &faults);
        Snapshot {
            from,
            rows: chunk.rows(),
            columns: chunk.columns.clone(),
            index: (!keys.is_empty()).then(|| Index::new(&columns, chunk.rows())),
        }
    }
}

impl Index {
    fn new(columns: &[Column], rows: usize) -> Index {
        let mut index = Index {
            keys: Vec::new(),
            table: HashTable::with_capacity(rows),
            next: vec![0; rows],
            converted: false,
        };
        let mut from = 0;
        while from < rows {
            let keys = RowKeys::new(columns, from, rows);
            let len = keys.len();
            index.converted |= keys.is_converted();
            index.keys.push((from, keys));
            from += len;
        }
        for row in 0..rows {
            index.insert(row);
        }
        index
    }

    fn insert(&mut self, row: usize) {
        let (keys, of) = of_row(&self.keys, row);
        let Some(key) = keys.hashed_key(of) else {
            return;
        };
        let wanted = WantedKey::new(key);
        let entry = self.table.entry(
            wanted.hash,
            |known| are_of_class(known, &wanted, &self.keys),
            |known| {
                let (keys, of) = of_row(&self.keys, known.newest as usize);
                keys.hash(of)
            },
        );
        let row = row as u32;
        match entry {
            Entry::Vacant(entry) => {
                entry.insert(KeyRows {
                    key: wanted.short,
                    hash: upper_half(wanted.hash),
                    oldest: row,
                    newest: row,
                });
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                self.next[known.newest as usize] = row;
                (known.key, known.newest) = (wanted.short, row);
            }
        }
    }

    /// Touches the memory that lookups of these hashes will touch, for all hashes together, so that cache misses
    /// overlap.
    fn prefetch(&self, hashes: &[u64]) {
        let hashes = hashes.iter().take(PREFETCH_ROWS);
        let found = hashes.filter_map(|hash| self.table.find(*hash, |_| true));
        std::hint::black_box(found.map(|known| known.newest).fold(0, u32::wrapping_add));
    }

    #[inline]
    fn find(&self, key: HashedKey<'_>, mut visit: impl FnMut(u32)) {
        let wanted = WantedKey::new(key);
        let found = self
            .table
            .find(key.hash, |known| are_of_class(known, &wanted, &self.keys));
        let Some(known) = found else {
            return;
        };
        // Unless some are converted, all keys of a class are the same.
        let same = wanted.is(&known.key) || equals(&self.keys, known.newest, wanted.key);
        if !self.converted && !same {
            return;
        }
        let mut at = known.oldest;
        loop {
            if !self.converted || equals(&self.keys, at, wanted.key) {
                visit(at);
            }
            if at == known.newest {
                return;
            }
            at = self.next[at as usize];
        }
    }
}

/// Whether the rows have the class of the key.
#[inline]
fn are_of_class(known: &KeyRows, wanted: &WantedKey<'_>, keys: &[(usize, RowKeys)]) -> bool {
    known.hash == upper_half(wanted.hash)
        && (wanted.is(&known.key) || has_class(keys, known.newest, wanted.key))
}

#[inline]
fn upper_half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn of_row(keys: &[(usize, RowKeys)], row: usize) -> (&RowKeys, usize) {
    let piece = match keys.len() {
        1 => 0,
        _ => keys.partition_point(|(first, _)| *first <= row) - 1,
    };
    let (first, keys) = &keys[piece];
    (keys, row - first)
}

/// Whether the key of a row that has one is of the class of `key`.
fn has_class(keys: &[(usize, RowKeys)], row: u32, key: &[u8]) -> bool {
    let (keys, of) = of_row(keys, row as usize);
    keys.is_of_class(keys.start(of), key)
}

/// Whether the key of a row that has one equals `key`.
fn equals(keys: &[(usize, RowKeys)], row: u32, key: &[u8]) -> bool {
    let (keys, of) = of_row(keys, row as usize);
    keys.equals(keys.start(of), key)
}

#[derive(Debug)]
pub(crate) struct Lookup {
    table: Arc<LookupTable>,
    keys: Vec<Expr>,
    columns: Vec<(Side, usize)>,
    residual: Option<Pred>,
    outer: bool,
}

/// A row and its possible match: a row of a snapshot, or none.
#[derive(Clone, Copy)]
struct Candidate {
    left: u32,
    right: Option<(u32, u32)>,
}

impl Lookup {
    pub(crate) fn new(node: &LookupNode, table: Arc<LookupTable>) -> Lookup {
        Lookup {
            table,
            keys: node.keys.iter().map(|(left, _)| left.clone()).collect(),
            columns: node.columns.clone(),
            residual: node.residual.clone(),
            outer: node.outer,
        }
    }

    fn rows(&self, chunk: Chunk, context: &mut Context<'_>) {
        let (chunk, keys) = self.prepare(chunk, context);
        let mut work = ChunkLookup {
            lookup: self,
            chunk: &chunk,
            fanout: Fanout::of(&chunk),
            matched: vec![false; chunk.rows()],
            candidates: Vec::new(),
        };
        let (mut piece, mut first) = (RowKeys::default(), 0);
        for row in 0..chunk.rows() {
            if row >= first + piece.len() {
                first = row;
                piece = RowKeys::new(&keys, row, chunk.rows());
            }
            let snapshot = self.table.at(chunk.times[row]);
            let left = row as u32;
            let table = self.table.snapshots.get(snapshot);
            match table.map(|table| (table.rows, &table.index)) {
                Some((_, Some(index))) => {
                    if (row - first) % PREFETCH_ROWS == 0 {
                        index.prefetch(&piece.hashes()[row - first..]);
                    }
                    if let Some(key) = piece.hashed_key(row - first) {
                        index.find(key, |right| {
                            work.candidates.push(Candidate {
                                left,
                                right: Some((snapshot as u32, right)),
                            });
                        });
                    }
                }
                Some((rows, None)) => {
                    for right in 0..rows as u32 {
                        work.candidates.push(Candidate {
                            left,
                            right: Some((snapshot as u32, right)),
                        });
                        if work.candidates.len() >= CHUNK_ROWS && !work.flush(row, context) {
                            return;
                        }
                    }
                }
                None => {}
            }
            if self.outer {
                work.candidates.push(Candidate { left, right: None });
            }
            if work.candidates.len() >= CHUNK_ROWS && !work.flush(row, context) {
                return;
            }
        }
        work.flush(usize::MAX, context);
    }

    /// Evaluates the keys; drops and counts rows on which one fails.
    fn prepare(&self, chunk: Chunk, context: &mut Context<'_>) -> (Chunk, Vec<Column>) {
        let mut faults = Faults::new(chunk.rows());
        let keys: Vec<Column> = eval::evaluate_all(&self.keys, &chunk, &mut faults);
        if faults.is_silent() {
            return (chunk, keys);
        }
        let good = faults.good();
        let keys = keys.iter().map(|key| key.filter(&good)).collect();
        (context.errors.drop_failed_rows(chunk, &faults), keys)
    }
}

/// The lookup of one chunk.
struct ChunkLookup<'a> {
    lookup: &'a Lookup,
    chunk: &'a Chunk,
    fanout: Fanout<'a>,
    /// Which rows are matched.
    matched: Vec<bool>,
    candidates: Vec<Candidate>,
}

impl ChunkLookup<'_> {
    /// Emits the results of the candidates. All candidates of rows before `until` are present. Returns whether the
    /// lookup may continue.
    fn flush(&mut self, until: usize, context: &mut Context<'_>) -> bool {
        let candidates = std::mem::take(&mut self.candidates);
        let bytes = self.bytes(&candidates);
        if !context
            .budget
            .charge(bytes, "JOIN with reference data", None)
        {
            return false;
        }
        let results = match &self.lookup.residual {
            None => self.retain_results(candidates, None),
            Some(residual) => {
                let pairs: Vec<Candidate> = candidates
                    .iter()
                    .filter(|candidate| candidate.right.is_some())
                    .copied()
                    .collect();
                let times = pairs
                    .iter()
                    .map(|pair| self.chunk.times[pair.left as usize]);
                let rows = Chunk::new(times.collect(), self.columns(&pairs));
                let mut faults = Faults::new(rows.rows());
                let holds = eval::test(residual, &rows, &mut faults);
                context.errors.add_faults(&faults, |row| rows.time(row));
                self.retain_results(candidates, Some(holds.iter().collect()))
            }
        };
        let columns = self.columns(&results);
        let rows: Vec<u32> = results.iter().map(|result| result.left).collect();
        let piece = self.fanout.piece(&rows, until, columns);
        context.out.push(Item::Rows(piece));
        true
    }

    /// Filters the candidates; `holds` has the residual condition of each pair.
    fn retain_results(
        &mut self,
        candidates: Vec<Candidate>,
        holds: Option<Vec<bool>>,
    ) -> Vec<Candidate> {
        let mut holds = holds.map(Vec::into_iter);
        let mut results = candidates;
        results.retain(|candidate| {
            let matched = &mut self.matched[candidate.left as usize];
            match candidate.right {
                None => !*matched,
                Some(_) => {
                    let held = holds
                        .as_mut()
                        .is_none_or(|holds| holds.next() == Some(true));
                    *matched |= held;
                    held
                }
            }
        });
        results
    }

    /// About the size of the rows of candidates.
    fn bytes(&self, candidates: &[Candidate]) -> usize {
        let columns = self.lookup.columns.iter();
        let bytes = columns.map(|&(side, column)| match side {
            Side::Left => {
                let rows = candidates.iter().map(|of| of.left as usize);
                copied_bytes(&self.chunk.columns[column], rows)
            }
            Side::Right => {
                let values = candidates.iter().filter_map(|of| of.right);
                let snapshots = &self.lookup.table.snapshots;
                let values = values.map(|(snapshot, row)| {
                    snapshots[snapshot as usize].columns[column].value_bytes(row as usize)
                });
                values.sum()
            }
        });
        candidates.len() * size_of::<i64>() + bytes.sum::<usize>()
    }

    fn columns(&self, pairs: &[Candidate]) -> Vec<Column> {
        let lefts: Vec<u32> = pairs.iter().map(|pair| pair.left).collect();
        // Where every row has one match, as is usual, the columns stay as they are.
        let in_order = || (0..).zip(&lefts).all(|(row, left)| row == *left);
        let is_whole = lefts.len() == self.chunk.rows() && in_order();
        let rights = TableRows::new(&self.lookup.table.snapshots, pairs);
        let columns = self
            .lookup
            .columns
            .iter()
            .map(|&(side, column)| match side {
                Side::Left if is_whole => self.chunk.columns[column].clone(),
                Side::Left => self.chunk.columns[column].take(&lefts),
                Side::Right => rights.column(column),
            });
        columns.collect()
    }
}

/// The rows of the table in some pairs.
struct TableRows<'a> {
    snapshots: &'a [Snapshot],
    /// By snapshot and row; the number of snapshots stands for NULLs.
    rows: Vec<(u32, u32)>,
    nothing: bool,
}

impl<'a> TableRows<'a> {
    fn new(snapshots: &'a [Snapshot], pairs: &[Candidate]) -> TableRows<'a> {
        let nothing = (snapshots.len() as u32, 0);
        TableRows {
            snapshots,
            rows: pairs
                .iter()
                .map(|pair| pair.right.unwrap_or(nothing))
                .collect(),
            nothing: pairs.iter().any(|pair| pair.right.is_none()),
        }
    }

    fn column(&self, column: usize) -> Column {
        let null = Column::Null(1);
        let mut parts: Vec<&Column> = self
            .snapshots
            .iter()
            .map(|snapshot| &snapshot.columns[column])
            .collect();
        if self.nothing {
            parts.push(&null);
        }
        match &parts[..] {
            [] => Column::Null(0),
            [only] => {
                let rows: Vec<u32> = self.rows.iter().map(|(_, row)| *row).collect();
                only.take(&rows)
            }
            parts => Column::interleave(parts, &self.rows),
        }
    }
}

impl Operator for Lookup {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.rows(chunk, context),
            other => context.out.push(other),
        }
    }
}
