//! Chunks whose events have not all been released yet.
//!
//! Events leave by number: as slices of their chunk where they follow one another, which is the common case, and
//! gathered row by row where they do not.
//!
//! With a clock per key, the last event of a silent key may be pending for hours while its neighbours leave. To release
//! their memory, a chunk is *thinned* when three rows in four have left:
//! its pending rows are copied out, together with those of the thinned chunks next to it. Memory is then proportional
//! to the pending rows, and rows that are gathered together lie together.
//!
//! Events with no needed columns are only counted.

use std::collections::VecDeque;
use std::ops::Range;

use arrow_buffer::ScalarBuffer;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::codec::{ReadValue, WriteValue};
use highwater_engine::{CHUNK_ROWS, Chunk, ChunkLanes, Column, ColumnBuilder, Item};
use highwater_time::{Instant, ReleasedLaneEvents};

/// A chunk is thinned when it has this many rows per pending row.
const THIN: usize = 4;

pub(crate) struct PendingChunks {
    chunks: VecDeque<PendingChunk>,
    /// The number of the next event.
    next: u64,
    /// How many columns chunks have.
    width: usize,
    thinned: bool,
    /// How many pending events have no columns.
    bare: usize,
    positions: Vec<(u32, u32)>,
}

struct PendingChunk {
    /// The range of numbers that this chunk covers.
    numbers: Range<u64>,
    /// The number of each row, where rows are missing; without it they follow one another.
    listed: Option<NumberIndex>,
    chunk: Chunk,
    /// How many of its events are pending.
    waiting: usize,
    /// A bit for each row that is pending; empty where chunks are not thinned.
    waits: Vec<u64>,
}

impl PendingChunks {
    /// For chunks of that many columns; `thinned` for events that may leave long after their neighbours.
    pub(crate) fn new(width: usize, thinned: bool) -> PendingChunks {
        PendingChunks {
            chunks: VecDeque::new(),
            next: 0,
            width,
            thinned,
            bare: 0,
            positions: Vec::new(),
        }
    }

    /// The number of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The number of pending events.
    pub(crate) fn waiting(&self) -> usize {
        let kept: usize = self.chunks.iter().map(|pending| pending.waiting).sum();
        kept + self.bare
    }

    /// About the size of the pending events.
    pub(crate) fn state_bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(|pending| {
            let row = pending.chunk.approximate_bytes() / pending.chunk.rows().max(1);
            pending.waiting * row
        });
        chunks.sum::<usize>() + self.bare * size_of::<i64>()
    }

    /// Adds a chunk with `waiting` pending rows: all but `dropped`, which may be empty where chunks are not thinned.
    pub(crate) fn add(&mut self, chunk: Chunk, waiting: usize, dropped: &[u64]) {
        let first = self.next;
        self.next += chunk.rows() as u64;
        if has_no_columns(&chunk) {
            self.bare += waiting;
            return;
        }
        if waiting == 0 {
            return;
        }
        let mut pending = PendingChunk::new(first..self.next, None, chunk, self.thinned);
        pending.waiting = waiting;
        for &number in dropped {
            pending.clear((number - first) as usize);
        }
        self.chunks.push_back(pending);
    }

    /// No rows, only watermarks.
    pub(crate) fn empty(&self, released: &ReleasedLaneEvents) -> Item {
        let mut chunk = self.empty_columns(Vec::new().into());
        chunk.lanes = Some(ChunkLanes {
            of_row: Vec::new(),
            watermarks: released.watermarks.clone(),
            names: Vec::new(),
        });
        Item::Rows(chunk)
    }

    /// Events without columns.
    fn empty_columns(&self, times: ScalarBuffer<i64>) -> Chunk {
        let columns = vec![Column::Null(times.len()); self.width];
        Chunk::new(times, columns)
    }

    /// Appends the named events as ordered chunks.
    pub(crate) fn take(&mut self, rows: &[u64], times: &[Instant], out: &mut Vec<Item>) {
        let mut from = 0;
        while from < rows.len() {
            let to = match self.whole_run(&rows[from..]) {
                Some((index, run)) => {
                    let pending = &mut self.chunks[index];
                    let start = (rows[from] - pending.numbers.start) as usize;
                    let piece = slice(&pending.chunk, start, run, &times[from..from + run]);
                    pending.leave(start..start + run);
                    out.push(Item::Rows(piece));
                    from + run
                }
                None => {
                    let to = (from + CHUNK_ROWS).min(rows.len());
                    out.push(Item::Rows(self.gather(&rows[from..to], &times[from..to])));
                    to
                }
            };
            self.chunks.retain(|pending| pending.waiting > 0);
            from = to;
        }
    }

    /// The length of the next run of consecutive rows in one chunk, if it is long enough to slice.
    fn whole_run(&self, rows: &[u64]) -> Option<(usize, usize)> {
        let index = self.index(rows[0]);
        let pending = self.chunks.get(index)?;
        if pending.listed.is_some() || rows[0] < pending.numbers.start {
            return None;
        }
        let limit = rows.len().min((pending.numbers.end - rows[0]) as usize);
        let run = rows[..limit]
            .iter()
            .zip(rows[0]..)
            .take_while(|(row, next)| **row == *next)
            .count();
        let whole = run == limit && (run >= CHUNK_ROWS / 8 || run == rows.len());
        whole.then_some((index, run))
    }

    fn index(&self, number: u64) -> usize {
        self.chunks
            .partition_point(|pending| pending.numbers.end <= number)
    }

    fn gather(&mut self, numbers: &[u64], times: &[Instant]) -> Chunk {
        if self.chunks.is_empty() {
            self.bare -= numbers.len();
            return self.empty_columns(ticks(times));
        }
        let ends: Vec<u64> = self
            .chunks
            .iter()
            .map(|pending| pending.numbers.end)
            .collect();
        let bare_before = self.bare;
        self.positions.clear();
        for &number in numbers {
            let index = ends.partition_point(|end| *end <= number);
            let pending = self.chunks.get_mut(index);
            let found = pending.and_then(|pending| pending.row(number).map(|row| (pending, row)));
            self.positions.push(match found {
                Some((pending, row)) => {
                    pending.leave(row..row + 1);
                    (index as u32, row as u32)
                }
                None => {
                    self.bare -= 1;
                    (ends.len() as u32, 0)
                }
            });
        }
        let bare = self.empty_columns(vec![0].into());
        let mut chunks: Vec<&Chunk> = self.chunks.iter().map(|pending| &pending.chunk).collect();
        if self.bare < bare_before {
            chunks.push(&bare);
        }
        Chunk::gather(&chunks, &self.positions, ticks(times))
    }

    /// Copies pending rows out of chunks that most rows have left.
    pub(crate) fn thin(&mut self) {
        if !self.thinned {
            return;
        }
        let groups = self.groups();
        if !groups.iter().any(|group| group.rewrite) {
            return;
        }
        let mut old = std::mem::take(&mut self.chunks);
        for group in groups {
            let mut members: Vec<PendingChunk> = old.drain(..group.chunks).collect();
            let merged = match members.pop() {
                Some(only) if !group.rewrite => Some(only),
                last => {
                    members.extend(last);
                    PendingChunk::merged(&members)
                }
            };
            self.chunks.extend(merged);
        }
    }

    /// The neighbours that become one chunk: thinned ones, when the one in front is not much larger than those behind
    /// it. So a row is copied a few times at most, and few small chunks remain.
    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::with_capacity(self.chunks.len());
        for pending in &self.chunks {
            let thin = pending.waiting * THIN <= pending.chunk.rows();
            let mut group = Group {
                chunks: 1,
                waiting: pending.waiting,
                thinned: thin || pending.listed.is_some(),
                rewrite: thin,
            };
            while let Some(front) = groups.pop_if(|front| front.joins(&group)) {
                group.chunks += front.chunks;
                group.waiting += front.waiting;
                group.rewrite = true;
            }
            groups.push(group);
        }
        groups
    }
}

/// The pending rows at one moment. Chunks are shared, not copied, so a snapshot is quick however many rows are pending.
pub(crate) struct PendingChunksSnapshot {
    next: u64,
    width: usize,
    bare: usize,
    /// The pending rows of each chunk, by number and index.
    parts: Vec<(Chunk, Vec<(u64, u32)>)>,
}

impl PendingChunks {
    /// `waiting` holds the numbers of pending events, ascending; not needed where chunks are thinned.
    pub(crate) fn snapshot(&self, waiting: &[u64]) -> PendingChunksSnapshot {
        let mut waiting = waiting;
        let parts = self.chunks.iter().map(|pending| {
            let rows: Vec<(u64, u32)> = match self.thinned {
                true => {
                    let rows = pending.waiting_rows();
                    rows.map(|row| (pending.number(row), row as u32)).collect()
                }
                false => {
                    let here = waiting.partition_point(|number| *number < pending.numbers.end);
                    let (these, later) = waiting.split_at(here);
                    waiting = later;
                    let row = |number: &u64| Some((*number, pending.row(*number)? as u32));
                    these.iter().filter_map(row).collect()
                }
            };
            debug_assert_eq!(rows.len(), pending.waiting, "pending rows are known");
            (pending.chunk.clone(), rows)
        });
        PendingChunksSnapshot {
            next: self.next,
            width: self.width,
            bare: self.bare,
            parts: parts.collect(),
        }
    }

    /// Reads what [`PendingChunksSnapshot::write`] wrote.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.next = from.u64()?;
        self.bare = from.u64()? as usize;
        self.chunks.clear();
        let mut end = 0;
        for _ in 0..from.count()? {
            let pending = self.restore_chunk(from)?;
            if pending.numbers.start < end || pending.numbers.end > self.next {
                return Err(DecodeError::Invalid("pending events are not in order"));
            }
            end = pending.numbers.end;
            self.chunks.push_back(pending);
        }
        Ok(())
    }

    fn restore_chunk(&self, from: &mut Reader<'_>) -> Result<PendingChunk, DecodeError> {
        let rows = from.count()?;
        let known = from.u8()? != 0;
        let (mut numbers, mut origins) = (Vec::with_capacity(rows), Vec::new());
        let mut columns = ColumnBuilder::of_width(self.width);
        for _ in 0..rows {
            numbers.push(from.u64()?);
            if known {
                origins.push(from.u64()?);
            }
            for column in &mut columns {
                column.push_owned(from.value()?);
            }
        }
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Err(DecodeError::Invalid("a pending chunk has no rows"));
        };
        if !numbers.is_sorted_by(|a, b| a < b) || *last == u64::MAX {
            return Err(DecodeError::Invalid("pending events are not in order"));
        }
        let columns = columns.into_iter().map(ColumnBuilder::finish).collect();
        let mut chunk = Chunk::new(vec![0; rows].into(), columns);
        chunk.origins = known.then(|| origins.into());
        let range = *first..last + 1;
        let listed = NumberIndex::new(numbers, &range);
        Ok(PendingChunk::new(range, Some(listed), chunk, self.thinned))
    }
}

impl PendingChunksSnapshot {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.next);
        out.u64(self.bare as u64);
        let parts = || self.parts.iter().filter(|(_, rows)| !rows.is_empty());
        out.count(parts().count());
        for (chunk, rows) in parts() {
            debug_assert_eq!(chunk.columns.len(), self.width, "chunks have one shape");
            out.count(rows.len());
            out.u8(chunk.origins.is_some().into());
            for &(number, row) in rows {
                out.u64(number);
                if let Some(origins) = &chunk.origins {
                    out.u64(origins[row as usize]);
                }
                let columns = chunk.columns.iter();
                columns.for_each(|column| out.value(column.get(row as usize)));
            }
        }
    }
}

/// Adjacent chunks that will be merged.
struct Group {
    chunks: usize,
    waiting: usize,
    thinned: bool,
    rewrite: bool,
}

impl Group {
    fn joins(&self, behind: &Group) -> bool {
        let fits = self.waiting + behind.waiting <= CHUNK_ROWS;
        self.thinned && behind.thinned && fits && self.waiting <= 2 * behind.waiting
    }
}

/// Ascending numbers with gaps, divided into stretches of a few each, so that a lookup costs one or two memory
/// accesses.
struct NumberIndex {
    numbers: Vec<u64>,
    /// The first row of each stretch of `1 << shift` numbers.
    starts: Vec<u32>,
    shift: u32,
}

impl NumberIndex {
    /// How many numbers a stretch has, about.
    const STRETCH: u64 = 4;

    fn new(numbers: Vec<u64>, range: &Range<u64>) -> NumberIndex {
        let gap = (range.end - range.start) / (numbers.len() as u64).max(1);
        let shift = (gap * NumberIndex::STRETCH).max(1).ilog2();
        let stretches = ((range.end - range.start) >> shift) as usize + 2;
        let mut starts = Vec::with_capacity(stretches);
        for (row, number) in numbers.iter().enumerate() {
            let stretch = ((number - range.start) >> shift) as usize;
            starts.resize(starts.len().max(stretch + 1), row as u32);
        }
        starts.resize(stretches, numbers.len() as u32);
        NumberIndex {
            numbers,
            starts,
            shift,
        }
    }

    /// The row of a number, if it is present. Numbers count from `first` on.
    #[inline]
    fn row(&self, number: u64, first: u64) -> Option<usize> {
        let stretch = ((number - first) >> self.shift) as usize;
        let start = self.starts[stretch] as usize;
        let numbers = &self.numbers[start..self.starts[stretch + 1] as usize];
        let row = start + numbers.iter().take_while(|other| **other < number).count();
        (self.numbers.get(row) == Some(&number)).then_some(row)
    }
}

impl PendingChunk {
    fn new(
        numbers: Range<u64>,
        listed: Option<NumberIndex>,
        chunk: Chunk,
        thinned: bool,
    ) -> PendingChunk {
        let words = if thinned {
            chunk.rows().div_ceil(64)
        } else {
            0
        };
        PendingChunk {
            numbers,
            listed,
            waiting: chunk.rows(),
            chunk,
            waits: vec![u64::MAX; words],
        }
    }

    /// The pending events of several chunks, as one chunk.
    fn merged(parts: &[PendingChunk]) -> Option<PendingChunk> {
        let (first, last) = (parts.first()?, parts.last()?);
        let (mut positions, mut listed) = (Vec::new(), Vec::new());
        for (part, pending) in parts.iter().enumerate() {
            for row in pending.waiting_rows() {
                positions.push((part as u32, row as u32));
                listed.push(pending.number(row));
            }
        }
        let chunks: Vec<&Chunk> = parts.iter().map(|pending| &pending.chunk).collect();
        let chunk = Chunk::interleave(&chunks, &positions);
        let numbers = first.numbers.start..last.numbers.end;
        let listed = NumberIndex::new(listed, &numbers);
        Some(PendingChunk::new(numbers, Some(listed), chunk, true))
    }

    /// The row of a pending event whose number is before the end of this chunk; `None` if the event has no columns.
    #[inline]
    fn row(&self, number: u64) -> Option<usize> {
        let index = number.checked_sub(self.numbers.start)?;
        match &self.listed {
            None => Some(index as usize),
            Some(listed) => listed.row(number, self.numbers.start),
        }
    }

    fn number(&self, row: usize) -> u64 {
        match &self.listed {
            None => self.numbers.start + row as u64,
            Some(listed) => listed.numbers[row],
        }
    }

    #[inline]
    fn leave(&mut self, rows: Range<usize>) {
        self.waiting -= rows.len();
        if !self.waits.is_empty() {
            rows.for_each(|row| self.clear(row));
        }
    }

    #[inline]
    fn clear(&mut self, row: usize) {
        if let Some(word) = self.waits.get_mut(row / 64) {
            *word &= !(1 << (row % 64));
        }
    }

    fn waiting_rows(&self) -> impl Iterator<Item = usize> {
        let rows = self.chunk.rows();
        let bits = |word: u64| {
            let rest = std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
            rest.take_while(|rest| *rest != 0)
                .map(|rest| rest.trailing_zeros() as usize)
        };
        self.waits
            .iter()
            .enumerate()
            .flat_map(move |(index, &word)| bits(word).map(move |bit| index * 64 + bit))
            .take_while(move |row| *row < rows)
    }
}

/// Whether the events have nothing but their time.
fn has_no_columns(chunk: &Chunk) -> bool {
    let empty = |column: &Column| matches!(column, Column::Null(_));
    chunk.origins.is_none() && chunk.columns.iter().all(empty)
}

fn ticks(times: &[Instant]) -> ScalarBuffer<i64> {
    times.iter().map(|time| time.ticks()).collect()
}

fn slice(chunk: &Chunk, start: usize, len: usize, times: &[Instant]) -> Chunk {
    Chunk {
        times: ticks(times),
        columns: chunk
            .columns
            .iter()
            .map(|column| column.slice(start, len))
            .collect(),
        lanes: None,
        origins: chunk
            .origins
            .as_ref()
            .map(|origins| origins.slice(start, len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_engine::{Column, ValueRef};
    use proptest::prelude::*;

    /// Events whose only column is their number.
    fn chunk(first: u64, rows: usize) -> Chunk {
        let numbers: Vec<i64> = (first as i64..).take(rows).collect();
        Chunk::new(vec![0; rows].into(), vec![Column::from_ints(numbers)])
    }

    /// The number of each event; `None` for events without columns.
    fn numbers(items: &[Item]) -> Vec<Option<u64>> {
        let rows = items.iter().flat_map(|item| match item {
            Item::Rows(chunk) => (0..chunk.rows())
                .map(|row| chunk.columns[0].get(row))
                .collect(),
            _ => Vec::new(),
        });
        rows.map(|value| match value {
            ValueRef::Int(number) => Some(number as u64),
            ValueRef::Null => None,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    fn all(numbers: &[u64]) -> Vec<Option<u64>> {
        numbers.iter().copied().map(Some).collect()
    }

    fn rows_kept(pending: &PendingChunks) -> usize {
        pending
            .chunks
            .iter()
            .map(|pending| pending.chunk.rows())
            .sum()
    }

    #[test]
    fn one_event_in_a_thousand_that_stays_takes_the_room_of_those_that_stay() {
        let mut pending = PendingChunks::new(1, true);
        for block in 0..2_000 {
            let first = pending.next();
            pending.add(chunk(first, 1_000), 1_000, &[]);
            let leave: Vec<u64> = (first..first + 1_000).filter(|n| n % 1_000 != 7).collect();
            let times = vec![Instant::from_ticks(0); leave.len()];
            let mut out = Vec::new();
            pending.take(&leave, &times, &mut out);
            pending.thin();
            assert_eq!(numbers(&out), all(&leave));
            assert_eq!(rows_kept(&pending), block + 1);
            assert!(pending.chunks.len() < 16);
        }
        let rest: Vec<u64> = (0..2_000).rev().map(|block| block * 1_000 + 7).collect();
        let mut out = Vec::new();
        pending.take(&rest, &vec![Instant::from_ticks(0); rest.len()], &mut out);
        assert_eq!(numbers(&out), all(&rest));
        assert!(pending.chunks.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Chunks come with some events dropped, some come with nothing to keep, and events leave in any order.
        #[test]
        fn every_event_leaves_as_it_came_and_memory_follows_what_waits(
            steps in prop::collection::vec(
                (0..200usize, 0..4u64, any::<u64>(), 0..120usize, prop::bool::weighted(0.2)), 1..40),
            thinned: bool, bare_each in 1..5u64,
        ) {
            let mut pending = PendingChunks::new(1, thinned);
            let mut waiting: Vec<u64> = Vec::new();
            let mut bare_numbers = std::collections::BTreeSet::new();
            for (rows, drop, seed, leave, restart) in steps {
                let first = pending.next();
                let all = first..first + rows as u64;
                let dropped: Vec<u64> = all.clone().filter(|n| n % 4 < drop).collect();
                if seed % 5 >= bare_each {
                    bare_numbers.extend(all.clone());
                    let nothing = pending.empty_columns(vec![0; rows].into());
                    pending.add(nothing, rows - dropped.len(), &dropped);
                } else {
                    pending.add(chunk(first, rows), rows - dropped.len(), &dropped);
                }
                let told = |leaving: &[u64]| -> Vec<Option<u64>> {
                    let kept = |number: &u64| !bare_numbers.contains(number);
                    leaving.iter().map(|number| Some(*number).filter(kept)).collect()
                };
                waiting.extend(all.filter(|n| n % 4 >= drop));
                waiting.sort_by_key(|number| (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let leaving: Vec<u64> = waiting.drain(..leave.min(waiting.len())).collect();
                let times: Vec<Instant> = (0..).take(leaving.len()).map(Instant::from_ticks).collect();
                let mut out = Vec::new();
                pending.take(&leaving, &times, &mut out);
                prop_assert_eq!(numbers(&out), told(&leaving));
                prop_assert_eq!(pending.waiting(), waiting.len());
                pending.thin();
                if restart {
                    waiting.sort_unstable();
                    let mut bytes = Vec::new();
                    pending.snapshot(&waiting).write(&mut bytes);
                    pending = PendingChunks::new(1, thinned);
                    pending.restore(&mut Reader::new(&bytes)).unwrap();
                }
                if thinned {
                    prop_assert!(rows_kept(&pending) <= THIN * waiting.len());
                }
            }
            let mut out = Vec::new();
            pending.take(&waiting, &vec![Instant::from_ticks(0); waiting.len()], &mut out);
            let kept = |number: &u64| !bare_numbers.contains(number);
            let told: Vec<_> = waiting.iter().map(|number| Some(*number).filter(kept)).collect();
            prop_assert_eq!(numbers(&out), told);
            prop_assert!(pending.chunks.is_empty());
            prop_assert_eq!(pending.waiting(), 0);
        }
    }
}
