//! Puts a partition's chunks into event-time order.
//!
//! `highwater-time` decides which event comes out when, and knows events only by number. This is the other half: it keeps
//! the chunks that the numbers stand for and cuts or gathers them into ordered chunks. Events that are in order already,
//! the common case, leave as slices of the chunk they came in.

use std::collections::VecDeque;

use highwater_engine::{CHUNK_ROWS, Chunk, Item, Lanes};
use highwater_time::{
    Arrivals, Clock, Counts, Duration, Events, Fate, Instant, Keys, LaneMark, LaneReleased, Policy,
    Released, Substreams, Timeline,
};

pub(crate) struct Orderer {
    time: Time,
    held: Held,
}

enum Time {
    One {
        timeline: Box<Timeline>,
        released: Released,
    },
    PerKey {
        substreams: Box<Substreams>,
        released: LaneReleased,
    },
}

/// Events of a chunk about to be put in order. The times of the chunk itself are not looked at.
pub(crate) struct Incoming<'a> {
    pub chunk: Chunk,
    pub times: &'a [Instant],
    pub arrivals: Arrivals<'a>,
    /// Substream keys, where the input has them.
    pub keys: Option<Keys<'a>>,
}

impl Orderer {
    pub fn new(policy: Policy, clock: Clock) -> Orderer {
        let timeline = Box::new(Timeline::new(policy, clock));
        Orderer {
            time: Time::One {
                timeline,
                released: Released::default(),
            },
            held: Held::default(),
        }
    }

    /// `linger`: how long operators may keep state for a key after its last event.
    pub fn per_key(policy: Policy, linger: Duration) -> Orderer {
        let substreams = Box::new(Substreams::new(policy, linger));
        let time = Time::PerKey {
            substreams,
            released: LaneReleased::default(),
        };
        Orderer {
            time,
            held: Held::default(),
        }
    }

    pub fn counts(&self) -> &Counts {
        match &self.time {
            Time::One { timeline, .. } => timeline.counts(),
            Time::PerKey { substreams, .. } => substreams.counts(),
        }
    }

    /// Judges the events and appends what is in order now to `out`. Fates name events by their place in the stream.
    pub fn push(
        &mut self,
        incoming: Incoming<'_>,
        fates: Option<&mut Vec<Fate>>,
        out: &mut Vec<Item>,
    ) {
        let first = self.held.next;
        let events = Events {
            first,
            times: incoming.times,
            arrivals: incoming.arrivals,
        };
        let kept_before = self.counts().kept;
        match (&mut self.time, incoming.keys) {
            (Time::One { timeline, .. }, _) => match fates {
                Some(fates) => timeline.push(events, fates),
                None => timeline.push(events, &mut ()),
            },
            (
                Time::PerKey {
                    substreams,
                    released,
                },
                Some(keys),
            ) => match fates {
                Some(fates) => substreams.push(events, &keys, released, fates),
                None => substreams.push(events, &keys, released, &mut ()),
            },
            (Time::PerKey { .. }, None) => unreachable!("an input with substreams has keys"),
        }
        let kept = self.counts().kept - kept_before;
        self.held.add(incoming.chunk, kept as usize);
        self.release(out);
    }

    /// Time has come to at least this arrival without an event.
    pub fn punctuate(&mut self, arrival: Instant, out: &mut Vec<Item>) {
        match &mut self.time {
            Time::One { timeline, .. } => timeline.punctuate(arrival),
            Time::PerKey {
                substreams,
                released,
            } => substreams.punctuate(arrival, released),
        }
        self.release(out);
    }

    pub fn end(&mut self, out: &mut Vec<Item>) {
        match &mut self.time {
            Time::One { timeline, .. } => timeline.end(),
            Time::PerKey {
                substreams,
                released,
            } => substreams.end(released),
        }
        self.release(out);
        if matches!(self.time, Time::PerKey { .. }) {
            out.push(Item::Watermark(Instant::AFTER_ALL));
        }
    }

    fn release(&mut self, out: &mut Vec<Item>) {
        match &mut self.time {
            Time::One { timeline, released } => {
                timeline.release(released);
                self.held.take(&released.rows, &released.times, out);
                released.clear();
                out.push(Item::Watermark(timeline.watermark()));
            }
            Time::PerKey { released, .. } => {
                let from = out.len();
                self.held.take(&released.rows, &released.times, out);
                attach_lanes(&mut out[from..], released);
                if out.len() == from && !released.marks.is_empty() {
                    out.extend(self.held.empty(released));
                }
                released.clear();
            }
        }
    }
}

/// Gives the chunks just released their lanes and the marks between their rows.
fn attach_lanes(items: &mut [Item], released: &LaneReleased) {
    let (mut row, mut mark) = (0, 0);
    let count = items.len();
    for (index, item) in items.iter_mut().enumerate() {
        let Item::Rows(chunk) = item else { continue };
        let end = row + chunk.rows();
        let last = index + 1 == count;
        let marks = released.marks[mark..]
            .iter()
            .take_while(|m| last || m.before < end)
            .count();
        let lanes = Lanes {
            of_row: released.lanes[row..end].to_vec(),
            marks: released.marks[mark..mark + marks]
                .iter()
                .map(|m| LaneMark {
                    before: m.before - row,
                    ..*m
                })
                .collect(),
            names: Vec::new(),
        };
        chunk.lanes = Some(lanes);
        mark += marks;
        row = end;
    }
}

/// Chunks with events that have not been released yet.
#[derive(Default)]
struct Held {
    chunks: VecDeque<HeldChunk>,
    /// The number of the next event.
    next: u64,
    /// A chunk without rows, in the shape of the others.
    shape: Option<Chunk>,
}

struct HeldChunk {
    first: u64,
    chunk: Chunk,
    /// How many of its events have yet to leave.
    waiting: usize,
}

impl Held {
    fn add(&mut self, chunk: Chunk, waiting: usize) {
        if self.shape.is_none() {
            self.shape = Some(slice(&chunk, 0, 0, &[]));
        }
        let first = self.next;
        self.next += chunk.rows() as u64;
        if waiting > 0 {
            self.chunks.push_back(HeldChunk {
                first,
                chunk,
                waiting,
            });
        }
    }

    fn empty(&self, released: &LaneReleased) -> Option<Item> {
        let mut chunk = self.shape.clone()?;
        chunk.lanes = Some(Lanes {
            of_row: Vec::new(),
            marks: released.marks.clone(),
            names: Vec::new(),
        });
        Some(Item::Rows(chunk))
    }

    /// Appends the named events as ordered chunks.
    fn take(&mut self, rows: &[u64], times: &[Instant], out: &mut Vec<Item>) {
        let mut from = 0;
        while from < rows.len() {
            let to = match self.whole_run(&rows[from..]) {
                Some(run) => {
                    let held = &self.chunks[self.place(rows[from])];
                    let start = (rows[from] - held.first) as usize;
                    let piece = slice(&held.chunk, start, run, &times[from..from + run]);
                    out.push(Item::Rows(piece));
                    from + run
                }
                None => {
                    let to = (from + CHUNK_ROWS).min(rows.len());
                    out.push(Item::Rows(self.gather(&rows[from..to], &times[from..to])));
                    to
                }
            };
            self.leave(&rows[from..to]);
            from = to;
        }
    }

    /// How many of the next events follow each other in one chunk, if that is most of what could.
    fn whole_run(&self, rows: &[u64]) -> Option<usize> {
        let held = &self.chunks[self.place(rows[0])];
        let limit = rows
            .len()
            .min((held.first + held.chunk.rows() as u64 - rows[0]) as usize);
        let run = rows[..limit]
            .iter()
            .zip(rows[0]..)
            .take_while(|(row, next)| **row == *next)
            .count();
        (run == limit && (run >= CHUNK_ROWS / 8 || run == rows.len())).then_some(run)
    }

    fn gather(&self, rows: &[u64], times: &[Instant]) -> Chunk {
        let chunks: Vec<&Chunk> = self.chunks.iter().map(|held| &held.chunk).collect();
        let mut place = self.place(rows[0]);
        let places: Vec<(u32, u32)> = rows
            .iter()
            .map(|&row| {
                let held = &self.chunks[place];
                if row < held.first || row >= held.first + held.chunk.rows() as u64 {
                    place = self.place(row);
                }
                (place as u32, (row - self.chunks[place].first) as u32)
            })
            .collect();
        let mut chunk = Chunk::interleave(&chunks, &places);
        chunk.times = times.iter().map(|time| time.ticks()).collect();
        chunk
    }

    fn place(&self, row: u64) -> usize {
        self.chunks.partition_point(|held| held.first <= row) - 1
    }

    fn leave(&mut self, rows: &[u64]) {
        let mut rest = rows;
        while let Some(&row) = rest.first() {
            let place = self.place(row);
            let held = &mut self.chunks[place];
            let range = held.first..held.first + held.chunk.rows() as u64;
            let run = rest.iter().take_while(|row| range.contains(row)).count();
            held.waiting -= run;
            rest = &rest[run..];
        }
        self.chunks.retain(|held| held.waiting > 0);
    }
}

fn slice(chunk: &Chunk, start: usize, len: usize, times: &[Instant]) -> Chunk {
    Chunk {
        times: times.iter().map(|time| time.ticks()).collect(),
        columns: chunk
            .columns
            .iter()
            .map(|column| column.slice(start, len))
            .collect(),
        lanes: None,
        origins: chunk
            .origins
            .as_ref()
            .map(|origins| origins.slice(start, len)),
    }
}
