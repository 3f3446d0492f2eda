//! One of the streams that meet, as a sequence of steps: rows, clock movements and names of lanes.
//!
//! The sequence of each stream is fixed by its events. To make one fixed sequence of several, every step has an *order*,
//! the largest time that its stream has shown up to it, and steps are taken by order, then by port. A step waits until
//! every other stream has shown something later, so it never matters which of them was faster.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::{Instant, LaneWatermark};

use crate::chunk::{Chunk, LaneName, Lanes};
use crate::codec::{ReadValue, WriteValue};
use crate::column::{Column, ColumnBuilder};

#[derive(Debug)]
pub(super) struct Port {
    /// Which input of the operator behind it is fed from here.
    pub side: usize,
    /// No lane stands below this.
    pub floor: i64,
    lanes: HashMap<u32, Leads, FixedState>,
    held: VecDeque<Held>,
    /// The order of the last step taken.
    taken: i64,
    /// The largest time shown.
    reached: i64,
    ended: bool,
}

/// Where a lane of the stream leads.
#[derive(Clone, Copy, Debug)]
struct Leads {
    /// The lane of the meeting.
    to: u32,
    /// The latest time that it has shown here.
    latest: i64,
}

#[derive(Debug)]
struct Held {
    chunk: Chunk,
    lanes: Lanes,
    row: usize,
    next_watermark: usize,
    name: usize,
}

/// What a stream shows next.
pub(super) enum Step {
    Name {
        lane: u32,
        key: Arc<[u8]>,
    },
    Mark {
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
    pub fn new(side: usize) -> Port {
        Port {
            side,
            floor: i64::MIN,
            lanes: HashMap::default(),
            held: VecDeque::new(),
            taken: i64::MIN,
            reached: i64::MIN,
            ended: false,
        }
    }

    pub fn rows(&mut self, mut chunk: Chunk) {
        let lanes = chunk.lanes.take().unwrap_or_default();
        debug_assert_eq!(lanes.of_row.len(), chunk.rows(), "every row has a lane");
        let times = chunk.times.iter().copied();
        let watermarks = lanes.watermarks.iter().map(|mark| mark.watermark.ticks());
        self.reached = times.chain(watermarks).fold(self.reached, i64::max);
        if chunk.rows() > 0 || lanes.has_news() {
            self.held.push_back(Held::new(chunk, lanes));
        }
    }

    /// The whole stream has passed `watermark`.
    pub fn watermark(&mut self, watermark: Instant) {
        self.ended |= watermark == Instant::AFTER_ALL;
        let mark = LaneWatermark {
            before_row: 0,
            lane: None,
            watermark,
        };
        let mut chunk = Chunk::new(Vec::new().into(), Vec::new());
        chunk.lanes = Some(Lanes {
            watermarks: vec![mark],
            ..Lanes::default()
        });
        self.rows(chunk);
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Steps from this order on may have to wait for what this stream shows later.
    pub fn limit(&self) -> i64 {
        match self.ended {
            true => i64::MAX,
            false => self.reached,
        }
    }

    /// The order of the next step.
    pub fn next(&self) -> Option<i64> {
        let time = match self.held.front()?.next() {
            Next::Name => i64::MIN,
            Next::Watermark(mark) => mark.watermark.ticks(),
            Next::Row(time) => time,
        };
        Some(self.taken.max(time))
    }

    /// Takes the next step. Rows of one lane that follow each other are taken together, up to the order `until`.
    pub fn take(&mut self, until: i64) -> Option<Step> {
        self.taken = self.next()?;
        let held = self.held.front_mut()?;
        let step = match held.next() {
            Next::Name => held.take_name(),
            Next::Watermark(mark) => {
                held.next_watermark += 1;
                Step::Mark {
                    lane: mark.lane,
                    watermark: mark.watermark.ticks(),
                }
            }
            Next::Row(_) => held.take_rows(&mut self.taken, until),
        };
        if held.is_done() {
            self.held.pop_front();
        }
        Some(step)
    }

    /// From now on a lane of the stream leads to a lane of the meeting. Says where it led before, if that is news.
    pub fn name(&mut self, lane: u32, to: u32) -> Option<Option<u32>> {
        let before = self.lanes.get(&lane).map(|leads| leads.to);
        if before == Some(to) {
            return None;
        }
        let latest = i64::MIN;
        self.lanes.insert(lane, Leads { to, latest });
        Some(before)
    }

    /// Where the rows of a lane go.
    pub fn lane_of_rows(&mut self, lane: u32, rows: &Chunk) -> u32 {
        let Some(leads) = self.lanes.get_mut(&lane) else {
            unreachable!("a lane has a name before it has rows")
        };
        leads.latest = rows.times.iter().copied().fold(leads.latest, i64::max);
        leads.to
    }

    /// Where a movement of the clock of a lane goes: nowhere, if it may be the clock of another key already. A key may
    /// lose its lane once the floor has passed all it has shown, and the next one moves its clock before its first row.
    pub fn lane_of_mark(&mut self, lane: u32, watermark: i64) -> Option<u32> {
        let floor = self.floor;
        let leads = self.lanes.get_mut(&lane)?;
        if leads.latest <= floor {
            return None;
        }
        leads.latest = leads.latest.max(watermark);
        Some(leads.to)
    }

    /// The lanes of the meeting that lanes of the stream lead to.
    pub fn named(&self) -> impl Iterator<Item = u32> {
        self.lanes.values().map(|leads| leads.to)
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        for time in [self.floor, self.taken, self.reached] {
            out.i64(time);
        }
        out.u8(self.ended.into());
        let mut lanes: Vec<_> = self.lanes.iter().collect();
        lanes.sort_unstable_by_key(|(lane, _)| **lane);
        out.count(lanes.len());
        for (lane, leads) in lanes {
            out.u32(*lane);
            out.u32(leads.to);
            out.i64(leads.latest);
        }
        out.count(self.held.len());
        self.held.iter().for_each(|held| held.snapshot(out));
    }

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.floor = from.i64()?;
        self.taken = from.i64()?;
        self.reached = from.i64()?;
        self.ended = from.u8()? != 0;
        self.lanes.clear();
        for _ in 0..from.count()? {
            let lane = from.u32()?;
            let (to, latest) = (from.u32()?, from.i64()?);
            self.lanes.insert(lane, Leads { to, latest });
        }
        self.held.clear();
        for _ in 0..from.count()? {
            self.held.push_back(Held::restore(from)?);
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

impl Held {
    fn new(chunk: Chunk, lanes: Lanes) -> Held {
        Held {
            chunk,
            lanes,
            row: 0,
            next_watermark: 0,
            name: 0,
        }
    }

    fn is_done(&self) -> bool {
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

    fn restore(from: &mut Reader<'_>) -> Result<Held, DecodeError> {
        let width = from.count()?;
        let mut columns: Vec<ColumnBuilder> = (0..width).map(|_| Default::default()).collect();
        let (mut times, mut lanes) = (Vec::new(), Lanes::default());
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
        Ok(Held::new(Chunk::new(times.into(), columns), lanes))
    }
}
