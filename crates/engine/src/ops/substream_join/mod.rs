//! JOIN and UNION of substreams: every key has a join (or merge) of its own.
//!
//! The operator of a key knows nothing of lanes. Its watermark in each stream is the maximum of the lane's watermark
//! there and the stream's floor. A stream that does not have the key delays its results only until the floor passes
//! them.
//!
//! Results have lanes again, numbered here; the watermark of a lane is the minimum of the key's watermarks in the
//! streams. Events are processed in the deterministic sequence that [`port`] makes of the streams.

mod lane;
mod lane_names;
mod port;

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use super::{Context, Item, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk, ChunkLanes, LaneName};
use crate::column::ColumnBuilder;
use lane::Lane;
pub(crate) use lane_names::LaneNamer;
use port::{Port, Step};

/// The operator of one key, over streams without lanes.
pub(crate) trait KeyOperator: Operator {
    /// The time after which it has rows to emit or drop; `None` if it has no state.
    fn next_due(&self) -> Option<i64>;
}

type MakeOperator = Box<dyn Fn() -> Box<dyn KeyOperator> + Send>;

pub(crate) struct SubstreamJoin {
    make: MakeOperator,
    ports: Vec<Port>,
    /// The minimum floor over the streams of each side.
    floors: Vec<i64>,
    /// The number of result columns.
    width: usize,
    /// How long later operators may keep state for a row.
    retention: i64,
    lanes: Vec<Option<Lane>>,
    free: BTreeSet<u32>,
    lane_of_key: HashMap<Arc<[u8]>, u32, FixedState>,
    /// When lanes must be visited, by time and lane.
    next_due: BTreeSet<(i64, u32)>,
    /// The lower bound on the watermark of every lane.
    floor: i64,
    ended: bool,
}

impl SubstreamJoin {
    /// `sides` has for each port the input of the per-key operators that it feeds.
    pub(crate) fn new(
        sides: &[usize],
        width: usize,
        retention: i64,
        make: impl Fn() -> Box<dyn KeyOperator> + Send + 'static,
    ) -> SubstreamJoin {
        SubstreamJoin {
            make: Box::new(make),
            ports: sides.iter().map(|&side| Port::new(side)).collect(),
            floors: vec![i64::MIN; sides.iter().max().map_or(0, |last| last + 1)],
            width,
            retention,
            lanes: Vec::new(),
            free: BTreeSet::new(),
            lane_of_key: HashMap::default(),
            next_due: BTreeSet::new(),
            floor: i64::MIN,
            ended: false,
        }
    }

    /// Processes every step whose position in the sequence is final.
    fn run(&mut self, context: &mut Context<'_>) {
        let mut out = OutputBuilder::new(self.width);
        while let Some((port, until)) = self.next() {
            match self.ports[port].take(until) {
                Some(Step::Name { lane, key }) => self.name(port, lane, key, &mut out),
                Some(Step::Rows { lane, rows }) => self.rows(port, lane, rows, context),
                Some(Step::Watermark {
                    lane: None,
                    watermark,
                }) => self.advance_floor(port, watermark, &mut out, context),
                Some(Step::Watermark {
                    lane: Some(lane),
                    watermark,
                }) => self.advance_lane(port, lane, watermark, &mut out, context),
                None => break,
            }
            out.seal_if_full(context);
        }
        out.seal(context);
        if !self.ended && self.ports.iter().all(Port::has_ended) {
            self.ended = true;
            context.out.push(Item::Watermark(Instant::AFTER_ALL));
        }
    }

    /// The port of the next step, and the order from which other ports come first.
    fn next(&self) -> Option<(usize, i64)> {
        let heads = self.ports.iter().enumerate();
        let heads = heads.filter_map(|(port, state)| Some((state.next()?, port)));
        let (order, port) = heads.clone().min()?;
        let limit = self.ports.iter().map(Port::limit).min()?;
        if order >= limit && !self.ports.iter().all(Port::has_ended) {
            return None;
        }
        let others = heads.filter(|&(_, other)| other != port);
        let until = others.map(|(order, _)| order).min();
        Some((port, until.map_or(limit, |until| until.min(limit))))
    }

    /// Assigns `lane` of a stream to `key`.
    fn name(&mut self, port: usize, lane: u32, key: Arc<[u8]>, out: &mut OutputBuilder) {
        let to = match self.lane_of_key.get(&key) {
            Some(known) => *known,
            None => self.open(key, out),
        };
        let Some(before) = self.ports[port].name(lane, to) else {
            return;
        };
        if let Some(lane) = &mut self.lanes[to as usize] {
            lane.stream_lanes += 1;
        }
        self.schedule(to);
        if let Some(before) = before
            && let Some(lane) = &mut self.lanes[before as usize]
        {
            lane.stream_lanes -= 1;
            self.schedule(before);
        }
    }

    fn open(&mut self, key: Arc<[u8]>, out: &mut OutputBuilder) -> u32 {
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() as u32 - 1
        });
        self.lanes[number as usize] = Some(Lane::new(key.clone(), self.floors.len()));
        self.lane_of_key.insert(key.clone(), number);
        out.lanes.push_name(&LaneName {
            after: 0,
            lane: number,
            key,
        });
        number
    }

    fn rows(&mut self, port: usize, lane: u32, rows: Chunk, context: &mut Context<'_>) {
        let number = self.ports[port].lane_of_rows(lane, &rows);
        let side = self.ports[port].side;
        if let Some(lane) = &mut self.lanes[number as usize] {
            lane.rows(side, rows, &self.make, &self.floors, context);
        }
        self.schedule(number);
    }

    /// Advances the watermark of one key in one stream.
    fn advance_lane(
        &mut self,
        port: usize,
        lane: u32,
        watermark: i64,
        out: &mut OutputBuilder,
        context: &mut Context<'_>,
    ) {
        let Some(number) = self.ports[port].lane_of_watermark(lane, watermark) else {
            return;
        };
        let (side, floors) = (self.ports[port].side, &self.floors);
        let Some(lane) = &mut self.lanes[number as usize] else {
            return;
        };
        lane.watermarks[side] = lane.watermarks[side].max(watermark);
        lane.advance(floors, |rows| out.rows(number, rows), context);
        let watermark = lane.watermark(floors);
        if watermark > lane.emitted_watermark.max(self.floor) {
            lane.emitted_watermark = watermark;
            out.push_watermark(Some(number), watermark);
        }
        self.schedule(number);
    }

    /// Advances the floor of one stream.
    fn advance_floor(
        &mut self,
        port: usize,
        floor: i64,
        out: &mut OutputBuilder,
        context: &mut Context<'_>,
    ) {
        let port = &mut self.ports[port];
        port.floor = port.floor.max(floor);
        let side = port.side;
        self.update_floor(side);
        let floor = self.floors.iter().copied().min();
        let Some(floor) = floor.filter(|floor| *floor > self.floor) else {
            return;
        };
        self.floor = floor;
        while let Some(&(time, number)) = self.next_due.first()
            && time < floor
        {
            if let Some(lane) = &mut self.lanes[number as usize] {
                lane.advance(&self.floors, |rows| out.rows(number, rows), context);
            }
            self.schedule(number);
            self.release_lane(number);
            debug_assert_ne!(
                self.next_due.first(),
                Some(&(time, number)),
                "it has been done"
            );
        }
        out.push_watermark(None, floor);
    }

    fn update_floor(&mut self, side: usize) {
        let ports = self.ports.iter().filter(|port| port.side == side);
        self.floors[side] = ports.map(|port| port.floor).min().unwrap_or(i64::MAX);
    }

    /// Updates when a lane must be visited.
    fn schedule(&mut self, number: u32) {
        let Some(lane) = &mut self.lanes[number as usize] else {
            return;
        };
        let next_due = lane.next_due(self.retention);
        if next_due == lane.next_due {
            return;
        }
        if let Some(time) = std::mem::replace(&mut lane.next_due, next_due) {
            self.next_due.remove(&(time, number));
        }
        self.next_due.extend(next_due.map(|time| (time, number)));
    }

    /// Frees the number of a lane if no operator can have state for its key.
    fn release_lane(&mut self, number: u32) {
        let slot = &mut self.lanes[number as usize];
        let done = |lane: &mut Lane| lane.is_finished(self.retention, self.floor);
        if let Some(lane) = slot.take_if(done) {
            self.lane_of_key.remove(&lane.key);
            if let Some(time) = lane.next_due {
                self.next_due.remove(&(time, number));
            }
            self.free.insert(number);
        }
    }
}

/// Builds the result chunks.
struct OutputBuilder {
    width: usize,
    parts: Vec<Chunk>,
    /// (part, row)
    rows: Vec<(u32, u32)>,
    lanes: ChunkLanes,
}

impl OutputBuilder {
    fn new(width: usize) -> OutputBuilder {
        OutputBuilder {
            width,
            parts: Vec::new(),
            rows: Vec::new(),
            lanes: ChunkLanes::default(),
        }
    }

    fn rows(&mut self, lane: u32, rows: Chunk) {
        let part = self.parts.len() as u32;
        let count = rows.rows() as u32;
        self.rows.extend((0..count).map(|row| (part, row)));
        self.lanes.of_row.extend((0..count).map(|_| lane));
        self.parts.push(rows);
    }

    fn push_watermark(&mut self, lane: Option<u32>, watermark: i64) {
        self.lanes.watermarks.push(LaneWatermark {
            before_row: self.rows.len(),
            lane,
            watermark: Instant::from_ticks(watermark),
        });
    }

    fn seal_if_full(&mut self, context: &mut Context<'_>) {
        if self.rows.len() >= CHUNK_ROWS {
            self.seal(context);
        }
    }

    fn seal(&mut self, context: &mut Context<'_>) {
        if self.rows.is_empty() && !self.lanes.has_updates() {
            return;
        }
        let out = std::mem::replace(self, OutputBuilder::new(self.width));
        let mut parts: Vec<&Chunk> = out.parts.iter().collect();
        let columns = (0..self.width).map(|_| ColumnBuilder::default().finish());
        let empty = Chunk::new(Vec::new().into(), columns.collect());
        if parts.is_empty() {
            parts.push(&empty);
        }
        let mut chunk = Chunk::interleave(&parts, &out.rows);
        chunk.lanes = Some(out.lanes);
        context.out.push(Item::Rows(chunk));
    }
}

impl Operator for SubstreamJoin {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.ports[port].rows(chunk),
            Item::Watermark(watermark) => self.ports[port].watermark(watermark),
            Item::PartialPanes(_) => unreachable!("rows meet, never shares"),
        }
        self.run(context);
    }

    fn state_bytes(&self) -> usize {
        let lanes = self.lanes.iter().flatten().map(Lane::state_bytes);
        let ports = self.ports.iter().map(Port::state_bytes);
        lanes.chain(ports).sum()
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        self.ports.iter().for_each(|port| port.snapshot(out));
        out.i64(self.floor);
        out.u8(self.ended.into());
        out.count(self.lanes.len());
        for lane in &self.lanes {
            out.u8(lane.is_some().into());
            lane.iter().for_each(|lane| lane.snapshot(out));
        }
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for port in &mut self.ports {
            port.restore(from)?;
        }
        self.floor = from.i64()?;
        self.ended = from.u8()? != 0;
        self.lanes.clear();
        self.free.clear();
        self.lane_of_key.clear();
        self.next_due.clear();
        for port in 0..self.ports.len() {
            self.update_floor(self.ports[port].side);
        }
        for number in 0..from.count()? as u32 {
            let lane = match from.u8()? {
                0 => None,
                _ => Some(Lane::restore(self.floors.len(), &self.make, from)?),
            };
            match &lane {
                None => drop(self.free.insert(number)),
                Some(lane) => drop(self.lane_of_key.insert(lane.key.clone(), number)),
            }
            self.lanes.push(lane);
            self.schedule(number);
        }
        let known = |to: u32| matches!(self.lanes.get(to as usize), Some(Some(_)));
        if !self.ports.iter().all(|port| port.targets().all(known)) {
            return Err(DecodeError::Invalid("a lane leads nowhere"));
        }
        Ok(())
    }
}
