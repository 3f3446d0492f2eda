//! Tumbling, hopping and snapshot windows of one partition, each lane by its own watermark.
//!
//! With substreams, rows of many lanes and their watermarks alternate. The work per row is tiny, so a chunk is
//! processed in passes over all rows: find the cell of every row and collect the due windows; aggregate the rows into
//! their cells; join panes into windows; write their rows. A pane takes no rows once its window is due, so the passes
//! give the same result as processing row by row.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use super::accumulate::Accumulator;
use super::cells::{Cells, Lane};
use super::groups::{GroupEmitter, GroupInput, GroupKeys, GroupSpec};
use super::hopping_scripts::HoppingScripts;
use super::pane_grid::PaneGrid;
use super::timer_queue::ONE_LANE;
use super::window_operator::{RowWriter, WindowReport};
use super::{Context, DataErrors, Item, Operator, vec_growth};
use crate::chunk::{CHUNK_ROWS, Chunk, LaneName};

/// How many rows ahead lanes are prefetched: as many as stay in the L1 cache.
const PREFETCH_ROWS: usize = 256;

pub(crate) struct PaneWindow {
    spec: Arc<GroupSpec>,
    grid: PaneGrid,
    cells: Cells,
    /// The lanes to visit when the common watermark advances, by time: there are few times, and very many lanes. A lane
    /// with cells has an entry at its `scheduled` time; entries at other times are stale.
    schedule: BTreeMap<i64, Vec<u32>>,
    has_lanes: bool,
    due: DueWindows,
    /// Per group, the last window that contains it and its row there.
    group_rows: Vec<(u32, u32)>,
    /// The number of the current window.
    window: u32,
    /// The cells of the rows that are not aggregated yet.
    slots: Vec<u32>,
    hopping_scripts: Option<HoppingScripts>,
}

/// The processing of one chunk or watermark.
struct ChunkPass<'a, 'n> {
    input: Option<&'a GroupInput>,
    /// How many of its rows are aggregated.
    added: usize,
    out: RowWriter<'n>,
    report: WindowReport<'n>,
}

/// Windows that are due and not yet written.
#[derive(Default)]
struct DueWindows {
    /// For each row to write, a cell with its group.
    shown: Vec<u32>,
    ends: Vec<i64>,
    lanes: Vec<u32>,
    /// `before_row` counts rows of the lists above.
    watermarks: Vec<LaneWatermark>,
    /// `after` counts entries of `watermarks`.
    names: Vec<LaneName>,
    /// For windows of several panes: the cells of each row.
    parts: Vec<u32>,
    rows: Vec<u32>,
    /// Cells that no later window contains.
    spent: Vec<u32>,
}

impl PaneWindow {
    pub(crate) fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> PaneWindow {
        PaneWindow {
            cells: Cells::new(&spec),
            hopping_scripts: HoppingScripts::new(&spec, grid),
            spec,
            grid,
            schedule: BTreeMap::new(),
            has_lanes: false,
            due: DueWindows::default(),
            group_rows: Vec::new(),
            window: 0,
            slots: Vec::new(),
        }
    }

    fn chunk(&mut self, chunk: Chunk, context: &mut Context<'_>) {
        let spec = self.spec.clone();
        let input = match spec.lane_determines_group {
            true => spec.prepare_unencoded(chunk, context),
            false => spec.prepare(chunk, context),
        };
        self.has_lanes |= input.chunk.lanes.is_some();
        let mut pass = ChunkPass {
            input: Some(&input),
            added: 0,
            out: RowWriter::new(&spec, self.has_lanes, context.budget),
            report: WindowReport {
                errors: context.errors,
                trace: context.trace.as_deref_mut(),
            },
        };
        let rows = input.chunk.rows();
        match &input.chunk.lanes {
            None => self.rows(&input, 0..rows, None, &mut pass.report),
            Some(lanes) => {
                let of_row = Some(&lanes.of_row[..]);
                let (mut from, mut names) = (0, lanes.names.iter().peekable());
                for (number, mark) in lanes.watermarks.iter().enumerate() {
                    while let Some(name) = names.next_if(|name| name.after <= number) {
                        self.due.push_name(name);
                    }
                    self.rows(&input, from..mark.before_row, of_row, &mut pass.report);
                    from = mark.before_row;
                    self.advance(mark.lane, mark.watermark, &mut pass);
                    self.due.push_watermark(*mark);
                }
                self.rows(&input, from..rows, of_row, &mut pass.report);
                names.for_each(|name| self.due.push_name(name));
            }
        }
        self.apply(&mut pass);
        pass.out.finish(context.out);
    }

    /// Finds the cells of rows.
    #[inline]
    fn rows(
        &mut self,
        input: &GroupInput,
        rows: Range<usize>,
        lanes: Option<&[u32]>,
        report: &mut WindowReport<'_>,
    ) {
        for row in rows {
            let lane = lanes.map_or(ONE_LANE, |lanes| {
                if row % PREFETCH_ROWS == 0 {
                    self.cells
                        .prefetch(&lanes[row..lanes.len().min(row + PREFETCH_ROWS)]);
                }
                lanes[row]
            });
            let end = self.grid.pane_end(input.chunk.times[row]);
            let cell = self.cells.cell_of_row(lane, end, input, row);
            self.slots.push(cell);
            if self.cells.lane(lane).due == Lane::IDLE {
                self.cells.lane(lane).due = self.grid.window_end(end);
                self.schedule(lane);
            }
            if report.tracing() {
                for window in self.grid.windows(end) {
                    let start = Instant::from_ticks(self.grid.window_start(window));
                    report.window_entered(input, row, start, Instant::from_ticks(window));
                }
            }
        }
    }

    /// Aggregates the rows whose cells were found and writes the due windows.
    fn apply(&mut self, pass: &mut ChunkPass<'_, '_>) {
        let (from, to) = (pass.added, pass.added + self.slots.len());
        self.cells.grow();
        if let Some(input) = pass.input
            && to > from
        {
            let accumulators = &mut self.cells.accumulators;
            self.spec.update(accumulators, input, from..to, &self.slots);
        }
        self.slots.clear();
        pass.added = to;
        self.write(&mut pass.out, pass.report.errors);
    }

    /// Schedules a visit of the lane at the end of its next window.
    fn schedule(&mut self, number: u32) {
        let lane = self.cells.lane(number);
        let wanted = lane.scheduled == Lane::UNSCHEDULED || lane.due < lane.scheduled;
        if lane.due != Lane::IDLE && wanted {
            lane.scheduled = lane.due;
            self.schedule.entry(lane.due).or_default().push(number);
        }
    }

    /// Collects the windows that end before `watermark`, of one lane or of all.
    #[inline]
    fn advance(&mut self, lane: Option<u32>, watermark: Instant, pass: &mut ChunkPass<'_, '_>) {
        let watermark = watermark.ticks();
        match lane {
            Some(lane) => {
                while self.cells.lane(lane).due < watermark {
                    self.complete(lane, pass);
                }
            }
            None => {
                while let Some(first) = self.schedule.first_entry()
                    && *first.key() < watermark
                {
                    let (time, mut lanes) = first.remove_entry();
                    lanes.sort_unstable();
                    for lane in lanes {
                        self.visit_lane(lane, time, pass);
                    }
                }
            }
        }
    }

    fn visit_lane(&mut self, number: u32, time: i64, pass: &mut ChunkPass<'_, '_>) {
        let lane = self.cells.lane(number);
        if lane.scheduled != time {
            return;
        }
        lane.scheduled = Lane::UNSCHEDULED;
        if lane.due == time {
            self.complete(number, pass);
        }
        self.schedule(number);
    }

    /// Collects the lane's next window and moves on to the one after it.
    fn complete(&mut self, lane: u32, pass: &mut ChunkPass<'_, '_>) {
        let end = self.cells.lane(lane).due;
        if self.grid.is_tumbling() {
            while let Some(cell) = self.cells.detach(lane, end) {
                self.due.push_row(cell, end, lane);
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
            self.apply(pass);
        }
    }

    /// Collects one row per group of the window, in order of first occurrence.
    fn join(&mut self, lane: u32, end: i64) {
        self.window = self.window.wrapping_add(1);
        if self.window == 0 {
            self.group_rows.clear();
            self.window = 1;
        }
        vec_growth::resize(&mut self.group_rows, self.cells.groups_bound(), (0, 0));
        let start = self.grid.window_start(end);
        let inside = self.cells.cells_of(lane).skip_while(|(_, e)| *e <= start);
        for (cell, _) in inside.take_while(|(_, e)| *e <= end) {
            let known = &mut self.group_rows[self.cells.group(cell) as usize];
            if known.0 != self.window {
                *known = (self.window, self.due.shown.len() as u32);
                self.due.push_row(cell, end, lane);
            }
            self.due.parts.push(cell);
            self.due.rows.push(known.1);
        }
    }

    /// Writes the due windows. All their rows are aggregated.
    fn write(&mut self, out: &mut RowWriter<'_>, errors: &mut DataErrors) {
        let (due, spec) = (&self.due, &*self.spec);
        if self.grid.is_tumbling() {
            let groups = GroupEmitter {
                spec,
                keys: &self.cells,
                accumulators: &self.cells.accumulators,
            };
            due.write(&groups, &due.shown, out, errors);
        } else {
            let mut joined = due.joined(spec, &self.cells);
            let keys = DueRowKeys {
                cells: &self.cells,
                shown: &due.shown,
            };
            if let Some(hopping_scripts) = &mut self.hopping_scripts {
                let rows = due.lanes.iter().copied().zip(due.ends.iter().copied());
                hopping_scripts.compute(&keys, rows, &mut joined);
            }
            let groups = GroupEmitter {
                spec,
                keys: &keys,
                accumulators: &joined,
            };
            let rows: Vec<u32> = (0..due.shown.len() as u32).collect();
            due.write(&groups, &rows, out, errors);
        }
        self.cells.free(&self.due.spent);
        self.due.clear();
        self.cells.shrink(&self.spec);
    }
}

impl DueWindows {
    fn push_row(&mut self, cell: u32, end: i64, lane: u32) {
        self.shown.push(cell);
        self.ends.push(end);
        self.lanes.push(lane);
    }

    fn push_watermark(&mut self, mark: LaneWatermark) {
        self.watermarks.push(LaneWatermark {
            before_row: self.shown.len(),
            ..mark
        });
    }

    fn push_name(&mut self, name: &LaneName) {
        self.names.push(LaneName {
            after: self.watermarks.len(),
            ..name.clone()
        });
    }

    /// The aggregates of each row.
    fn joined(&self, spec: &GroupSpec, cells: &Cells) -> Vec<Accumulator> {
        let mut joined = spec.accumulators();
        for (index, accumulator) in joined.iter_mut().enumerate() {
            accumulator.grow(self.shown.len());
            let parts = cells.accumulators[index].pick(&self.parts);
            accumulator.absorb(&parts, &self.rows);
        }
        joined
    }

    /// Writes the rows in blocks, each in its lane and after the preceding watermarks and names.
    fn write<K: GroupKeys>(
        &self,
        groups: &GroupEmitter<'_, K>,
        slots: &[u32],
        out: &mut RowWriter<'_>,
        errors: &mut DataErrors,
    ) {
        let mut watermarks = self.watermarks.iter().peekable();
        let mut names = self.names.iter().peekable();
        let mut passed = 0;
        let mut push_marks = |row: usize, out: &mut RowWriter<'_>| {
            loop {
                while let Some(name) = names.next_if(|name| name.after <= passed) {
                    out.push_name(name);
                }
                let Some(mark) = watermarks.next_if(|mark| mark.before_row <= row) else {
                    break;
                };
                out.push_watermark(*mark);
                passed += 1;
            }
            out.lane = self.lanes.get(row).copied().unwrap_or(ONE_LANE);
        };
        for start in (0..slots.len()).step_by(CHUNK_ROWS) {
            let block = start..slots.len().min(start + CHUNK_ROWS);
            let (ends, slots) = (&self.ends[block.clone()], &slots[block]);
            groups.emit(ends, slots, out, errors, |row, out| {
                push_marks(start + row, out)
            });
        }
        push_marks(slots.len(), out);
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

/// The keys of the due rows.
struct DueRowKeys<'a> {
    cells: &'a Cells,
    shown: &'a [u32],
}

impl GroupKeys for DueRowKeys<'_> {
    fn key(&self, row: u32) -> &[u8] {
        self.cells.key(self.shown[row as usize])
    }

    fn original_key(&self, row: u32) -> Option<&[u8]> {
        self.cells.original_key(self.shown[row as usize])
    }
}

impl Operator for PaneWindow {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.chunk(chunk, context),
            Item::Watermark(watermark) => {
                let mut pass = ChunkPass {
                    input: None,
                    added: 0,
                    out: RowWriter::new(&self.spec, self.has_lanes, context.budget),
                    report: WindowReport {
                        errors: context.errors,
                        trace: None,
                    },
                };
                self.advance(None, watermark, &mut pass);
                self.apply(&mut pass);
                pass.out.finish(context.out);
                context.out.push(Item::Watermark(watermark));
            }
            Item::PartialPanes(_) => unreachable!("a window over rows is never given shares"),
        }
    }

    fn state_bytes(&self) -> usize {
        let scripts = self.hopping_scripts.iter();
        let scripts = scripts.map(HoppingScripts::state_bytes).sum::<usize>();
        self.cells.state_bytes() + scripts
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.u8(self.has_lanes.into());
        self.cells.snapshot(out);
        self.hopping_scripts
            .iter()
            .for_each(|hopping_scripts| hopping_scripts.snapshot(out));
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        *self = PaneWindow::new(self.spec.clone(), self.grid);
        self.has_lanes = from.u8()? != 0;
        self.cells = Cells::restore(&self.spec, from)?;
        if let Some(hopping_scripts) = &mut self.hopping_scripts {
            hopping_scripts.restore(from)?;
        }
        (0..self.cells.lanes() as u32).for_each(|lane| self.schedule(lane));
        Ok(())
    }
}
