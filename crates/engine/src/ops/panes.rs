//! Tumbling, hopping and snapshot windows, by panes.
//!
//! Time is cut into panes on a fixed grid; a window is a run of whole panes. Rows are aggregated into their pane once,
//! however many windows overlap it. Filling panes and joining them into windows are two halves: each partition fills its
//! own, and where the query combines partitions the finished panes meet, in the order of the partitions, once all of
//! them have passed the window's end.

use std::ops::Range;
use std::sync::Arc;

use highwater_query::plan::Window;
use highwater_time::{Combined, Duration, Instant};

use super::agenda::{Agenda, ONE_LANE};
use super::groups::{GroupSpec, Groups, Prepared};
use super::lanes::{LaneWindow, Notes, RowsOut};
use super::merge::{restore_clock, snapshot_clock};
use super::{Context, DataErrors, Item, Operator, Share};
use crate::codec::{Reader, RestoreError, Writer};

/// Where panes and windows begin and end. Intervals are (start, end].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaneGrid {
    pane: Duration,
    size: Duration,
    hop: Duration,
    offset: Duration,
}

impl PaneGrid {
    /// `None` for windows that do not lie on a grid.
    pub fn of(window: &Window) -> Option<PaneGrid> {
        let tick = Duration::from_ticks(1);
        let (size, hop, offset) = match *window {
            Window::Tumbling { size, offset } => (size, size, offset),
            Window::Hopping { size, hop, offset } => (size, hop, offset),
            Window::Snapshot => (tick, tick, Duration::ZERO),
            Window::Sliding { .. } | Window::Session { .. } => return None,
        };
        let pane = Duration::from_ticks(gcd(size.ticks(), hop.ticks()));
        Some(PaneGrid {
            pane,
            size,
            hop,
            offset,
        })
    }

    fn pane_end(&self, time: i64) -> i64 {
        Instant::from_ticks(time)
            .ceil_to(self.pane, self.offset)
            .ticks()
    }

    /// The end of the first window that ends at or after `time`.
    fn window_end(&self, time: i64) -> i64 {
        Instant::from_ticks(time)
            .ceil_to(self.hop, self.offset)
            .ticks()
    }

    fn window_start(&self, end: i64) -> i64 {
        end.saturating_sub(self.size.ticks())
    }

    /// The windows that hold the pane ending at `pane_end`.
    fn windows(&self, pane_end: i64) -> impl Iterator<Item = i64> {
        let (first, hop, size) = (
            self.window_end(pane_end),
            self.hop.ticks(),
            self.size.ticks(),
        );
        let last = pane_end.saturating_add(size);
        std::iter::successors(Some(first), move |end| end.checked_add(hop))
            .take_while(move |&end| end < last)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Rows into panes.
struct Filler {
    spec: Arc<GroupSpec>,
    grid: PaneGrid,
    open: Agenda<Groups>,
    slots: Vec<u32>,
}

impl Filler {
    fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> Filler {
        Filler {
            spec,
            grid,
            open: Agenda::default(),
            slots: Vec::new(),
        }
    }

    fn rows(&mut self, input: &Prepared, lane: u32, rows: Range<usize>, notes: &mut Notes<'_>) {
        let times = &input.chunk.times;
        let mut start = rows.start;
        while start < rows.end {
            let end = self.grid.pane_end(times[start]);
            let stop = start + times[start..rows.end].partition_point(|&time| time <= end);
            let groups = self.open.at(lane, end, || Groups::new(&self.spec));
            groups.add(
                &self.spec,
                input,
                start..stop,
                &mut self.slots,
                notes.errors,
            );
            if notes.tracing() {
                self.trace(input, start..stop, end, notes);
            }
            start = stop;
        }
    }

    fn trace(&self, input: &Prepared, rows: Range<usize>, pane_end: i64, notes: &mut Notes<'_>) {
        for row in rows {
            for end in self.grid.windows(pane_end) {
                let start = Instant::from_ticks(self.grid.window_start(end));
                notes.entered(input, row, start, Instant::from_ticks(end));
            }
        }
    }

    fn snapshot(&self, out: &mut Writer) {
        self.open.snapshot(out, |groups, out| groups.snapshot(out));
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.open = Agenda::restore(from, |from| Groups::restore(&self.spec, from))?;
        Ok(())
    }
}

/// Panes into windows.
struct Joiner {
    spec: Arc<GroupSpec>,
    grid: PaneGrid,
    /// The shares of each pane with the port they came from.
    panes: Agenda<Vec<(u32, Groups)>>,
    /// The next window to emit, per lane.
    due: Agenda<()>,
}

impl Joiner {
    fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> Joiner {
        Joiner {
            spec,
            grid,
            panes: Agenda::default(),
            due: Agenda::default(),
        }
    }

    fn add(&mut self, lane: u32, port: u32, share: Share) {
        let window = self.grid.window_end(share.end);
        if share.end <= self.grid.window_start(window) {
            return; // between two windows, where the hop is longer than the window
        }
        let shares = self.panes.at(lane, share.end, Vec::new);
        let place = shares.partition_point(|(other, _)| *other <= port);
        shares.insert(place, (port, share.groups));
        self.due.at(lane, window, || ());
    }

    fn emit(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        out: &mut RowsOut,
        errors: &mut DataErrors,
    ) {
        while let Some((lane, end, ())) = self.due.pop(lane, watermark) {
            out.lane = lane;
            self.emit_window(lane, end, out, errors);
            let next_start = self
                .grid
                .window_start(end.saturating_add(self.grid.hop.ticks()));
            while self
                .panes
                .pop(
                    Some(lane),
                    Instant::from_ticks(next_start.saturating_add(1)),
                )
                .is_some()
            {}
            let first = self
                .panes
                .lane(lane)
                .and_then(|panes| panes.first_key_value());
            if let Some((&first, _)) = first {
                let next = self.grid.window_end(first.max(end.saturating_add(1)));
                self.due.at(lane, next, || ());
            }
        }
    }

    fn emit_window(&self, lane: u32, end: i64, out: &mut RowsOut, errors: &mut DataErrors) {
        let Some(panes) = self.panes.lane(lane) else {
            return;
        };
        let start = self.grid.window_start(end);
        let mut shares = panes
            .range(start + 1..=end)
            .flat_map(|(_, shares)| shares)
            .map(|(_, groups)| groups);
        let Some(first) = shares.next() else { return };
        let mut joined: Option<Groups> = None;
        for share in shares {
            joined
                .get_or_insert_with(|| first.clone())
                .absorb(&self.spec, share, end, errors);
        }
        joined
            .as_ref()
            .unwrap_or(first)
            .emit(&self.spec, end, out, errors);
    }

    fn snapshot(&self, out: &mut Writer) {
        self.panes.snapshot(out, |shares, out| {
            out.count(shares.len());
            for (port, groups) in shares {
                out.u32(*port);
                groups.snapshot(out);
            }
        });
        self.due.snapshot(out, |(), _| {});
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.panes = Agenda::restore(from, |from| {
            (0..from.count()?)
                .map(|_| Ok((from.u32()?, Groups::restore(&self.spec, from)?)))
                .collect()
        })?;
        self.due = Agenda::restore(from, |_| Ok(()))?;
        Ok(())
    }
}

/// Both halves in one place: windows that never meet another partition's.
pub(crate) struct PaneWindow {
    filler: Filler,
    joiner: Joiner,
}

impl PaneWindow {
    pub fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> PaneWindow {
        PaneWindow {
            filler: Filler::new(spec.clone(), grid),
            joiner: Joiner::new(spec, grid),
        }
    }
}

impl LaneWindow for PaneWindow {
    fn spec(&self) -> &GroupSpec {
        &self.filler.spec
    }

    fn rows(&mut self, input: &Prepared, lane: u32, rows: Range<usize>, notes: &mut Notes<'_>) {
        self.filler.rows(input, lane, rows, notes);
    }

    fn advance(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        out: &mut RowsOut,
        notes: &mut Notes<'_>,
    ) {
        while let Some((lane, end, groups)) = self.filler.open.pop(lane, watermark) {
            self.joiner.add(lane, 0, Share { end, groups });
        }
        self.joiner.emit(lane, watermark, out, notes.errors);
    }

    fn snapshot(&self, out: &mut Writer) {
        self.filler.snapshot(out);
        self.joiner.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.filler.restore(from)?;
        self.joiner.restore(from)
    }
}

/// The first half, on a partition: rows in, shares out.
pub(crate) struct PaneFill(Filler);

impl PaneFill {
    pub fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> PaneFill {
        PaneFill(Filler::new(spec, grid))
    }
}

impl Operator for PaneFill {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => {
                let spec = self.0.spec.clone();
                let input = spec.prepare(chunk, context);
                let mut notes = Notes {
                    errors: context.errors,
                    trace: context.trace.as_deref_mut(),
                };
                self.0
                    .rows(&input, ONE_LANE, 0..input.chunk.rows(), &mut notes);
            }
            Item::Watermark(watermark) => {
                let pop = || self.0.open.pop(None, watermark);
                let shares: Vec<Share> = std::iter::from_fn(pop)
                    .map(|(_, end, groups)| Share { end, groups })
                    .collect();
                if !shares.is_empty() {
                    context.out.push(Item::Shares(shares));
                }
                context.out.push(item);
            }
            Item::Shares(_) => unreachable!("panes are filled from rows"),
        }
    }

    fn snapshot(&self, out: &mut Writer) {
        self.0.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.0.restore(from)
    }
}

/// The second half, where partitions meet: shares in, rows out.
pub(crate) struct PaneJoin {
    joiner: Joiner,
    clock: Combined,
}

impl PaneJoin {
    pub fn new(spec: Arc<GroupSpec>, grid: PaneGrid, partitions: usize) -> PaneJoin {
        PaneJoin {
            joiner: Joiner::new(spec, grid),
            clock: Combined::new(partitions),
        }
    }
}

impl Operator for PaneJoin {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Shares(shares) => {
                for share in shares {
                    self.joiner.add(ONE_LANE, port as u32, share);
                }
            }
            Item::Watermark(watermark) => {
                let Some(watermark) = self.clock.advance(port, watermark) else {
                    return;
                };
                let mut out = RowsOut::new(&self.joiner.spec, false);
                self.joiner.emit(None, watermark, &mut out, context.errors);
                out.finish(context.out);
                context.out.push(Item::Watermark(watermark));
            }
            Item::Rows(_) => unreachable!("panes are joined from shares"),
        }
    }

    fn snapshot(&self, out: &mut Writer) {
        self.joiner.snapshot(out);
        snapshot_clock(&self.clock, out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        self.joiner.restore(from)?;
        restore_clock(&mut self.clock, from)
    }
}
