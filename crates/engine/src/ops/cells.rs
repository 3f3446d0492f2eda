//! The state of windows over many lanes: one *cell* for each lane, pane and group.
//!
//! There may be a million lanes with a window or two each, so lanes own no allocations: a cell is a number, its
//! aggregates are entries of columns common to all cells, and a lane is a linked list of its cells in order of first
//! occurrence. A row of a known lane and pane costs one access to the lane.
//!
//! A cell is found through its lane if the lane determines the group (`TIMESTAMP BY t OVER k .. GROUP BY k`), and
//! through a hash table otherwise.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use highwater_codec::{DecodeError, Reader, Writer};

use super::accumulate::Accumulator;
use super::groups::{self, GroupInput, GroupKeys, GroupSpec, OriginalKeys};
use super::key_table::{self, KeyTable};
use super::vec_growth;

/// No cell.
const NONE: u32 = u32::MAX;
/// Collections of at most this capacity are not shrunk.
const SHRINK_CAPACITY_MIN: usize = 64;

/// The cells and the next window of a lane. Never spans two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Lane {
    first: u32,
    last: u32,
    /// The pane of the last cell.
    last_end: i64,
    /// The end of the next window; [`Lane::IDLE`] while there are no cells.
    pub due: i64,
    /// The time of this lane's valid schedule entry, never after `due`; [`Lane::UNSCHEDULED`] if it has none.
    pub scheduled: i64,
}

const _: () = assert!(size_of::<Lane>() == 32);

impl Lane {
    pub(super) const IDLE: i64 = i64::MAX;
    pub(super) const UNSCHEDULED: i64 = i64::MIN;

    const EMPTY: Lane = Lane {
        first: NONE,
        last: NONE,
        last_end: 0,
        due: Lane::IDLE,
        scheduled: Lane::UNSCHEDULED,
    };
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The end of its pane.
    end: i64,
    lane: u32,
    key: u32,
    /// The lane's next cell, or the next free one.
    next: u32,
}

#[derive(Debug)]
pub(crate) struct Cells {
    lanes: Vec<Lane>,
    cells: Vec<Cell>,
    first_free: u32,
    live: usize,
    keys: KeyTable,
    original_keys: OriginalKeys,
    pub accumulators: Vec<Accumulator>,
    /// Cells by lane, pane and key; `None` if the lane determines the key.
    table: Option<HashTable<u32>>,
    scratch: Vec<u8>,
}

impl GroupKeys for Cells {
    fn key(&self, cell: u32) -> &[u8] {
        self.keys.key(self.cells[cell as usize].key)
    }

    fn original_key(&self, cell: u32) -> Option<&[u8]> {
        self.original_keys.get(cell)
    }
}

impl Cells {
    pub(super) fn new(spec: &GroupSpec) -> Cells {
        Cells {
            lanes: Vec::new(),
            cells: Vec::new(),
            first_free: NONE,
            live: 0,
            keys: KeyTable::default(),
            original_keys: OriginalKeys::default(),
            accumulators: spec.accumulators(),
            table: (!spec.lane_determines_group).then(HashTable::new),
            scratch: Vec::new(),
        }
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    #[inline]
    pub(super) fn lane(&mut self, lane: u32) -> &mut Lane {
        let lane = lane as usize;
        if lane >= self.lanes.len() {
            vec_growth::resize(&mut self.lanes, lane + 1, Lane::EMPTY);
        }
        &mut self.lanes[lane]
    }

    /// Prefetches lanes, so that their cache misses overlap.
    pub(super) fn prefetch(&self, lanes: &[u32]) {
        let lanes = lanes
            .iter()
            .filter_map(|&lane| self.lanes.get(lane as usize));
        std::hint::black_box(lanes.map(|lane| lane.due).fold(0, i64::wrapping_add));
    }

    /// The end of the lane's earliest pane.
    pub(super) fn first_end(&self, lane: u32) -> Option<i64> {
        self.cells_of(lane).next().map(|(_, end)| end)
    }

    /// The cells of a lane with the ends of their panes, in order of first occurrence.
    pub(super) fn cells_of(&self, lane: u32) -> impl Iterator<Item = (u32, i64)> {
        let first = self.lanes.get(lane as usize).map_or(NONE, |l| l.first);
        let known = |cell: u32| (cell != NONE).then_some(cell);
        std::iter::successors(known(first), move |&cell| {
            known(self.cells[cell as usize].next)
        })
        .map(|cell| (cell, self.cells[cell as usize].end))
    }

    /// The group number of a cell, equal for all cells with the same key.
    pub(super) fn group(&self, cell: u32) -> u32 {
        self.cells[cell as usize].key
    }

    /// One more than the largest group number.
    pub(super) fn groups_bound(&self) -> usize {
        self.keys.bound()
    }

    /// The cell of a row, created on first use. Panes of a lane never go back.
    #[inline]
    pub(super) fn cell_of_row(
        &mut self,
        lane: u32,
        end: i64,
        input: &GroupInput,
        row: usize,
    ) -> u32 {
        let found = *self.lane(lane);
        let same_pane = found.last != NONE && found.last_end == end;
        if same_pane && self.table.is_none() {
            return found.last;
        }
        self.search(lane, end, same_pane, input, row)
    }

    fn search(
        &mut self,
        lane: u32,
        end: i64,
        same_pane: bool,
        input: &GroupInput,
        row: usize,
    ) -> u32 {
        let cell = match &self.table {
            Some(table) => {
                let (hash, key) = (input.hash(row), input.key(row));
                let same = |&cell: &u32| {
                    let at = &self.cells[cell as usize];
                    at.lane == lane && at.end == end && self.keys.key(at.key) == key
                };
                let found = same_pane
                    .then(|| table.find(cell_hash(lane, end, key_table::half(hash)), same));
                if let Some(Some(&cell)) = found {
                    return cell;
                }
                self.add(lane, end, hash, key)
            }
            None => {
                let mut key = std::mem::take(&mut self.scratch);
                key.clear();
                input.encode(row, &mut key);
                let cell = self.add(lane, end, groups::hash_key(&key), &key);
                self.scratch = key;
                cell
            }
        };
        if let Some(look) = input.original_key(row) {
            self.original_keys.set(cell, look);
        }
        cell
    }

    fn add(&mut self, lane: u32, end: i64, hash: u64, key: &[u8]) -> u32 {
        let cell = Cell {
            end,
            lane,
            key: self.keys.hold(hash, key),
            next: NONE,
        };
        let number = match self.first_free {
            NONE => {
                vec_growth::reserve(&mut self.cells, 1);
                self.cells.push(cell);
                (self.cells.len() - 1) as u32
            }
            free => {
                self.first_free = self.cells[free as usize].next;
                self.cells[free as usize] = cell;
                free
            }
        };
        self.live += 1;
        let at = self.lane(lane);
        let before = std::mem::replace(&mut at.last, number);
        at.last_end = end;
        if before == NONE {
            at.first = number;
        } else {
            self.cells[before as usize].next = number;
        }
        if let Some(table) = &mut self.table {
            let (cells, keys) = (&self.cells, &self.keys);
            let hash = cell_hash(lane, end, key_table::half(hash));
            table.insert_unique(hash, number, |&cell| {
                let Cell { end, lane, key, .. } = cells[cell as usize];
                cell_hash(lane, end, keys.half_hash(key))
            });
        }
        number
    }

    /// Grows the aggregate columns to the number of cells.
    pub(super) fn grow(&mut self) {
        let cells = self.cells.len();
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.grow(cells));
    }

    /// Removes the lane's first cell from its list if its pane ends at or before `end`. Its aggregates stay until
    /// [`Cells::free`].
    pub(super) fn detach(&mut self, lane: u32, end: i64) -> Option<u32> {
        let cell = self.lane(lane).first;
        if cell == NONE || self.cells[cell as usize].end > end {
            return None;
        }
        let next = self.cells[cell as usize].next;
        let at = self.lane(lane);
        at.first = next;
        if next == NONE {
            at.last = NONE;
        }
        Some(cell)
    }

    /// Frees detached cells.
    pub(super) fn free(&mut self, cells: &[u32]) {
        for &number in cells {
            let Cell { end, lane, key, .. } = self.cells[number as usize];
            if let Some(table) = &mut self.table {
                let hash = cell_hash(lane, end, self.keys.half_hash(key));
                if let Ok(entry) = table.find_entry(hash, |&other| other == number) {
                    entry.remove();
                }
            }
            self.keys.release(key);
            self.original_keys.take(number);
            self.cells[number as usize].next = self.first_free;
            self.first_free = number;
        }
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.clear(cells));
        self.live -= cells.len();
    }

    /// Frees memory after a peak in the number of keys.
    pub(super) fn shrink(&mut self, spec: &GroupSpec) {
        let idle = |lane: &Lane| lane.first == NONE && lane.scheduled == Lane::UNSCHEDULED;
        while self.lanes.last().is_some_and(idle) {
            self.lanes.pop();
        }
        if self.lanes.capacity() > SHRINK_CAPACITY_MIN
            && self.lanes.capacity() / 8 > self.lanes.len()
        {
            self.lanes.shrink_to(self.lanes.len() * 2);
        }
        if self.live == 0 && self.cells.len() > SHRINK_CAPACITY_MIN {
            *self = Cells {
                lanes: std::mem::take(&mut self.lanes),
                ..Cells::new(spec)
            };
        }
    }

    pub(super) fn state_bytes(&self) -> usize {
        size_of_val(&self.lanes[..])
            + self.live * size_of::<Cell>()
            + self.keys.state_bytes()
            + groups::aggregate_bytes(&self.accumulators, self.live)
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        let mut order: Vec<u32> = Vec::with_capacity(self.live);
        out.count(self.lanes.len());
        for (lane, state) in (0..).zip(&self.lanes) {
            let cells = self.cells_of(lane);
            let first = order.len();
            order.extend(cells.map(|(cell, _)| cell));
            out.count(order.len() - first);
            if order.len() > first {
                out.i64(state.due);
            }
            for &cell in &order[first..] {
                out.i64(self.cells[cell as usize].end);
                out.blob(self.key(cell));
                groups::snapshot_original_key(self.original_key(cell), out);
            }
        }
        for accumulator in &self.accumulators {
            accumulator.pick(&order).snapshot(out);
        }
    }

    pub(super) fn restore(spec: &GroupSpec, from: &mut Reader<'_>) -> Result<Cells, DecodeError> {
        let mut cells = Cells::new(spec);
        for lane in 0..from.count()? as u32 {
            let count = from.count()?;
            let due = if count > 0 { from.i64()? } else { Lane::IDLE };
            cells.lane(lane).due = due;
            for _ in 0..count {
                let end = from.i64()?;
                let key = from.blob()?;
                let cell = cells.add(lane, end, groups::hash_key(key), key);
                if let Some(look) = groups::restore_original_key(from)? {
                    cells.original_keys.set(cell, look);
                }
            }
        }
        let count = cells.cells.len();
        for accumulator in &mut cells.accumulators {
            accumulator.restore(count, from)?;
        }
        Ok(cells)
    }
}

fn cell_hash(lane: u32, end: i64, key: u32) -> u64 {
    FixedState::default().hash_one((lane, end, key))
}
