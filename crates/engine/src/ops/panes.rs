//! Tumbling, hopping and snapshot windows over several partitions.
//!
//! Filling panes ([`PaneGrid`]) and joining them into windows are two halves: each partition fills its own, and the
//! finished panes meet, in the order of the partitions, once all of them have passed the window's end.
//!
//! To put a window together no key is hashed again: the panes' keys have numbers ([`KeyTable`]), and a list from number
//! to slot is all that joining needs.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{CombinedWatermark, Instant};

use super::accumulate::{self, Accumulator};
use super::agenda::ONE_LANE;
use super::grid::PaneGrid;
use super::groups::{self, GroupSpec, Groups, Keyed, Looks, Prepared};
use super::interned::KeyTable;
use super::lanes::{Notes, RowsOut};
use super::merge::{restore_clock, snapshot_clock};
use super::rolls::Rolls;
use super::{Context, DataErrors, Item, Operator, Share, room};

/// Rows into panes.
struct Filler {
    spec: Arc<GroupSpec>,
    grid: PaneGrid,
    /// Panes by their ends.
    open: BTreeMap<i64, Groups>,
    slots: Vec<u32>,
}

impl Filler {
    fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> Filler {
        Filler {
            spec,
            grid,
            open: BTreeMap::new(),
            slots: Vec::new(),
        }
    }

    fn rows(&mut self, input: &Prepared, rows: Range<usize>, notes: &mut Notes<'_>) {
        let times = &input.chunk.times;
        let mut start = rows.start;
        while start < rows.end {
            let end = self.grid.pane_end(times[start]);
            let stop = start + times[start..rows.end].partition_point(|&time| time <= end);
            let groups = self.open.entry(end);
            let groups = groups.or_insert_with(|| Groups::new(&self.spec));
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

    /// The panes that end before `watermark`.
    fn close(&mut self, watermark: Instant) -> Vec<Share> {
        let still_open = self.open.split_off(&watermark.ticks());
        let closed = std::mem::replace(&mut self.open, still_open).into_iter();
        closed
            .map(|(end, mut groups)| {
                groups.close();
                Share { end, groups }
            })
            .collect()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.open.len());
        for (end, groups) in &self.open {
            out.i64(*end);
            groups.snapshot(out);
        }
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.open = (0..from.count()?)
            .map(|_| Ok((from.i64()?, Groups::restore(&self.spec, from)?)))
            .collect::<Result<_, DecodeError>>()?;
        Ok(())
    }
}

/// Panes into windows.
struct Joiner {
    spec: Arc<GroupSpec>,
    grid: PaneGrid,
    /// The shares of each pane with the port they came from, by the pane's end.
    panes: BTreeMap<i64, Vec<(u32, Held)>>,
    /// The end of the next window to emit.
    due: Option<i64>,
    /// The keys of all shares that were part of a larger window.
    keys: KeyTable,
    /// Per key the last window that met it, and its slot there.
    places: Vec<(u32, u32)>,
    /// The number of the window being put together.
    window: u32,
    rolls: Option<Rolls>,
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
    fn len(&self) -> usize {
        match self {
            Held::Loose(groups) => groups.len(),
            Held::Known(members) => members.ids.len(),
        }
    }

    fn know(&mut self, keys: &mut KeyTable) {
        if let Held::Loose(groups) = self {
            let ids = (0..groups.len() as u32)
                .map(|slot| keys.hold(groups::hash_key(groups.key(slot)), groups.key(slot)))
                .collect();
            let mut accumulators = std::mem::take(&mut groups.accumulators);
            accumulators.iter_mut().for_each(Accumulator::shrink);
            *self = Held::Known(Members {
                ids,
                looks: std::mem::take(&mut groups.looks),
                accumulators,
            });
        }
    }
}

impl Joiner {
    fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> Joiner {
        Joiner {
            rolls: Rolls::new(&spec, grid),
            spec,
            grid,
            panes: BTreeMap::new(),
            due: None,
            keys: KeyTable::default(),
            places: Vec::new(),
            window: 0,
        }
    }

    fn add(&mut self, port: u32, share: Share) {
        let window = self.grid.window_end(share.end);
        if share.end <= self.grid.window_start(window) {
            return; // between two windows, where the hop is longer than the window
        }
        let shares = self.panes.entry(share.end).or_default();
        let place = shares.partition_point(|(other, _)| *other <= port);
        shares.insert(place, (port, Held::Loose(share.groups)));
        self.due = Some(self.due.map_or(window, |due| due.min(window)));
    }

    fn emit(&mut self, watermark: Instant, out: &mut RowsOut, errors: &mut DataErrors) {
        while let Some(end) = self.due.filter(|due| *due < watermark.ticks()) {
            self.emit_window(end, out, errors);
            self.forget_panes(end);
            let first = self.panes.first_key_value();
            let next = first.map(|(first, _)| *first.max(&end.saturating_add(1)));
            self.due = next.map(|time| self.grid.window_end(time));
        }
    }

    /// Lets go of the panes that no window after the one ending at `end` holds.
    fn forget_panes(&mut self, end: i64) {
        let next_start = self.grid.window_start(self.grid.next_window(end));
        let kept = self.panes.split_off(&next_start.saturating_add(1));
        for shares in std::mem::replace(&mut self.panes, kept).into_values() {
            for (_, share) in shares {
                if let Held::Known(members) = share {
                    members.ids.iter().for_each(|&id| {
                        self.keys.release(id);
                    });
                }
            }
        }
    }

    fn emit_window(&mut self, end: i64, out: &mut RowsOut, errors: &mut DataErrors) {
        let panes = &mut self.panes;
        let content = self.grid.window_start(end) + 1..=end;
        let shares = || panes.range(content.clone()).flat_map(|(_, shares)| shares);
        if let Some((_, Held::Loose(groups))) = shares().next()
            && shares().nth(1).is_none()
            && self.rolls.is_none()
        {
            groups.emit(&self.spec, end, out, errors);
            return;
        }
        for (_, share) in panes.range_mut(content.clone()).flat_map(|(_, s)| s) {
            share.know(&mut self.keys);
        }
        let mut joined = self.join(content, errors);
        let mut accumulators = std::mem::take(&mut joined.accumulators);
        let named = Named {
            members: &joined,
            keys: &self.keys,
        };
        let groups = joined.ids.len();
        if let Some(rolls) = &mut self.rolls {
            let rows = std::iter::repeat_n((ONE_LANE, end), groups);
            rolls.settle(&named, rows, &mut accumulators);
        }
        groups::emit_all(&self.spec, end, groups, &named, &accumulators, out, errors);
    }

    /// All shares of these panes as one, groups in the order in which they are first met.
    fn join(&mut self, content: RangeInclusive<i64>, errors: &mut DataErrors) -> Members {
        let largest = self.panes.range(content.clone()).flat_map(|(_, s)| s);
        let largest = largest.map(|(_, share)| share.len()).max();
        let mut joined = Members {
            ids: Vec::with_capacity(largest.unwrap_or(0)),
            looks: Looks::default(),
            accumulators: self.spec.accumulators(),
        };
        self.window = self.window.wrapping_add(1);
        if self.window == 0 {
            self.places.clear();
            self.window = 1;
        }
        room::resize(&mut self.places, self.keys.bound(), (0, 0));
        let mut slots = Vec::new();
        let end = Instant::from_ticks(*content.end());
        let shares = self.panes.range(content);
        for (_, share) in shares.flat_map(|(_, shares)| shares) {
            let Held::Known(share) = share else { continue };
            slots.clear();
            for (at, &id) in share.ids.iter().enumerate() {
                let place = &mut self.places[id as usize];
                if place.0 != self.window {
                    *place = (self.window, joined.ids.len() as u32);
                    room::make(&mut joined.ids, 1);
                    joined.ids.push(id);
                    if let Some(look) = share.looks.get(at as u32) {
                        joined.looks.set(place.1, look.into());
                    }
                }
                slots.push(place.1);
            }
            for (index, accumulator) in joined.accumulators.iter_mut().enumerate() {
                accumulator.grow(joined.ids.len());
                let outcome = accumulator.absorb(&share.accumulators[index], &slots);
                accumulate::note(outcome, &self.spec.aggregates[index], end, errors);
            }
        }
        joined
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.panes.len());
        for (end, shares) in &self.panes {
            out.i64(*end);
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
        }
        out.u8(self.due.is_some().into());
        self.due.iter().for_each(|due| out.i64(*due));
        self.rolls.iter().for_each(|rolls| rolls.snapshot(out));
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = Joiner::new(self.spec.clone(), self.grid);
        for _ in 0..from.count()? {
            let end = from.i64()?;
            let shares = (0..from.count()?)
                .map(|_| {
                    let port = from.u32()?;
                    Ok((port, Held::Loose(Groups::restore(&self.spec, from)?)))
                })
                .collect::<Result<_, DecodeError>>()?;
            fresh.panes.insert(end, shares);
        }
        if from.u8()? != 0 {
            fresh.due = Some(from.i64()?);
        }
        if let Some(rolls) = &mut fresh.rolls {
            rolls.restore(from)?;
        }
        *self = fresh;
        Ok(())
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
                self.0.rows(&input, 0..input.chunk.rows(), &mut notes);
            }
            Item::Watermark(watermark) => {
                let shares = self.0.close(watermark);
                if !shares.is_empty() {
                    context.out.push(Item::Shares(shares));
                }
                context.out.push(item);
            }
            Item::Shares(_) => unreachable!("panes are filled from rows"),
        }
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.0.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.0.restore(from)
    }
}

/// The second half, where partitions meet: shares in, rows out.
pub(crate) struct PaneJoin {
    joiner: Joiner,
    clock: CombinedWatermark,
}

impl PaneJoin {
    pub fn new(spec: Arc<GroupSpec>, grid: PaneGrid, partitions: usize) -> PaneJoin {
        PaneJoin {
            joiner: Joiner::new(spec, grid),
            clock: CombinedWatermark::new(partitions),
        }
    }
}

impl Operator for PaneJoin {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Shares(shares) => {
                for share in shares {
                    self.joiner.add(port as u32, share);
                }
            }
            Item::Watermark(watermark) => {
                let Some(watermark) = self.clock.advance(port, watermark) else {
                    return;
                };
                let mut out = RowsOut::new(&self.joiner.spec, false);
                self.joiner.emit(watermark, &mut out, context.errors);
                out.finish(context.out);
                context.out.push(Item::Watermark(watermark));
            }
            Item::Rows(_) => unreachable!("panes are joined from shares"),
        }
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.joiner.snapshot(out);
        snapshot_clock(&self.clock, out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.joiner.restore(from)?;
        restore_clock(&mut self.clock, from)
    }

    fn add_port(&mut self) -> bool {
        self.clock.add(self.clock.watermark());
        true
    }
}
