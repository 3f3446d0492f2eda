//! Tumbling, hopping and snapshot windows that never meet another partition's: each lane by its own clock.
//!
//! With substreams, rows of many lanes and the movements of their clocks alternate. Row by row there is next to nothing to
//! do, so a chunk is worked off in steps that each go over all of it: find the cell of every row and note which windows
//! fall due; add the rows to their cells; put windows together; write their rows. A pane is never written to once its
//! window is due, so doing these one after the other gives what doing them row by row would.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use super::accumulate::{self, Accumulator};
use super::agenda::ONE_LANE;
use super::cells::{Cells, Lane};
use super::grid::PaneGrid;
use super::groups::{Emitted, GroupSpec, Keyed, Prepared};
use super::lanes::{Notes, RowsOut};
use super::rolls::Rolls;
use super::{Context, DataErrors, Item, Operator, room};
use crate::chunk::{CHUNK_ROWS, Chunk, LaneName};

/// How many rows ahead lanes are looked at: as many as stay in the fastest cache until their turn.
const AHEAD: usize = 256;

pub(crate) struct PaneWindow {
    spec: Arc<GroupSpec>,
    grid: PaneGrid,
    cells: Cells,
    /// When to look at which lane once all of them have passed a time. A lane with cells has an entry at its
    /// `scheduled` time; others are out of date.
    schedule: BinaryHeap<Reverse<(i64, u32)>>,
    has_lanes: bool,
    due: Due,
    /// Per group the last window that met it, and its place there.
    places: Vec<(u32, u32)>,
    /// The number of the window being put together.
    window: u32,
    /// The cell of each row that has not been added to its cell yet.
    slots: Vec<u32>,
    rolls: Option<Rolls>,
}

/// A chunk or a watermark being worked off.
struct Walk<'a, 'n> {
    input: Option<&'a Prepared>,
    /// How many of its rows have been added to their cells.
    added: usize,
    out: RowsOut,
    notes: Notes<'n>,
}

/// Windows that are due and not written yet.
#[derive(Default)]
struct Due {
    /// One for each row to write: a cell that tells its group.
    shown: Vec<u32>,
    ends: Vec<i64>,
    lanes: Vec<u32>,
    /// `before` counts in the lists above.
    watermarks: Vec<LaneWatermark>,
    /// `after` counts in `watermarks`.
    names: Vec<LaneName>,
    /// Where a window has several panes: which cells add up to which row.
    parts: Vec<u32>,
    rows: Vec<u32>,
    /// Cells that no window holds any more.
    spent: Vec<u32>,
}

impl PaneWindow {
    pub fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> PaneWindow {
        PaneWindow {
            cells: Cells::new(&spec),
            rolls: Rolls::new(&spec, grid),
            spec,
            grid,
            schedule: BinaryHeap::new(),
            has_lanes: false,
            due: Due::default(),
            places: Vec::new(),
            window: 0,
            slots: Vec::new(),
        }
    }

    fn chunk(&mut self, chunk: Chunk, context: &mut Context<'_>) {
        let spec = self.spec.clone();
        let input = match spec.lane_tells_group {
            true => spec.prepare_unencoded(chunk, context),
            false => spec.prepare(chunk, context),
        };
        self.has_lanes |= input.chunk.lanes.is_some();
        let mut walk = Walk {
            input: Some(&input),
            added: 0,
            out: RowsOut::new(&spec, self.has_lanes),
            notes: Notes {
                errors: context.errors,
                trace: context.trace.as_deref_mut(),
            },
        };
        let rows = input.chunk.rows();
        match &input.chunk.lanes {
            None => self.rows(&input, 0..rows, None, &mut walk.notes),
            Some(lanes) => {
                let of_row = Some(&lanes.of_row[..]);
                let (mut from, mut names) = (0, lanes.names.iter().peekable());
                for (number, mark) in lanes.watermarks.iter().enumerate() {
                    while let Some(name) = names.next_if(|name| name.after <= number) {
                        self.due.name(name);
                    }
                    self.rows(&input, from..mark.before_row, of_row, &mut walk.notes);
                    from = mark.before_row;
                    self.pass(mark.lane, mark.watermark, &mut walk);
                    self.due.mark(*mark);
                }
                self.rows(&input, from..rows, of_row, &mut walk.notes);
                names.for_each(|name| self.due.name(name));
            }
        }
        self.work_off(&mut walk);
        walk.out.finish(context.out);
    }

    /// Finds the cells of rows.
    #[inline]
    fn rows(
        &mut self,
        input: &Prepared,
        rows: Range<usize>,
        lanes: Option<&[u32]>,
        notes: &mut Notes<'_>,
    ) {
        for row in rows {
            let lane = lanes.map_or(ONE_LANE, |lanes| {
                if row % AHEAD == 0 {
                    self.cells.touch(&lanes[row..lanes.len().min(row + AHEAD)]);
                }
                lanes[row]
            });
            let end = self.grid.pane_end(input.chunk.times[row]);
            let cell = self.cells.at(lane, end, input, row);
            self.slots.push(cell);
            if self.cells.lane(lane).due == Lane::IDLE {
                self.cells.lane(lane).due = self.grid.window_end(end);
                self.schedule(lane);
            }
            if notes.tracing() {
                for window in self.grid.windows(end) {
                    let start = Instant::from_ticks(self.grid.window_start(window));
                    notes.entered(input, row, start, Instant::from_ticks(window));
                }
            }
        }
    }

    /// Adds the rows whose cells were found and writes the windows that were noted.
    fn work_off(&mut self, walk: &mut Walk<'_, '_>) {
        let (from, to) = (walk.added, walk.added + self.slots.len());
        self.cells.grow();
        if let Some(input) = walk.input
            && to > from
        {
            let accumulators = &mut self.cells.accumulators;
            self.spec.update(
                accumulators,
                input,
                from..to,
                &self.slots,
                walk.notes.errors,
            );
        }
        self.slots.clear();
        walk.added = to;
        self.write(&mut walk.out, walk.notes.errors);
    }

    /// Sees to it that the lane is looked at when all lanes have passed the end of its next window.
    fn schedule(&mut self, number: u32) {
        let lane = self.cells.lane(number);
        let wanted = lane.scheduled == Lane::UNSCHEDULED || lane.due < lane.scheduled;
        if lane.due != Lane::IDLE && wanted {
            lane.scheduled = lane.due;
            self.schedule.push(Reverse((lane.due, number)));
        }
    }

    /// Notes the windows that are complete now that `lane` (or every lane) has passed `watermark`.
    #[inline]
    fn pass(&mut self, lane: Option<u32>, watermark: Instant, walk: &mut Walk<'_, '_>) {
        let watermark = watermark.ticks();
        match lane {
            Some(lane) => {
                while self.cells.lane(lane).due < watermark {
                    self.complete(lane, walk);
                }
            }
            None => {
                while let Some(&Reverse((time, lane))) = self.schedule.peek()
                    && time < watermark
                {
                    self.schedule.pop();
                    self.look(lane, time, walk);
                }
            }
        }
    }

    fn look(&mut self, number: u32, time: i64, walk: &mut Walk<'_, '_>) {
        let lane = self.cells.lane(number);
        if lane.scheduled != time {
            return;
        }
        lane.scheduled = Lane::UNSCHEDULED;
        if lane.due == time {
            self.complete(number, walk);
        }
        self.schedule(number);
    }

    /// Notes the lane's next window and moves on to the one after it.
    fn complete(&mut self, lane: u32, walk: &mut Walk<'_, '_>) {
        let end = self.cells.lane(lane).due;
        if self.grid.is_plain() {
            while let Some(cell) = self.cells.detach(lane, end) {
                self.due.row(cell, end, lane);
                self.due.spent.push(cell);
            }
        } else {
            self.join(lane, end);
            let next = self.grid.next_window(end);
            while let Some(cell) = self.cells.detach(lane, self.grid.window_start(next)) {
                self.due.spent.push(cell);
            }
        }
        let first = self.cells.first_end(lane);
        self.cells.lane(lane).due = first.map_or(Lane::IDLE, |first| {
            self.grid.window_end(first.max(end.saturating_add(1)))
        });
        if self.due.shown.len() >= CHUNK_ROWS {
            self.work_off(walk);
        }
    }

    /// Notes one row for each group in the window, in the order in which they are first met.
    fn join(&mut self, lane: u32, end: i64) {
        self.window = self.window.wrapping_add(1);
        if self.window == 0 {
            self.places.clear();
            self.window = 1;
        }
        room::resize(&mut self.places, self.cells.groups_bound(), (0, 0));
        let start = self.grid.window_start(end);
        let inside = self.cells.cells_of(lane).skip_while(|(_, e)| *e <= start);
        for (cell, _) in inside.take_while(|(_, e)| *e <= end) {
            let place = &mut self.places[self.cells.group(cell) as usize];
            if place.0 != self.window {
                *place = (self.window, self.due.shown.len() as u32);
                self.due.row(cell, end, lane);
            }
            self.due.parts.push(cell);
            self.due.rows.push(place.1);
        }
    }

    /// Writes what is due. All rows of its windows have been added.
    fn write(&mut self, out: &mut RowsOut, errors: &mut DataErrors) {
        let (due, spec) = (&self.due, &*self.spec);
        if self.grid.is_plain() {
            let groups = Emitted {
                spec,
                keys: &self.cells,
                accumulators: &self.cells.accumulators,
            };
            due.write(&groups, &due.shown, out, errors);
        } else {
            let mut joined = due.joined(spec, &self.cells, errors);
            let keys = Shown {
                cells: &self.cells,
                shown: &due.shown,
            };
            if let Some(rolls) = &mut self.rolls {
                let rows = due.lanes.iter().copied().zip(due.ends.iter().copied());
                rolls.settle(&keys, rows, &mut joined);
            }
            let groups = Emitted {
                spec,
                keys: &keys,
                accumulators: &joined,
            };
            let rows: Vec<u32> = (0..due.shown.len() as u32).collect();
            due.write(&groups, &rows, out, errors);
        }
        self.cells.free(&self.due.spent);
        self.due.clear();
        self.cells.trim(&self.spec);
    }
}

impl Due {
    fn row(&mut self, cell: u32, end: i64, lane: u32) {
        self.shown.push(cell);
        self.ends.push(end);
        self.lanes.push(lane);
    }

    fn mark(&mut self, mark: LaneWatermark) {
        self.watermarks.push(LaneWatermark {
            before_row: self.shown.len(),
            ..mark
        });
    }

    fn name(&mut self, name: &LaneName) {
        self.names.push(LaneName {
            after: self.watermarks.len(),
            ..name.clone()
        });
    }

    /// The aggregates of each row.
    fn joined(&self, spec: &GroupSpec, cells: &Cells, errors: &mut DataErrors) -> Vec<Accumulator> {
        let mut joined = spec.accumulators();
        for (index, accumulator) in joined.iter_mut().enumerate() {
            accumulator.grow(self.shown.len());
            let parts = cells.accumulators[index].pick(&self.parts);
            let outcome = accumulator.absorb(&parts, &self.rows);
            let end = self.ends.first().copied().unwrap_or_default();
            let end = Instant::from_ticks(end);
            accumulate::note(outcome, &spec.aggregates[index], end, errors);
        }
        joined
    }

    /// Writes the rows, a block at a time, each in its lane and after the watermarks and names before it.
    fn write<K: Keyed>(
        &self,
        groups: &Emitted<'_, K>,
        slots: &[u32],
        out: &mut RowsOut,
        errors: &mut DataErrors,
    ) {
        let mut watermarks = self.watermarks.iter().peekable();
        let mut names = self.names.iter().peekable();
        let mut passed = 0;
        let mut place = |row: usize, out: &mut RowsOut| {
            loop {
                while let Some(name) = names.next_if(|name| name.after <= passed) {
                    out.name(name);
                }
                let Some(mark) = watermarks.next_if(|mark| mark.before_row <= row) else {
                    break;
                };
                out.mark(*mark);
                passed += 1;
            }
            out.lane = self.lanes.get(row).copied().unwrap_or(ONE_LANE);
        };
        for start in (0..slots.len()).step_by(CHUNK_ROWS) {
            let block = start..slots.len().min(start + CHUNK_ROWS);
            let (ends, slots) = (&self.ends[block.clone()], &slots[block]);
            groups.emit(ends, slots, out, errors, |row, out| place(start + row, out));
        }
        place(slots.len(), out);
    }

    fn clear(&mut self) {
        self.shown.clear();
        self.ends.clear();
        self.lanes.clear();
        self.watermarks.clear();
        self.names.clear();
        self.parts.clear();
        self.rows.clear();
        self.spent.clear();
    }
}

/// Rows by the cells that show their groups.
struct Shown<'a> {
    cells: &'a Cells,
    shown: &'a [u32],
}

impl Keyed for Shown<'_> {
    fn key(&self, row: u32) -> &[u8] {
        self.cells.key(self.shown[row as usize])
    }

    fn look(&self, row: u32) -> Option<&[u8]> {
        self.cells.look(self.shown[row as usize])
    }
}

impl Operator for PaneWindow {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.chunk(chunk, context),
            Item::Watermark(watermark) => {
                let mut walk = Walk {
                    input: None,
                    added: 0,
                    out: RowsOut::new(&self.spec, self.has_lanes),
                    notes: Notes {
                        errors: context.errors,
                        trace: None,
                    },
                };
                self.pass(None, watermark, &mut walk);
                self.work_off(&mut walk);
                walk.out.finish(context.out);
                context.out.push(Item::Watermark(watermark));
            }
            Item::Shares(_) => unreachable!("a window over rows is never given shares"),
        }
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u8(self.has_lanes.into());
        self.cells.snapshot(out);
        self.rolls.iter().for_each(|rolls| rolls.snapshot(out));
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        *self = PaneWindow::new(self.spec.clone(), self.grid);
        self.has_lanes = from.u8()? != 0;
        self.cells = Cells::restore(&self.spec, from)?;
        if let Some(rolls) = &mut self.rolls {
            rolls.restore(from)?;
        }
        (0..self.cells.lanes() as u32).for_each(|lane| self.schedule(lane));
        Ok(())
    }
}
