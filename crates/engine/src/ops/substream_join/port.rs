//! One input stream of a substream join, as a sequence of steps: rows, watermarks and lane names.
//!
//! The events of a stream determine its sequence. To combine several streams deterministically, every step has an
//! *order*, the maximum time in its stream so far, and steps are processed by order, then by port. A step waits until
//! every other stream is past its order, so the speed of the streams does not matter.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use crate::chunk::{Chunk, ChunkLanes, LaneName};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};

#[derive(Debug)]
pub(super) struct Port {
    /// The input of the per-key operators that this stream feeds.
    pub side: usize,
    /// The lower bound on the watermark of every lane.
    pub floor: i64,
    lanes: HashMap<u32, LaneTarget, FixedState>,
    pending: VecDeque<PendingChunk>,
    /// The order of the last step taken.
    taken: i64,
    /// The maximum time so far.
    reached: i64,
    ended: bool,
}

/// The join lane of a lane of the stream.
#[derive(Clone, Copy, Debug)]
struct LaneTarget {
    /// The lane of the join.
    to: u32,
    /// The maximum time of the lane in this stream.
    latest: i64,
}

#[derive(Debug)]
struct PendingChunk {
    chunk: Chunk,
    lanes: ChunkLanes,
    row: usize,
    next_watermark: usize,
    name: usize,
}

/// The next step of a stream.
pub(super) enum Step {
    Name {
        lane: u32,
        key: Arc<[u8]>,
    },
    Watermark {
        lane: Option<u32>,
        watermark: i64,
    },
    /// Rows of one lane, one after the other.
    Rows {
        lane: u32,
        rows: Chunk,
    },
}

impl Port {
    pub(super) fn new(side: usize) -> Port {
        Port {
            side,
            floor: i64::MIN,
            lanes: HashMap::default(),
            pending: VecDeque::new(),
            taken: i64::MIN,
            reached: i64::MIN,
            ended: false,
        }
    }

    pub(super) fn rows(&mut self, mut chunk: Chunk) {
        let lanes = chunk.lanes.take().unwrap_or_default();
        debug_assert_eq!(lanes.of_row.len(), chunk.rows(), "every row has a lane");
        let times = chunk.times.iter().copied();
        let watermarks = lanes.watermarks.iter().map(|mark| mark.watermark.ticks());
        self.reached = times.chain(watermarks).fold(self.reached, i64::max);
        if chunk.rows() > 0 || lanes.has_updates() {
            self.pending.push_back(PendingChunk::new(chunk, lanes));
        }
    }

    /// Advances all lanes of the stream.
    pub(super) fn watermark(&mut self, watermark: Instant) {
        self.ended |= watermark == Instant::AFTER_ALL;
        let mark = LaneWatermark {
            before_row: 0,
            lane: None,
            watermark,
        };
        let mut chunk = Chunk::new(Vec::new().into(), Vec::new());
        chunk.lanes = Some(ChunkLanes {
            watermarks: vec![mark],
            ..ChunkLanes::default()
        });
        self.rows(chunk);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Steps from this order on may have to wait for later input of this stream.
    pub(super) fn limit(&self) -> i64 {
        match self.ended {
            true => i64::MAX,
            false => self.reached,
        }
    }

    /// The order of the next step.
    pub(super) fn next(&self) -> Option<i64> {
        let time = match self.pending.front()?.next() {
            Next::Name => i64::MIN,
            Next::Watermark(mark) => mark.watermark.ticks(),
            Next::Row(time) => time,
        };
        Some(self.taken.max(time))
    }

    /// Takes the next step. Rows of one lane that follow each other are taken together, up to the order `until`.
    pub(super) fn take(&mut self, until: i64) -> Option<Step> {
        self.taken = self.next()?;
        let pending = self.pending.front_mut()?;
        let step = match pending.next() {
            Next::Name => pending.take_name(),
            Next::Watermark(mark) => {
                pending.next_watermark += 1;
                Step::Watermark {
                    lane: mark.lane,
                    watermark: mark.watermark.ticks(),
                }
            }
            Next::Row(_) => pending.take_rows(&mut self.taken, until),
        };
        if pending.is_finished() {
            self.pending.pop_front();
        }
        Some(step)
    }

    /// Assigns a lane of the stream to a lane of the join. `None` if it already was; otherwise its previous lane.
    pub(super) fn name(&mut self, lane: u32, to: u32) -> Option<Option<u32>> {
        let before = self.lanes.get(&lane).map(|target| target.to);
        if before == Some(to) {
            return None;
        }
        let latest = i64::MIN;
        self.lanes.insert(lane, LaneTarget { to, latest });
        Some(before)
    }

    /// The join lane of some rows.
    pub(super) fn lane_of_rows(&mut self, lane: u32, rows: &Chunk) -> u32 {
        let Some(target) = self.lanes.get_mut(&lane) else {
            unreachable!("a lane has a name before it has rows")
        };
        target.latest = rows.times.iter().copied().fold(target.latest, i64::max);
        target.to
    }

    /// The join lane of a watermark; `None` if the lane may already belong to another key. A key may lose its lane once
    /// the floor has passed all its times, and the next key has watermarks before its first row.
    pub(super) fn lane_of_watermark(&mut self, lane: u32, watermark: i64) -> Option<u32> {
        let floor = self.floor;
        let target = self.lanes.get_mut(&lane)?;
        if target.latest <= floor {
            return None;
        }
        target.latest = target.latest.max(watermark);
        Some(target.to)
    }

    /// The join lanes of all lanes of the stream.
    pub(super) fn targets(&self) -> impl Iterator<Item = u32> {
        self.lanes.values().map(|target| target.to)
    }

    pub(super) fn state_bytes(&self) -> usize {
        let pending = self.pending.iter();
        let pending = pending.map(|pending| pending.chunk.approximate_bytes());
        self.lanes.len() * size_of::<LaneTarget>() + pending.sum::<usize>()
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        for time in [self.floor, self.taken, self.reached] {
            out.i64(time);
        }
        out.u8(self.ended.into());
        let mut lanes: Vec<_> = self.lanes.iter().collect();
        lanes.sort_unstable_by_key(|(lane, _)| **lane);
        out.count(lanes.len());
        for (lane, target) in lanes {
            out.u32(*lane);
            out.u32(target.to);
            out.i64(target.latest);
        }
        out.count(self.pending.len());
        self.pending
            .iter()
            .for_each(|pending| pending.snapshot(out));
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.floor = from.i64()?;
        self.taken = from.i64()?;
        self.reached = from.i64()?;
        self.ended = from.u8()? != 0;
        self.lanes.clear();
        for _ in 0..from.count()? {
            let lane = from.u32()?;
            let (to, latest) = (from.u32()?, from.i64()?);
            self.lanes.insert(lane, LaneTarget { to, latest });
        }
        self.pending.clear();
        for _ in 0..from.count()? {
            self.pending.push_back(PendingChunk::restore(from)?);
        }
        Ok(())
    }
}

enum Next {
    Name,
    Watermark(LaneWatermark),
    /// A row of this time.
    Row(i64),
}

impl PendingChunk {
    fn new(chunk: Chunk, lanes: ChunkLanes) -> PendingChunk {
        PendingChunk {
            chunk,
            lanes,
            row: 0,
            next_watermark: 0,
            name: 0,
        }
    }

    fn is_finished(&self) -> bool {
        self.row == self.chunk.rows()
            && self.next_watermark == self.lanes.watermarks.len()
            && self.name == self.lanes.names.len()
    }

    fn next(&self) -> Next {
        let name = self.lanes.names.get(self.name);
        match self.lanes.watermarks.get(self.next_watermark) {
            _ if name.is_some_and(|name| name.after <= self.next_watermark) => Next::Name,
            Some(mark) if mark.before_row <= self.row => Next::Watermark(*mark),
            _ => Next::Row(self.chunk.times[self.row]),
        }
    }

    fn take_name(&mut self) -> Step {
        let LaneName { lane, key, .. } = self.lanes.names[self.name].clone();
        self.name += 1;
        Step::Name { lane, key }
    }

    fn take_rows(&mut self, order: &mut i64, until: i64) -> Step {
        let start = self.row;
        let lane = self.lanes.of_row[start];
        self.row += 1;
        while self.row < self.chunk.rows() && self.lanes.of_row[self.row] == lane {
            match self.next() {
                Next::Row(time) if time.max(*order) < until => *order = time.max(*order),
                _ => break,
            }
            self.row += 1;
        }
        let rows = self.chunk.slice(start, self.row - start);
        Step::Rows { lane, rows }
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        let rows = self.row..self.chunk.rows();
        let width = self.chunk.columns.len();
        out.count(if rows.is_empty() { 0 } else { width });
        out.count(rows.len());
        for row in rows {
            out.i64(self.chunk.times[row]);
            out.u32(self.lanes.of_row[row]);
            let columns = self.chunk.columns.iter();
            columns.for_each(|column| out.value(column.get(row)));
        }
        let watermarks = &self.lanes.watermarks[self.next_watermark..];
        out.count(watermarks.len());
        for mark in watermarks {
            out.count(mark.before_row.saturating_sub(self.row));
            out.u8(mark.lane.is_some().into());
            out.u32(mark.lane.unwrap_or_default());
            out.i64(mark.watermark.ticks());
        }
        let names = &self.lanes.names[self.name..];
        out.count(names.len());
        for name in names {
            out.count(name.after.saturating_sub(self.next_watermark));
            out.u32(name.lane);
            out.blob(&name.key);
        }
    }

    fn restore(from: &mut Reader<'_>) -> Result<PendingChunk, DecodeError> {
        let width = from.count()?;
        let mut columns = ColumnBuilder::of_width(width);
        let (mut times, mut lanes) = (Vec::new(), ChunkLanes::default());
        for _ in 0..from.count()? {
            times.push(from.i64()?);
            lanes.of_row.push(from.u32()?);
            for column in &mut columns {
                column.push_owned(from.value()?);
            }
        }
        for _ in 0..from.count()? {
            let before = from.u64()? as usize;
            let of_one = from.u8()? != 0;
            let lane = from.u32()?;
            lanes.watermarks.push(LaneWatermark {
                before_row: before,
                lane: of_one.then_some(lane),
                watermark: Instant::from_ticks(from.i64()?),
            });
        }
        for _ in 0..from.count()? {
            lanes.names.push(LaneName {
                after: from.u64()? as usize,
                lane: from.u32()?,
                key: from.blob()?.into(),
            });
        }
        let rows = times.len();
        if lanes.watermarks.iter().any(|mark| mark.before_row > rows)
            || lanes.names.iter().any(|n| n.after > lanes.watermarks.len())
        {
            return Err(DecodeError::Invalid("a clock moves after the last row"));
        }
        let columns: Vec<Column> = columns.into_iter().map(ColumnBuilder::finish).collect();
        Ok(PendingChunk::new(Chunk::new(times.into(), columns), lanes))
    }
}
