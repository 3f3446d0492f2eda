//! Streams of substreams brought together: JOIN and UNION where every key has a clock of its own.
//!
//! Each key is joined (or merged) for itself, by an ordinary operator that knows nothing of lanes. It is told how far
//! its key has come in each stream: as far as the lane of the key there, or as far as the floor, whichever is later. A
//! stream that has never shown the key holds its results up until the floor has passed them and no longer.
//!
//! Results have lanes again, numbered here, so that what follows goes by the clock of the key too: the earliest of its
//! clocks in the streams. Everything happens in the fixed sequence that [`port`] makes of the streams.

mod lane;
mod named;
mod port;

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use super::{Context, Item, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk, LaneName, Lanes};
use crate::column::ColumnBuilder;
use lane::Lane;
pub(crate) use named::Named;
use port::{Port, Step};

/// What is done for each key: an operator over streams without lanes.
pub(crate) trait Member: Operator {
    /// The time that must have passed before it has something to emit or forget; nothing if it holds nothing.
    fn wakes(&self) -> Option<i64>;
}

type Make = Box<dyn Fn() -> Box<dyn Member> + Send>;

pub(crate) struct Meeting {
    make: Make,
    ports: Vec<Port>,
    /// The floor of each side: that of the stream of it which is furthest behind.
    floors: Vec<i64>,
    /// How many columns results have.
    width: usize,
    /// How long operators that follow may hold on to a row.
    linger: i64,
    lanes: Vec<Option<Lane>>,
    free: BTreeSet<u32>,
    of_key: HashMap<Arc<[u8]>, u32, FixedState>,
    /// When lanes must be looked at again, by time and lane.
    wakes: BTreeSet<(i64, u32)>,
    /// No lane of any stream stands below this.
    floor: i64,
    ended: bool,
}

impl Meeting {
    /// `sides` says for each port which input of the operators that `make` makes it feeds.
    pub fn new(
        sides: &[usize],
        width: usize,
        linger: i64,
        make: impl Fn() -> Box<dyn Member> + Send + 'static,
    ) -> Meeting {
        Meeting {
            make: Box::new(make),
            ports: sides.iter().map(|&side| Port::new(side)).collect(),
            floors: vec![i64::MIN; sides.iter().max().map_or(0, |last| last + 1)],
            width,
            linger,
            lanes: Vec::new(),
            free: BTreeSet::new(),
            of_key: HashMap::default(),
            wakes: BTreeSet::new(),
            floor: i64::MIN,
            ended: false,
        }
    }

    /// Takes every step that no stream can come before any more.
    fn run(&mut self, context: &mut Context<'_>) {
        let mut out = Out::new(self.width);
        while let Some((port, until)) = self.next() {
            match self.ports[port].take(until) {
                Some(Step::Name { lane, key }) => self.name(port, lane, key, &mut out),
                Some(Step::Rows { lane, rows }) => self.rows(port, lane, rows, context),
                Some(Step::Mark {
                    lane: None,
                    watermark,
                }) => self.rise(port, watermark, &mut out, context),
                Some(Step::Mark {
                    lane: Some(lane),
                    watermark,
                }) => self.lane_rose(port, lane, watermark, &mut out, context),
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

    /// The port that comes next, and the order at which it must let others come first.
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

    /// From now on `lane` of a stream stands for `key`.
    fn name(&mut self, port: usize, lane: u32, key: Arc<[u8]>, out: &mut Out) {
        let to = match self.of_key.get(&key) {
            Some(known) => *known,
            None => self.open(key, out),
        };
        let Some(before) = self.ports[port].name(lane, to) else {
            return;
        };
        if let Some(lane) = &mut self.lanes[to as usize] {
            lane.named += 1;
        }
        self.schedule(to);
        if let Some(before) = before
            && let Some(lane) = &mut self.lanes[before as usize]
        {
            lane.named -= 1;
            self.schedule(before);
        }
    }

    fn open(&mut self, key: Arc<[u8]>, out: &mut Out) -> u32 {
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() as u32 - 1
        });
        self.lanes[number as usize] = Some(Lane::new(key.clone(), self.floors.len()));
        self.of_key.insert(key.clone(), number);
        out.lanes.name(&LaneName {
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

    /// The clock of one key rose in one stream.
    fn lane_rose(
        &mut self,
        port: usize,
        lane: u32,
        watermark: i64,
        out: &mut Out,
        context: &mut Context<'_>,
    ) {
        let Some(number) = self.ports[port].lane_of_mark(lane, watermark) else {
            return;
        };
        let (side, floors) = (self.ports[port].side, &self.floors);
        let Some(lane) = &mut self.lanes[number as usize] else {
            return;
        };
        lane.clocks[side] = lane.clocks[side].max(watermark);
        lane.advance(floors, |rows| out.rows(number, rows), context);
        let stands = lane.stands(floors);
        if stands > lane.shown.max(self.floor) {
            lane.shown = stands;
            out.mark(Some(number), stands);
        }
        self.schedule(number);
    }

    /// The floor of one stream rose.
    fn rise(&mut self, port: usize, floor: i64, out: &mut Out, context: &mut Context<'_>) {
        let port = &mut self.ports[port];
        port.floor = port.floor.max(floor);
        let side = port.side;
        self.find_floor(side);
        let floor = self.floors.iter().copied().min();
        let Some(floor) = floor.filter(|floor| *floor > self.floor) else {
            return;
        };
        self.floor = floor;
        while let Some(&(time, number)) = self.wakes.first()
            && time < floor
        {
            if let Some(lane) = &mut self.lanes[number as usize] {
                lane.advance(&self.floors, |rows| out.rows(number, rows), context);
            }
            self.schedule(number);
            self.retire(number);
            debug_assert_ne!(
                self.wakes.first(),
                Some(&(time, number)),
                "it has been done"
            );
        }
        out.mark(None, floor);
    }

    fn find_floor(&mut self, side: usize) {
        let ports = self.ports.iter().filter(|port| port.side == side);
        self.floors[side] = ports.map(|port| port.floor).min().unwrap_or(i64::MAX);
    }

    /// Notes when a lane must be looked at again.
    fn schedule(&mut self, number: u32) {
        let Some(lane) = &mut self.lanes[number as usize] else {
            return;
        };
        let wakes = lane.wakes(self.linger);
        if wakes == lane.wakes {
            return;
        }
        if let Some(time) = std::mem::replace(&mut lane.wakes, wakes) {
            self.wakes.remove(&(time, number));
        }
        self.wakes.extend(wakes.map(|time| (time, number)));
    }

    /// Gives the number of a lane back, if nobody can hold anything for its key any more.
    fn retire(&mut self, number: u32) {
        let slot = &mut self.lanes[number as usize];
        let done = |lane: &mut Lane| lane.is_done(self.linger, self.floor);
        if let Some(lane) = slot.take_if(done) {
            self.of_key.remove(&lane.key);
            if let Some(time) = lane.wakes {
                self.wakes.remove(&(time, number));
            }
            self.free.insert(number);
        }
    }
}

/// Results on their way out.
struct Out {
    width: usize,
    parts: Vec<Chunk>,
    /// (part, row)
    rows: Vec<(u32, u32)>,
    lanes: Lanes,
}

impl Out {
    fn new(width: usize) -> Out {
        Out {
            width,
            parts: Vec::new(),
            rows: Vec::new(),
            lanes: Lanes::default(),
        }
    }

    fn rows(&mut self, lane: u32, rows: Chunk) {
        let part = self.parts.len() as u32;
        let count = rows.rows() as u32;
        self.rows.extend((0..count).map(|row| (part, row)));
        self.lanes.of_row.extend((0..count).map(|_| lane));
        self.parts.push(rows);
    }

    fn mark(&mut self, lane: Option<u32>, watermark: i64) {
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
        if self.rows.is_empty() && !self.lanes.has_news() {
            return;
        }
        let out = std::mem::replace(self, Out::new(self.width));
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

impl Operator for Meeting {
    fn push(&mut self, port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.ports[port].rows(chunk),
            Item::Watermark(watermark) => self.ports[port].watermark(watermark),
            Item::Shares(_) => unreachable!("rows meet, never shares"),
        }
        self.run(context);
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
        self.of_key.clear();
        self.wakes.clear();
        for port in 0..self.ports.len() {
            self.find_floor(self.ports[port].side);
        }
        for number in 0..from.count()? as u32 {
            let lane = match from.u8()? {
                0 => None,
                _ => Some(Lane::restore(self.floors.len(), &self.make, from)?),
            };
            match &lane {
                None => drop(self.free.insert(number)),
                Some(lane) => drop(self.of_key.insert(lane.key.clone(), number)),
            }
            self.lanes.push(lane);
            self.schedule(number);
        }
        let known = |to: u32| matches!(self.lanes.get(to as usize), Some(Some(_)));
        if !self.ports.iter().all(|port| port.named().all(known)) {
            return Err(DecodeError::Invalid("a lane leads nowhere"));
        }
        Ok(())
    }
}
