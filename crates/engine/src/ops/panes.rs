//! Tumbling, hopping and snapshot windows, by panes.
//!
//! Time is cut into panes on a fixed grid; a window is a run of whole panes. Rows are aggregated into their pane once,
//! however many windows overlap it. Filling panes and joining them into windows are two halves: each partition fills its
//! own, and where the query combines partitions the finished panes meet, in the order of the partitions, once all of
//! them have passed the window's end.
//!
//! To put a window together no key is hashed again: the panes' keys have numbers ([`KeyTable`]), and a list from number
//! to slot is all that joining needs.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use highwater_query::plan::Window;
use highwater_time::{Combined, Duration, Instant};

use super::accumulate::{self, Accumulator};
use super::agenda::{Agenda, ONE_LANE};
use super::groups::{self, GroupSpec, Groups, Keyed, Looks, Prepared};
use super::interned::KeyTable;
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
    panes: Agenda<Vec<(u32, Held)>>,
    /// The next window to emit, per lane.
    due: Agenda<()>,
    /// The keys of all shares that were part of a larger window.
    keys: KeyTable,
    /// Per key the last window that met it, and its slot there.
    places: Vec<(u32, u32)>,
    /// The number of the window being put together.
    window: u32,
    slots: Vec<u32>,
}

/// A share as it came, or with its keys in the table. Most shares of tumbling windows are all of their window and are
/// never looked into.
enum Held {
    Loose(Groups),
    Known(Members),
}

/// Groups whose keys are in a table.
struct Members {
    ids: Vec<u32>,
    looks: Looks,
    accumulators: Vec<Accumulator>,
}

/// [`Members`] with the table.
struct Named<'a> {
    members: &'a Members,
    keys: &'a KeyTable,
}

impl Keyed for Named<'_> {
    fn key(&self, slot: u32) -> &[u8] {
        self.keys.key(self.members.ids[slot as usize])
    }

    fn look(&self, slot: u32) -> Option<&[u8]> {
        self.members.looks.get(slot)
    }
}

impl Held {
    fn know(&mut self, keys: &mut KeyTable) {
        if let Held::Loose(groups) = self {
            let ids = (0..groups.len() as u32)
                .map(|slot| keys.hold(groups.hashes[slot as usize], groups.key(slot)))
                .collect();
            *self = Held::Known(Members {
                ids,
                looks: std::mem::take(&mut groups.looks),
                accumulators: std::mem::take(&mut groups.accumulators),
            });
        }
    }
}

impl Joiner {
    fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> Joiner {
        Joiner {
            spec,
            grid,
            panes: Agenda::default(),
            due: Agenda::default(),
            keys: KeyTable::default(),
            places: Vec::new(),
            window: 0,
            slots: Vec::new(),
        }
    }

    fn add(&mut self, lane: u32, port: u32, share: Share) {
        let window = self.grid.window_end(share.end);
        if share.end <= self.grid.window_start(window) {
            return; // between two windows, where the hop is longer than the window
        }
        let shares = self.panes.at(lane, share.end, Vec::new);
        let place = shares.partition_point(|(other, _)| *other <= port);
        shares.insert(place, (port, Held::Loose(share.groups)));
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
            self.forget_panes(lane, end);
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

    /// Lets go of the panes that no window after the one ending at `end` holds.
    fn forget_panes(&mut self, lane: u32, end: i64) {
        let next_end = end.saturating_add(self.grid.hop.ticks());
        let next_start = self.grid.window_start(next_end);
        let passed = Instant::from_ticks(next_start.saturating_add(1));
        while let Some((_, _, shares)) = self.panes.pop(Some(lane), passed) {
            for (_, share) in shares {
                if let Held::Known(members) = share {
                    members.ids.iter().for_each(|&id| {
                        self.keys.release(id);
                    });
                }
            }
        }
    }

    fn emit_window(&mut self, lane: u32, end: i64, out: &mut RowsOut, errors: &mut DataErrors) {
        let Some(panes) = self.panes.lane_mut(lane) else {
            return;
        };
        let content = self.grid.window_start(end) + 1..=end;
        let shares = || panes.range(content.clone()).flat_map(|(_, shares)| shares);
        if let Some((_, Held::Loose(groups))) = shares().next()
            && shares().nth(1).is_none()
        {
            groups.emit(&self.spec, end, out, errors);
            return;
        }
        for (_, share) in panes.range_mut(content.clone()).flat_map(|(_, s)| s) {
            share.know(&mut self.keys);
        }
        let joined = self.join(lane, content, errors);
        let named = Named {
            members: &joined,
            keys: &self.keys,
        };
        let (groups, accumulators) = (joined.ids.len(), &joined.accumulators);
        groups::emit_all(&self.spec, end, groups, &named, accumulators, out, errors);
    }

    /// All shares of these panes as one, groups in the order in which they are first met.
    fn join(
        &mut self,
        lane: u32,
        content: RangeInclusive<i64>,
        errors: &mut DataErrors,
    ) -> Members {
        let mut joined = Members {
            ids: Vec::new(),
            looks: Looks::default(),
            accumulators: self.spec.accumulators(),
        };
        self.window = self.window.wrapping_add(1);
        if self.window == 0 {
            self.places.clear();
            self.window = 1;
        }
        self.places.resize(self.keys.bound(), (0, 0));
        let end = Instant::from_ticks(*content.end());
        let panes = self.panes.lane(lane);
        let shares = panes.iter().flat_map(|panes| panes.range(content.clone()));
        for (_, share) in shares.flat_map(|(_, shares)| shares) {
            let Held::Known(share) = share else { continue };
            self.slots.clear();
            for (at, &id) in share.ids.iter().enumerate() {
                let place = &mut self.places[id as usize];
                if place.0 != self.window {
                    *place = (self.window, joined.ids.len() as u32);
                    joined.ids.push(id);
                    if let Some(look) = share.looks.get(at as u32) {
                        joined.looks.set(place.1, look.into());
                    }
                }
                self.slots.push(place.1);
            }
            for (index, accumulator) in joined.accumulators.iter_mut().enumerate() {
                accumulator.grow(joined.ids.len());
                let outcome = accumulator.absorb(&share.accumulators[index], &self.slots);
                accumulate::note(outcome, &self.spec.aggregates[index], end, errors);
            }
        }
        joined
    }

    fn snapshot(&self, out: &mut Writer) {
        self.panes.snapshot(out, |shares, out| {
            out.count(shares.len());
            for (port, share) in shares {
                out.u32(*port);
                match share {
                    Held::Loose(groups) => groups.snapshot(out),
                    Held::Known(members) => {
                        let keys = &self.keys;
                        let (groups, accumulators) = (members.ids.len(), &members.accumulators);
                        groups::snapshot(&Named { members, keys }, groups, accumulators, out);
                    }
                }
            }
        });
        self.due.snapshot(out, |(), _| {});
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        let mut fresh = Joiner::new(self.spec.clone(), self.grid);
        fresh.panes = Agenda::restore(from, |from| {
            (0..from.count()?)
                .map(|_| {
                    let port = from.u32()?;
                    Ok((port, Held::Loose(Groups::restore(&self.spec, from)?)))
                })
                .collect()
        })?;
        fresh.due = Agenda::restore(from, |_| Ok(()))?;
        *self = fresh;
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
