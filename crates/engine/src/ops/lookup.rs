//! JOIN with reference data: every row meets the rows of a table that has no time of its own.
//!
//! The table is the same for all partitions and built once. Rows keep their order, and the matches of one row come in the
//! order of the table. With equalities in ON they are looked up, otherwise every row of the table is a candidate; what
//! else must hold is tested over many candidates at a time.
//!
//! Reference data that is refreshed comes as snapshots. A row sees the newest that took effect by the row's own time
//! (the first one, if the row is older than all), so a replay sees what the first run saw.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use highwater_codec::{DecodeError, Reader};
use highwater_query::plan::{Expr, LookupNode, Pred, Reference, ReferenceStep, Side};
use highwater_time::Instant;

use super::fanout::Fanout;
use super::keys::RowKeys;
use super::{Context, DataErrors, Item, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk};
use crate::column::Column;
use crate::eval::{self, Faults};

/// Reference data as it was loaded: its state from each of some points in time on, by time.
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

    /// The table after the steps of the query that only concern itself.
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
            errors.sift(chunk.clone(), &faults);
            chunk.filter(&mask)
        }
        ReferenceStep::Project(items) => {
            let columns = items
                .iter()
                .map(|item| eval::evaluate(&item.expr, chunk, &mut faults))
                .collect();
            errors.sift(chunk.with_columns(columns), &faults)
        }
    }
}

/// A table made ready for one lookup, shared by all partitions.
#[derive(Debug)]
pub(crate) struct LookupTable {
    snapshots: Vec<Snapshot>,
}

#[derive(Debug)]
struct Snapshot {
    from: Instant,
    rows: usize,
    columns: Vec<Column>,
    /// `None` where every row is a candidate.
    index: Option<Index>,
}

/// Finds the rows with some key.
#[derive(Debug)]
struct Index {
    /// Keys of a great many rows come in several pieces, each with the number of its first row.
    keys: Vec<(usize, RowKeys)>,
    /// The newest row of each key; `next` leads from there to the oldest, and on to the newest again.
    table: HashTable<u32>,
    next: Vec<u32>,
}

impl LookupTable {
    pub fn new(table: &ReferenceTable, node: &LookupNode, errors: &mut DataErrors) -> LookupTable {
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
        let columns: Vec<Column> = keys
            .iter()
            .map(|key| eval::evaluate(key, chunk, &mut faults))
            .collect();
        // A row whose key cannot be computed matches nothing; its key is NULL by now.
        errors.sift(chunk.clone(), &faults);
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
            table: HashTable::new(),
            next: (0..rows as u32).collect(),
        };
        let mut from = 0;
        while from < rows {
            let keys = RowKeys::new(columns, from, rows);
            let len = keys.len();
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
        let Some(key) = keys.key(of) else {
            return;
        };
        let entry = self.table.entry(
            keys.hash(of),
            |&newest| key_of(&self.keys, newest) == Some(key),
            |&newest| {
                let (keys, of) = of_row(&self.keys, newest as usize);
                keys.hash(of)
            },
        );
        match entry {
            Entry::Vacant(entry) => {
                entry.insert(row as u32);
            }
            Entry::Occupied(mut entry) => {
                let newest = std::mem::replace(entry.get_mut(), row as u32);
                self.next[row] = std::mem::replace(&mut self.next[newest as usize], row as u32);
            }
        }
    }

    fn find(&self, hash: u64, key: &[u8], mut visit: impl FnMut(u32)) {
        let newest = self
            .table
            .find(hash, |&newest| key_of(&self.keys, newest) == Some(key));
        let Some(&newest) = newest else {
            return;
        };
        let mut at = self.next[newest as usize];
        visit(at);
        while at != newest {
            at = self.next[at as usize];
            visit(at);
        }
    }
}

fn of_row(keys: &[(usize, RowKeys)], row: usize) -> (&RowKeys, usize) {
    let piece = match keys.len() {
        1 => 0,
        _ => keys.partition_point(|(first, _)| *first <= row) - 1,
    };
    let (first, keys) = &keys[piece];
    (keys, row - first)
}

fn key_of(keys: &[(usize, RowKeys)], row: u32) -> Option<&[u8]> {
    let (keys, of) = of_row(keys, row as usize);
    keys.key(of)
}

#[derive(Debug)]
pub(crate) struct Lookup {
    table: Arc<LookupTable>,
    keys: Vec<Expr>,
    columns: Vec<(Side, usize)>,
    residual: Option<Pred>,
    outer: bool,
}

/// A row and what it may be joined to: a row of a snapshot, or nothing.
#[derive(Clone, Copy)]
struct Candidate {
    left: u32,
    right: Option<(u32, u32)>,
}

impl Lookup {
    pub fn new(node: &LookupNode, table: Arc<LookupTable>) -> Lookup {
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
        let mut work = Work {
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
                    if let Some(key) = piece.key(row - first) {
                        index.find(piece.hash(row - first), key, |right| {
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
                        if work.candidates.len() >= CHUNK_ROWS {
                            work.flush(row, context);
                        }
                    }
                }
                None => {}
            }
            if self.outer {
                work.candidates.push(Candidate { left, right: None });
            }
            if work.candidates.len() >= CHUNK_ROWS {
                work.flush(row, context);
            }
        }
        work.flush(usize::MAX, context);
    }

    /// Evaluates the keys; rows on which one fails are counted and left out.
    fn prepare(&self, chunk: Chunk, context: &mut Context<'_>) -> (Chunk, Vec<Column>) {
        let mut faults = Faults::new(chunk.rows());
        let keys: Vec<Column> = self
            .keys
            .iter()
            .map(|key| eval::evaluate(key, &chunk, &mut faults))
            .collect();
        if faults.is_silent() {
            return (chunk, keys);
        }
        let good = faults.good();
        let keys = keys.iter().map(|key| key.filter(&good)).collect();
        (context.errors.sift(chunk, &faults), keys)
    }
}

/// One chunk being joined.
struct Work<'a> {
    lookup: &'a Lookup,
    chunk: &'a Chunk,
    fanout: Fanout<'a>,
    /// Which rows have met a partner.
    matched: Vec<bool>,
    candidates: Vec<Candidate>,
}

impl Work<'_> {
    /// Emits the results among the candidates, which are all there are of the rows before `until`.
    fn flush(&mut self, until: usize, context: &mut Context<'_>) {
        let candidates = std::mem::take(&mut self.candidates);
        let results = match &self.lookup.residual {
            None => self.settle(candidates, None),
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
                context.errors.note(&faults, |row| rows.time(row));
                for (row, fault) in faults.iter() {
                    let reason = || fault.reason.to_string();
                    context.errors.add(rows.time(row), fault.span, reason);
                }
                self.settle(candidates, Some(holds.iter().collect()))
            }
        };
        let columns = self.columns(&results);
        let rows: Vec<u32> = results.iter().map(|result| result.left).collect();
        let piece = self.fanout.piece(&rows, until, columns);
        context.out.push(Item::Rows(piece));
    }

    /// Those of the candidates that are results; `holds` says which pairs are.
    fn settle(&mut self, candidates: Vec<Candidate>, holds: Option<Vec<bool>>) -> Vec<Candidate> {
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

    fn columns(&self, pairs: &[Candidate]) -> Vec<Column> {
        let lefts: Vec<u32> = pairs.iter().map(|pair| pair.left).collect();
        let rights = Rights::new(&self.lookup.table.snapshots, pairs);
        let columns = self
            .lookup
            .columns
            .iter()
            .map(|&(side, column)| match side {
                Side::Left => self.chunk.columns[column].take(&lefts),
                Side::Right => rights.column(column),
            });
        columns.collect()
    }
}

/// The rows of the table in some pairs.
struct Rights<'a> {
    snapshots: &'a [Snapshot],
    /// By snapshot and row; the number of snapshots stands for NULLs.
    rows: Vec<(u32, u32)>,
    nothing: bool,
}

impl<'a> Rights<'a> {
    fn new(snapshots: &'a [Snapshot], pairs: &[Candidate]) -> Rights<'a> {
        let nothing = (snapshots.len() as u32, 0);
        Rights {
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
        match parts.is_empty() {
            true => Column::Null(0),
            false => Column::interleave(&parts, &self.rows),
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

    fn snapshot(&self, _out: &mut Vec<u8>) {}

    fn restore(&mut self, _from: &mut Reader<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
}
