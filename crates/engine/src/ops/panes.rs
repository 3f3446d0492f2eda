//! Tumbling, hopping and snapshot windows over several partitions.
//!
//! Each partition fills panes of its own ([`PaneGrid`]); the shared pipeline joins the finished panes, in the order of
//! the partitions, once all of them have passed the window's end.
//!
//! Joining panes hashes no key again: keys have numbers ([`KeyTable`]), and a vector maps numbers to slots.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{CombinedWatermark, Instant};

use super::accumulate::Accumulator;
use super::groups::{self, GroupInput, GroupKeys, GroupSpec, Groups, OriginalKeys};
use super::hopping_scripts::HoppingScripts;
use super::key_table::KeyTable;
use super::merge::{restore_watermark, snapshot_watermark};
use super::pane_grid::PaneGrid;
use super::timer_queue::ONE_LANE;
use super::window_operator::{RowWriter, WindowReport};
use super::{Context, DataErrors, Item, Operator, PartialPane, vec_growth};

/// Aggregates rows into panes.
#[derive(Clone)]
struct PaneFiller {
    spec: Arc<GroupSpec>,
    grid: PaneGrid,
    /// Panes by their ends.
    open: BTreeMap<i64, Groups>,
    slots: Vec<u32>,
}

impl PaneFiller {
    fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> PaneFiller {
        PaneFiller {
            spec,
            grid,
            open: BTreeMap::new(),
            slots: Vec::new(),
        }
    }

    fn rows(&mut self, input: &GroupInput, rows: Range<usize>, report: &mut WindowReport<'_>) {
        let times = &input.chunk.times;
        let mut start = rows.start;
        while start < rows.end {
            let end = self.grid.pane_end(times[start]);
            let stop = start + times[start..rows.end].partition_point(|&time| time <= end);
            let groups = self.open.entry(end);
            let groups = groups.or_insert_with(|| Groups::new(&self.spec));
            groups.add(&self.spec, input, start..stop, &mut self.slots);
            if report.tracing() {
                self.trace(input, start..stop, end, report);
            }
            start = stop;
        }
    }

    fn trace(
        &self,
        input: &GroupInput,
        rows: Range<usize>,
        pane_end: i64,
        report: &mut WindowReport<'_>,
    ) {
        for row in rows {
            for end in self.grid.windows(pane_end) {
                let start = Instant::from_ticks(self.grid.window_start(end));
                report.window_entered(input, row, start, Instant::from_ticks(end));
            }
        }
    }

    /// The panes that end before `watermark`.
    fn close(&mut self, watermark: Instant) -> Vec<PartialPane> {
        let still_open = self.open.split_off(&watermark.ticks());
        let closed = std::mem::replace(&mut self.open, still_open).into_iter();
        closed
            .map(|(end, mut groups)| {
                groups.close();
                PartialPane { end, groups }
            })
            .collect()
    }

    fn state_bytes(&self) -> usize {
        self.open.values().map(Groups::state_bytes).sum()
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

/// Joins panes into windows.
struct PaneJoiner {
    spec: Arc<GroupSpec>,
    grid: PaneGrid,
    /// The partial panes with their ports, by the pane's end.
    panes: BTreeMap<i64, Vec<(u32, PaneGroups)>>,
    /// The end of the next window to emit.
    due: Option<i64>,
    /// The keys of all indexed groups.
    keys: KeyTable,
    /// Per key, the last window that contains it and its slot there.
    group_slots: Vec<(u32, u32)>,
    /// The number of the current window.
    window: u32,
    hopping_scripts: Option<HoppingScripts>,
}

/// The groups of one partial pane, with or without their keys in the table. Most tumbling windows consist of a single
/// partial pane, whose keys are never indexed.
#[derive(Clone)]
enum PaneGroups {
    Unindexed(Groups),
    Indexed(IndexedGroups),
}

/// Groups whose keys are in the key table.
#[derive(Clone)]
struct IndexedGroups {
    ids: Vec<u32>,
    original_keys: OriginalKeys,
    accumulators: Vec<Accumulator>,
}

/// [`IndexedGroups`] with the key table.
struct IndexedKeys<'a> {
    members: &'a IndexedGroups,
    keys: &'a KeyTable,
}

impl GroupKeys for IndexedKeys<'_> {
    fn key(&self, slot: u32) -> &[u8] {
        self.keys.key(self.members.ids[slot as usize])
    }

    fn original_key(&self, slot: u32) -> Option<&[u8]> {
        self.members.original_keys.get(slot)
    }
}

impl PaneGroups {
    fn len(&self) -> usize {
        match self {
            PaneGroups::Unindexed(groups) => groups.len(),
            PaneGroups::Indexed(members) => members.ids.len(),
        }
    }

    fn index_keys(&mut self, keys: &mut KeyTable) {
        if let PaneGroups::Unindexed(groups) = self {
            let ids = (0..groups.len() as u32)
                .map(|slot| keys.hold(groups::hash_key(groups.key(slot)), groups.key(slot)))
                .collect();
            let mut accumulators = std::mem::take(&mut groups.accumulators);
            accumulators.iter_mut().for_each(Accumulator::shrink);
            *self = PaneGroups::Indexed(IndexedGroups {
                ids,
                original_keys: std::mem::take(&mut groups.original_keys),
                accumulators,
            });
        }
    }
}

impl PaneJoiner {
    /// `None` if it has scripts: their objects cannot be copied.
    fn duplicate(&self) -> Option<PaneJoiner> {
        self.hopping_scripts.is_none().then(|| PaneJoiner {
            spec: self.spec.clone(),
            grid: self.grid,
            panes: self.panes.clone(),
            due: self.due,
            keys: self.keys.clone(),
            group_slots: self.group_slots.clone(),
            window: self.window,
            hopping_scripts: None,
        })
    }

    fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> PaneJoiner {
        PaneJoiner {
            hopping_scripts: HoppingScripts::new(&spec, grid),
            spec,
            grid,
            panes: BTreeMap::new(),
            due: None,
            keys: KeyTable::default(),
            group_slots: Vec::new(),
            window: 0,
        }
    }

    fn add(&mut self, port: u32, share: PartialPane) {
        let window = self.grid.window_end(share.end);
        if share.end <= self.grid.window_start(window) {
            return; // between two windows, where the hop is longer than the window
        }
        let shares = self.panes.entry(share.end).or_default();
        let index = shares.partition_point(|(other, _)| *other <= port);
        shares.insert(index, (port, PaneGroups::Unindexed(share.groups)));
        self.due = Some(self.due.map_or(window, |due| due.min(window)));
    }

    fn emit(&mut self, watermark: Instant, out: &mut RowWriter<'_>, errors: &mut DataErrors) {
        while let Some(end) = self.due.filter(|due| *due < watermark.ticks()) {
            self.emit_window(end, out, errors);
            self.drop_panes(end);
            let first = self.panes.first_key_value();
            let next = first.map(|(first, _)| *first.max(&end.saturating_add(1)));
            self.due = next.map(|time| self.grid.window_end(time));
        }
    }

    /// Drops the panes that no window after the one ending at `end` contains.
    fn drop_panes(&mut self, end: i64) {
        let next_start = self.grid.window_start(self.grid.next_window(end));
        let kept = self.panes.split_off(&next_start.saturating_add(1));
        for shares in std::mem::replace(&mut self.panes, kept).into_values() {
            for (_, share) in shares {
                if let PaneGroups::Indexed(members) = share {
                    members.ids.iter().for_each(|&id| {
                        self.keys.release(id);
                    });
                }
            }
        }
    }

    fn emit_window(&mut self, end: i64, out: &mut RowWriter<'_>, errors: &mut DataErrors) {
        let panes = &mut self.panes;
        let content = self.grid.window_start(end) + 1..=end;
        let shares = || panes.range(content.clone()).flat_map(|(_, shares)| shares);
        if let Some((_, PaneGroups::Unindexed(groups))) = shares().next()
            && shares().nth(1).is_none()
            && self.hopping_scripts.is_none()
        {
            groups.emit(&self.spec, end, out, errors);
            return;
        }
        for (_, share) in panes.range_mut(content.clone()).flat_map(|(_, s)| s) {
            share.index_keys(&mut self.keys);
        }
        let mut joined = self.join(content);
        let mut accumulators = std::mem::take(&mut joined.accumulators);
        let keys = IndexedKeys {
            members: &joined,
            keys: &self.keys,
        };
        let groups = joined.ids.len();
        if let Some(hopping_scripts) = &mut self.hopping_scripts {
            let rows = std::iter::repeat_n((ONE_LANE, end), groups);
            hopping_scripts.compute(&keys, rows, &mut accumulators);
        }
        groups::emit_all(&self.spec, end, groups, &keys, &accumulators, out, errors);
    }

    /// Combines all partial panes, with the groups in order of first occurrence.
    fn join(&mut self, content: RangeInclusive<i64>) -> IndexedGroups {
        let largest = self.panes.range(content.clone()).flat_map(|(_, s)| s);
        let largest = largest.map(|(_, share)| share.len()).max();
        let mut joined = IndexedGroups {
            ids: Vec::with_capacity(largest.unwrap_or(0)),
            original_keys: OriginalKeys::default(),
            accumulators: self.spec.accumulators(),
        };
        self.window = self.window.wrapping_add(1);
        if self.window == 0 {
            self.group_slots.clear();
            self.window = 1;
        }
        vec_growth::resize(&mut self.group_slots, self.keys.bound(), (0, 0));
        let mut slots = Vec::new();
        let shares = self.panes.range(content);
        for (_, share) in shares.flat_map(|(_, shares)| shares) {
            let PaneGroups::Indexed(share) = share else {
                continue;
            };
            slots.clear();
            for (at, &id) in share.ids.iter().enumerate() {
                let known = &mut self.group_slots[id as usize];
                if known.0 != self.window {
                    *known = (self.window, joined.ids.len() as u32);
                    vec_growth::reserve(&mut joined.ids, 1);
                    joined.ids.push(id);
                    if let Some(look) = share.original_keys.get(at as u32) {
                        joined.original_keys.set(known.1, look.into());
                    }
                }
                slots.push(known.1);
            }
            for (index, accumulator) in joined.accumulators.iter_mut().enumerate() {
                accumulator.grow(joined.ids.len());
                accumulator.absorb(&share.accumulators[index], &slots);
            }
        }
        joined
    }

    fn state_bytes(&self) -> usize {
        let shares = self.panes.values().flatten();
        let shares = shares.map(|(_, share)| match share {
            PaneGroups::Unindexed(groups) => groups.state_bytes(),
            PaneGroups::Indexed(members) => {
                size_of_val(&members.ids[..])
                    + groups::aggregate_bytes(&members.accumulators, members.ids.len())
            }
        });
        let scripts = self.hopping_scripts.iter();
        shares.sum::<usize>()
            + self.keys.state_bytes()
            + scripts.map(HoppingScripts::state_bytes).sum::<usize>()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.panes.len());
        for (end, shares) in &self.panes {
            out.i64(*end);
            out.count(shares.len());
            for (port, share) in shares {
                out.u32(*port);
                match share {
                    PaneGroups::Unindexed(groups) => groups.snapshot(out),
                    PaneGroups::Indexed(members) => {
                        let keys = &self.keys;
                        let (groups, accumulators) = (members.ids.len(), &members.accumulators);
                        groups::snapshot(&IndexedKeys { members, keys }, groups, accumulators, out);
                    }
                }
            }
        }
        out.u8(self.due.is_some().into());
        self.due.iter().for_each(|due| out.i64(*due));
        self.hopping_scripts
            .iter()
            .for_each(|hopping_scripts| hopping_scripts.snapshot(out));
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut fresh = PaneJoiner::new(self.spec.clone(), self.grid);
        for _ in 0..from.count()? {
            let end = from.i64()?;
            let shares = (0..from.count()?)
                .map(|_| {
                    let port = from.u32()?;
                    Ok((
                        port,
                        PaneGroups::Unindexed(Groups::restore(&self.spec, from)?),
                    ))
                })
                .collect::<Result<_, DecodeError>>()?;
            fresh.panes.insert(end, shares);
        }
        if from.u8()? != 0 {
            fresh.due = Some(from.i64()?);
        }
        if let Some(hopping_scripts) = &mut fresh.hopping_scripts {
            hopping_scripts.restore(from)?;
        }
        *self = fresh;
        Ok(())
    }
}

/// Runs on a partition: rows in, partial panes out.
pub(crate) struct PaneFill(PaneFiller);

impl PaneFill {
    pub(crate) fn new(spec: Arc<GroupSpec>, grid: PaneGrid) -> PaneFill {
        PaneFill(PaneFiller::new(spec, grid))
    }
}

impl Operator for PaneFill {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => {
                let spec = self.0.spec.clone();
                let input = spec.prepare(chunk, context);
                let mut report = WindowReport {
                    errors: context.errors,
                    trace: context.trace.as_deref_mut(),
                };
                self.0.rows(&input, 0..input.chunk.rows(), &mut report);
            }
            Item::Watermark(watermark) => {
                let shares = self.0.close(watermark);
                if !shares.is_empty() {
                    context.out.push(Item::PartialPanes(shares));
                }
                context.out.push(item);
            }
            Item::PartialPanes(_) => unreachable!("panes are filled from rows"),
        }
    }

    fn duplicate(&self) -> Option<Box<dyn Operator>> {
        Some(Box::new(PaneFill(self.0.clone())))
    }

    fn state_bytes(&self) -> usize {
        self.0.state_bytes()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.0.snapshot(out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.0.restore(from)
    }
}

/// Runs in the shared pipeline: partial panes of all partitions in, rows out.
pub(crate) struct PaneJoin {
    joiner: PaneJoiner,
    combined_watermark: CombinedWatermark,
}

impl PaneJoin {
    pub(crate) fn new(spec: Arc<GroupSpec>, grid: PaneGrid, partitions: usize) -> PaneJoin {
        PaneJoin {
            joiner: PaneJoiner::new(spec, grid),
            combined_watermark: CombinedWatermark::new(partitions),
        }
    }
}

impl Operator for PaneJoin {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::PartialPanes(shares) => {
                for share in shares {
                    self.joiner.add(port as u32, share);
                }
            }
            Item::Watermark(watermark) => {
                let Some(watermark) = self.combined_watermark.advance(port, watermark) else {
                    return;
                };
                let mut out = RowWriter::new(&self.joiner.spec, false, context.budget);
                self.joiner.emit(watermark, &mut out, context.errors);
                out.finish(context.out);
                context.out.push(Item::Watermark(watermark));
            }
            Item::Rows(_) => unreachable!("panes are joined from shares"),
        }
    }

    fn duplicate(&self) -> Option<Box<dyn Operator>> {
        Some(Box::new(PaneJoin {
            joiner: self.joiner.duplicate()?,
            combined_watermark: self.combined_watermark.clone(),
        }))
    }

    fn state_bytes(&self) -> usize {
        self.joiner.state_bytes()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.joiner.snapshot(out);
        snapshot_watermark(&self.combined_watermark, out);
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.joiner.restore(from)?;
        restore_watermark(&mut self.combined_watermark, from)
    }

    fn add_port(&mut self) -> bool {
        self.combined_watermark
            .add(self.combined_watermark.watermark());
        true
    }
}
