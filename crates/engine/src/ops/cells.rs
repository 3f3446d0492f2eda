//! What windows over many lanes have gathered: one *cell* for each lane, pane and group.
//!
//! There may be a million lanes with a window or two each, so nothing here belongs to a lane alone: a cell is a number,
//! its aggregates are entries of columns that all cells share, and a lane is a list of its cells in the order in which
//! they were met. What one more row of a known lane and pane costs is one look at the lane.
//!
//! A cell is found through its lane where the lane tells the group (`TIMESTAMP BY t OVER k .. GROUP BY k`), and through a
//! table otherwise.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use highwater_codec::{DecodeError, Reader, Writer};

use super::accumulate::Accumulator;
use super::groups::{self, GroupSpec, Keyed, Looks, Prepared};
use super::interned::{self, KeyTable};
use super::room;

/// No cell.
const NONE: u32 = u32::MAX;
/// Below this many lanes, room for them is not worth giving back.
const SMALL: usize = 64;

/// A lane's cells and what it waits for. It never lies across two lines of a processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Lane {
    first: u32,
    last: u32,
    /// The pane of the last cell.
    last_end: i64,
    /// The end of the next window; [`Lane::IDLE`] while there are no cells.
    pub due: i64,
    /// The time at which the schedule will look at this lane, never after `due`; [`Lane::UNSCHEDULED`] when it will not.
    pub scheduled: i64,
}

const _: () = assert!(size_of::<Lane>() == 32);

impl Lane {
    pub const IDLE: i64 = i64::MAX;
    pub const UNSCHEDULED: i64 = i64::MIN;

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
    looks: Looks,
    pub accumulators: Vec<Accumulator>,
    /// Cells by lane, pane and key; `None` where the lane tells the key.
    table: Option<HashTable<u32>>,
    scratch: Vec<u8>,
}

impl Keyed for Cells {
    fn key(&self, cell: u32) -> &[u8] {
        self.keys.key(self.cells[cell as usize].key)
    }

    fn look(&self, cell: u32) -> Option<&[u8]> {
        self.looks.get(cell)
    }
}

impl Cells {
    pub fn new(spec: &GroupSpec) -> Cells {
        Cells {
            lanes: Vec::new(),
            cells: Vec::new(),
            first_free: NONE,
            live: 0,
            keys: KeyTable::default(),
            looks: Looks::default(),
            accumulators: spec.accumulators(),
            table: (!spec.lane_tells_group).then(HashTable::new),
            scratch: Vec::new(),
        }
    }

    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    #[inline]
    pub fn lane(&mut self, lane: u32) -> &mut Lane {
        let lane = lane as usize;
        if lane >= self.lanes.len() {
            room::resize(&mut self.lanes, lane + 1, Lane::EMPTY);
        }
        &mut self.lanes[lane]
    }

    /// Looks at lanes that will be needed soon, so that they come out of memory together.
    pub fn touch(&self, lanes: &[u32]) {
        let lanes = lanes
            .iter()
            .filter_map(|&lane| self.lanes.get(lane as usize));
        std::hint::black_box(lanes.map(|lane| lane.due).fold(0, i64::wrapping_add));
    }

    /// The end of the lane's earliest pane.
    pub fn first_end(&self, lane: u32) -> Option<i64> {
        self.cells_of(lane).next().map(|(_, end)| end)
    }

    /// The cells of a lane and their panes, in the order in which they were met.
    pub fn cells_of(&self, lane: u32) -> impl Iterator<Item = (u32, i64)> {
        let first = self.lanes.get(lane as usize).map_or(NONE, |l| l.first);
        let known = |cell: u32| (cell != NONE).then_some(cell);
        std::iter::successors(known(first), move |&cell| {
            known(self.cells[cell as usize].next)
        })
        .map(|cell| (cell, self.cells[cell as usize].end))
    }

    /// A number for the group of a cell, the same for all cells with this key.
    pub fn group(&self, cell: u32) -> u32 {
        self.cells[cell as usize].key
    }

    /// One more than the largest number of a group.
    pub fn groups_bound(&self) -> usize {
        self.keys.bound()
    }

    /// The cell that a row goes to, made on first use. Panes of a lane never go back.
    #[inline]
    pub fn at(&mut self, lane: u32, end: i64, input: &Prepared, row: usize) -> u32 {
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
        input: &Prepared,
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
                    .then(|| table.find(place_hash(lane, end, interned::half(hash)), same));
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
        if let Some(look) = input.look(row) {
            self.looks.set(cell, look);
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
                room::make(&mut self.cells, 1);
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
            let hash = place_hash(lane, end, interned::half(hash));
            table.insert_unique(hash, number, |&cell| {
                let Cell { end, lane, key, .. } = cells[cell as usize];
                place_hash(lane, end, keys.half_hash(key))
            });
        }
        number
    }

    /// Makes room in the columns for every cell.
    pub fn grow(&mut self) {
        let cells = self.cells.len();
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.grow(cells));
    }

    /// Takes the lane's first cell off its list if its pane ends at or before `end`. It keeps what it has gathered until
    /// [`Cells::free`].
    pub fn detach(&mut self, lane: u32, end: i64) -> Option<u32> {
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

    /// Gives the numbers of detached cells to others.
    pub fn free(&mut self, cells: &[u32]) {
        for &number in cells {
            let Cell { end, lane, key, .. } = self.cells[number as usize];
            if let Some(table) = &mut self.table {
                let hash = place_hash(lane, end, self.keys.half_hash(key));
                if let Ok(entry) = table.find_entry(hash, |&other| other == number) {
                    entry.remove();
                }
            }
            self.keys.release(key);
            self.looks.take(number);
            self.cells[number as usize].next = self.first_free;
            self.first_free = number;
        }
        let accumulators = self.accumulators.iter_mut();
        accumulators.for_each(|accumulator| accumulator.clear(cells));
        self.live -= cells.len();
    }

    /// Gives room back that a flood of keys has left behind.
    pub fn trim(&mut self, spec: &GroupSpec) {
        let idle = |lane: &Lane| lane.first == NONE && lane.scheduled == Lane::UNSCHEDULED;
        while self.lanes.last().is_some_and(idle) {
            self.lanes.pop();
        }
        if self.lanes.capacity() > SMALL && self.lanes.capacity() / 8 > self.lanes.len() {
            self.lanes.shrink_to(self.lanes.len() * 2);
        }
        if self.live == 0 && self.cells.len() > SMALL {
            *self = Cells {
                lanes: std::mem::take(&mut self.lanes),
                ..Cells::new(spec)
            };
        }
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
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
                groups::snapshot_look(self.look(cell), out);
            }
        }
        for accumulator in &self.accumulators {
            accumulator.pick(&order).snapshot(out);
        }
    }

    pub fn restore(spec: &GroupSpec, from: &mut Reader<'_>) -> Result<Cells, DecodeError> {
        let mut cells = Cells::new(spec);
        for lane in 0..from.count()? as u32 {
            let count = from.count()?;
            let due = if count > 0 { from.i64()? } else { Lane::IDLE };
            cells.lane(lane).due = due;
            for _ in 0..count {
                let end = from.i64()?;
                let key = from.blob()?;
                let cell = cells.add(lane, end, groups::hash_key(key), key);
                if let Some(look) = groups::restore_look(from)? {
                    cells.looks.set(cell, look);
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

fn place_hash(lane: u32, end: i64, key: u32) -> u64 {
    FixedState::default().hash_one((lane, end, key))
}
