//! Puts a partition's chunks into event-time order.
//!
//! `highwater-time` decides which event comes out when, and knows events only by number; [`PendingChunks`] keeps the chunks that
//! the numbers stand for. This is where the two meet, and where rows get the lanes and watermarks of substreams.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::{Chunk, ChunkLanes, Item};
use highwater_time::{
    Arrivals, Duration, EventBatch, EventKeys, Instant, JudgedEvent, KeyList, LaneWatermark,
    ReleasedEvents, ReleasedLaneEvents, Substreams, TimeDomain, TimePolicy, Timeline,
    VerdictCounts, VerdictObserver,
};

use crate::pending_chunks::{PendingChunks, PendingChunksSnapshot};
use crate::substream_key::SubstreamKeyColumn;

pub(crate) struct Orderer {
    time: Time,
    pending: PendingChunks,
    /// The settings that the state was made with and does not hold itself.
    rules: (TimePolicy, TimeDomain, Duration),
}

/// The state of an [`Orderer`] at one moment, not yet encoded.
pub(crate) struct OrdererSnapshot {
    time: Vec<u8>,
    pending: PendingChunksSnapshot,
}

impl OrdererSnapshot {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.blob(&self.time);
        self.pending.write(out);
    }
}

enum Time {
    One {
        timeline: Box<Timeline>,
        released: ReleasedEvents,
    },
    PerKey {
        substreams: Box<Substreams>,
        released: ReleasedLaneEvents,
        key_column: SubstreamKeyColumn,
    },
}

/// Events of a chunk about to be put in order. The times of the chunk itself are ignored.
pub(crate) struct Incoming<'a> {
    pub chunk: Chunk,
    pub times: &'a [Instant],
    pub arrivals: Arrivals<'a>,
    /// Substream keys, where the input has them.
    pub keys: Option<EventKeys<'a>>,
}

impl Orderer {
    /// For chunks of `width` columns.
    pub fn new(policy: TimePolicy, clock: TimeDomain, width: usize) -> Orderer {
        let timeline = Box::new(Timeline::new(policy, clock));
        Orderer {
            time: Time::One {
                timeline,
                released: ReleasedEvents::default(),
            },
            pending: PendingChunks::new(width, false),
            rules: (policy, clock, Duration::ZERO),
        }
    }

    /// `linger`: how long operators may keep state for a key after its last event.
    pub fn per_key(
        policy: TimePolicy,
        linger: Duration,
        key_column: SubstreamKeyColumn,
        width: usize,
    ) -> Orderer {
        let substreams = Box::new(Substreams::new(policy, linger));
        let time = Time::PerKey {
            substreams,
            released: ReleasedLaneEvents::default(),
            key_column,
        };
        Orderer {
            time,
            pending: PendingChunks::new(width, true),
            rules: (policy, TimeDomain::EventTime, linger),
        }
    }

    /// No event will be given an earlier time than this.
    pub fn watermark(&self) -> Instant {
        match &self.time {
            Time::One { timeline, .. } => timeline.watermark(),
            Time::PerKey { substreams, .. } => substreams.floor(),
        }
    }

    /// The number that the next event will have.
    pub fn next(&self) -> u64 {
        self.pending.next()
    }

    /// How many events wait.
    pub fn waiting(&self) -> usize {
        self.pending.waiting()
    }

    /// The state at this moment.
    pub fn snapshot(&self) -> OrdererSnapshot {
        let mut time = Vec::new();
        let pending = match &self.time {
            Time::One { timeline, .. } => {
                timeline.snapshot(&mut time);
                self.pending.snapshot(&timeline.buffered_rows())
            }
            Time::PerKey { substreams, .. } => {
                substreams.snapshot(&mut time);
                self.pending.snapshot(&[])
            }
        };
        OrdererSnapshot { time, pending }
    }

    /// Reads what [`OrdererSnapshot::write`] wrote.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut state = Reader::new(from.blob()?);
        let (policy, clock, linger) = self.rules;
        match &mut self.time {
            Time::One { timeline, .. } => {
                **timeline = Timeline::restore(policy, clock, &mut state)?;
            }
            Time::PerKey {
                substreams,
                released,
                key_column,
            } => {
                **substreams = Substreams::restore(policy, linger, &mut state)?;
                released.keys = key_column.exists().then(KeyList::default);
            }
        }
        self.pending.restore(from)?;
        let waiting = match &self.time {
            Time::One { timeline, .. } => timeline.buffered(),
            Time::PerKey { substreams, .. } => substreams.buffered(),
        };
        match state.is_done() && waiting == self.pending.waiting() {
            true => Ok(()),
            false => Err(DecodeError::Invalid(
                "the clock and the pending chunks hold different events",
            )),
        }
    }

    pub fn counts(&self) -> &VerdictCounts {
        match &self.time {
            Time::One { timeline, .. } => timeline.counts(),
            Time::PerKey { substreams, .. } => substreams.counts(),
        }
    }

    /// Judges the events and appends those that are in order now to `out`. Fates name events by their number in the stream.
    pub fn push(
        &mut self,
        mut incoming: Incoming<'_>,
        fates: Option<&mut Fates>,
        out: &mut Vec<Item>,
    ) {
        let first = self.pending.next();
        let mut dropped = Dropped {
            rows: Vec::new(),
            fates: None,
        };
        let events = EventBatch {
            first_row: first,
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
                    key_column,
                },
                Some(keys),
            ) => {
                dropped.fates = fates;
                if key_column.strip(&mut incoming.chunk) {
                    released.keys.get_or_insert_default();
                }
                substreams.push(events, &keys, released, &mut dropped);
            }
            (Time::PerKey { .. }, None) => unreachable!("an input with substreams has keys"),
        }
        let kept = self.counts().kept - kept_before;
        self.pending
            .add(incoming.chunk, kept as usize, &dropped.rows);
        self.release(out);
    }

    /// Advances time to at least this arrival without an event.
    pub fn punctuate(&mut self, arrival: Instant, out: &mut Vec<Item>) {
        match &mut self.time {
            Time::One { timeline, .. } => timeline.punctuate(arrival),
            Time::PerKey {
                substreams,
                released,
                ..
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
                ..
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
                self.pending.take(&released.rows, &released.times, out);
                released.clear();
                out.push(Item::Watermark(timeline.watermark()));
            }
            Time::PerKey {
                released,
                key_column,
                ..
            } => {
                let from = out.len();
                self.pending.take(&released.rows, &released.times, out);
                attach_lanes(&mut out[from..], released, key_column);
                if out.len() == from && !released.watermarks.is_empty() {
                    out.push(self.pending.empty(released));
                }
                released.clear();
                self.pending.thin();
            }
        }
    }
}

/// The fates of events, named by their number in the stream.
#[derive(Default)]
pub(crate) struct Fates {
    /// Also of those that were on time.
    pub all: bool,
    pub seen: Vec<JudgedEvent>,
}

impl VerdictObserver for Fates {
    #[inline]
    fn on_verdict(&mut self, fate: JudgedEvent) {
        if self.all || !fate.verdict.on_time() {
            self.seen.push(fate);
        }
    }
}

/// Notes the events that will never be released, and passes fates on.
struct Dropped<'a> {
    rows: Vec<u64>,
    fates: Option<&'a mut Fates>,
}

impl VerdictObserver for Dropped<'_> {
    #[inline]
    fn on_verdict(&mut self, fate: JudgedEvent) {
        if !fate.verdict.kept() {
            self.rows.push(fate.row);
        }
        if let Some(fates) = &mut self.fates {
            fates.on_verdict(fate);
        }
    }
}

/// Gives the chunks just released their keys, their lanes and the watermarks between their rows.
fn attach_lanes(
    items: &mut [Item],
    released: &ReleasedLaneEvents,
    key_column: &SubstreamKeyColumn,
) {
    let (mut row, mut mark) = (0, 0);
    let count = items.len();
    for (index, item) in items.iter_mut().enumerate() {
        let Item::Rows(chunk) = item else { continue };
        if let Some(keys) = &released.keys {
            key_column.restore(chunk, keys, row);
        }
        let end = row + chunk.rows();
        let last = index + 1 == count;
        let watermarks = released.watermarks[mark..]
            .iter()
            .take_while(|m| last || m.before_row < end)
            .count();
        let lanes = ChunkLanes {
            of_row: released.lanes[row..end].to_vec(),
            watermarks: released.watermarks[mark..mark + watermarks]
                .iter()
                .map(|m| LaneWatermark {
                    before_row: m.before_row - row,
                    ..*m
                })
                .collect(),
            names: Vec::new(),
        };
        chunk.lanes = Some(lanes);
        mark += watermarks;
        row = end;
    }
}
