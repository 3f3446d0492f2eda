//! Puts a partition's chunks into event-time order.
//!
//! `highwater-time` decides when an event is released, and knows events only by number; [`PendingChunks`] holds the
//! rows of those numbers. The orderer connects the two and gives rows the lanes and watermarks of substreams.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_engine::{Chunk, ChunkLanes, Item};
use highwater_time::{
    Arrivals, Duration, EventBatch, EventKeys, Instant, JudgedEvent, KeyList, LaneWatermark,
    ReleasedEvents, ReleasedLaneEvents, Substreams, TimeDomain, TimePolicy, Timeline,
    VerdictCounts, VerdictObserver,
};

use crate::pending_chunks::{PendingChunks, PendingChunksSnapshot};
use crate::samples::SampleShare;
use crate::substream_key::SubstreamKeyColumn;

pub(crate) struct Orderer {
    clocks: Clocks,
    pending: PendingChunks,
    /// Events from this time on are not released, and the watermark stops here; with substreams, the events released
    /// since the floor reached it. Not part of the state.
    limit: Instant,
    /// Not part of the state.
    settings: OrdererSettings,
}

#[derive(Clone, Copy)]
struct OrdererSettings {
    policy: TimePolicy,
    domain: TimeDomain,
    /// How long operators may keep state for a key after its last event.
    linger: Duration,
}

/// The state of an [`Orderer`] at one moment, not yet encoded.
pub(crate) struct OrdererSnapshot {
    time: Vec<u8>,
    pending: PendingChunksSnapshot,
    /// Events of substreams that wait for the limit, if there is one.
    held_back: Option<Vec<u8>>,
}

impl OrdererSnapshot {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.blob(&self.time);
        self.pending.write(out);
        if let Some(held_back) = &self.held_back {
            out.blob(held_back);
        }
    }
}

enum Clocks {
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
pub(crate) struct UnorderedEvents<'a> {
    pub chunk: Chunk,
    pub times: &'a [Instant],
    pub arrivals: Arrivals<'a>,
    /// Substream keys, where the input has them.
    pub keys: Option<EventKeys<'a>>,
}

impl Orderer {
    /// For chunks of `width` columns.
    pub(crate) fn new(policy: TimePolicy, clock: TimeDomain, width: usize) -> Orderer {
        let timeline = Box::new(Timeline::new(policy, clock));
        Orderer {
            clocks: Clocks::One {
                timeline,
                released: ReleasedEvents::default(),
            },
            pending: PendingChunks::new(width, false),
            limit: Instant::AFTER_ALL,
            settings: OrdererSettings {
                policy,
                domain: clock,
                linger: Duration::ZERO,
            },
        }
    }

    /// `linger`: how long operators may keep state for a key after its last event.
    pub(crate) fn per_key(
        policy: TimePolicy,
        linger: Duration,
        key_column: SubstreamKeyColumn,
        width: usize,
    ) -> Orderer {
        let substreams = Box::new(Substreams::new(policy, linger));
        let clocks = Clocks::PerKey {
            substreams,
            released: ReleasedLaneEvents::default(),
            key_column,
        };
        Orderer {
            clocks,
            pending: PendingChunks::new(width, true),
            limit: Instant::AFTER_ALL,
            settings: OrdererSettings {
                policy,
                domain: TimeDomain::EventTime,
                linger,
            },
        }
    }

    /// No later event gets an earlier timestamp; at most the limit.
    pub(crate) fn watermark(&self) -> Instant {
        self.reached().min(self.limit)
    }

    /// The watermark, ignoring the limit.
    pub(crate) fn reached(&self) -> Instant {
        match &self.clocks {
            Clocks::One { timeline, .. } => timeline.watermark(),
            Clocks::PerKey { substreams, .. } => substreams.floor(),
        }
    }

    /// No unreleased event has an earlier timestamp; with substreams, none was released before the floor reached this
    /// time.
    pub(crate) fn next_release(&self) -> Instant {
        match &self.clocks {
            Clocks::One { timeline, .. } => timeline.next_release(),
            Clocks::PerKey {
                substreams,
                released,
                ..
            } => {
                let held_back = released
                    .floor_rises
                    .as_ref()
                    .and_then(|rises| rises.first());
                held_back.map_or(substreams.floor(), |rise| rise.floor)
            }
        }
    }

    /// Releases only events before `limit` from now on.
    pub(crate) fn set_limit(&mut self, limit: Instant) {
        self.limit = limit;
        if let Clocks::PerKey {
            released,
            key_column,
            ..
        } = &mut self.clocks
        {
            released.floor_rises.get_or_insert_default();
            // Held-back events have keys from the first on, if any has.
            if key_column.exists() {
                released.keys.get_or_insert_default();
            }
        }
    }

    /// The number of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.pending.next()
    }

    /// How many events wait.
    pub(crate) fn waiting(&self) -> usize {
        self.pending.waiting()
    }

    /// About the size of the state.
    pub(crate) fn state_bytes(&self) -> usize {
        /// The clock of a key, with a short key.
        const LANE_BYTES: usize = 64;
        let lanes = match &self.clocks {
            Clocks::One { .. } => 0,
            Clocks::PerKey { substreams, .. } => substreams.lane_count() * LANE_BYTES,
        };
        lanes + self.pending.state_bytes()
    }

    /// The state at this moment.
    pub(crate) fn snapshot(&self) -> OrdererSnapshot {
        let (mut time, mut held_back) = (Vec::new(), None);
        let pending = match &self.clocks {
            Clocks::One { timeline, .. } => {
                timeline.snapshot(&mut time);
                self.pending.snapshot(&timeline.buffered_rows())
            }
            Clocks::PerKey {
                substreams,
                released,
                ..
            } => {
                substreams.snapshot(&mut time);
                if released.floor_rises.is_some() {
                    released.snapshot(held_back.get_or_insert_default());
                }
                self.pending.snapshot(&[])
            }
        };
        OrdererSnapshot {
            time,
            pending,
            held_back,
        }
    }

    /// Reads what [`OrdererSnapshot::write`] wrote.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut state = Reader::new(from.blob()?);
        let OrdererSettings {
            policy,
            domain,
            linger,
        } = self.settings;
        match &mut self.clocks {
            Clocks::One { timeline, .. } => {
                **timeline = Timeline::restore(policy, domain, &mut state)?;
            }
            Clocks::PerKey {
                substreams,
                released,
                key_column,
            } => {
                **substreams = Substreams::restore(policy, linger, &mut state)?;
                released.keys = key_column.exists().then(KeyList::default);
            }
        }
        self.pending.restore(from)?;
        let waiting = match &mut self.clocks {
            Clocks::One { timeline, .. } => timeline.buffered(),
            Clocks::PerKey {
                substreams,
                released,
                key_column,
            } => {
                if released.floor_rises.is_some() {
                    *released = ReleasedLaneEvents::restore(&mut Reader::new(from.blob()?))?;
                    if key_column.exists() != released.keys.is_some() {
                        return Err(DecodeError::Invalid("released events have no keys"));
                    }
                }
                substreams.buffered() + released.rows.len()
            }
        };
        match state.is_done() && waiting == self.pending.waiting() {
            true => Ok(()),
            false => Err(DecodeError::Invalid(
                "the clock and the pending chunks hold different events",
            )),
        }
    }

    pub(crate) fn counts(&self) -> &VerdictCounts {
        match &self.clocks {
            Clocks::One { timeline, .. } => timeline.counts(),
            Clocks::PerKey { substreams, .. } => substreams.counts(),
        }
    }

    /// Judges the events and appends those that are in order now to `out`. JudgedEvents name events by their number in
    /// the stream.
    pub(crate) fn push(
        &mut self,
        mut incoming: UnorderedEvents<'_>,
        judged: Option<&mut JudgedEvents>,
        out: &mut Vec<Item>,
    ) {
        let first = self.pending.next();
        let mut dropped = DropRecorder {
            rows: Vec::new(),
            judged: None,
        };
        let events = EventBatch {
            first_row: first,
            times: incoming.times,
            arrivals: incoming.arrivals,
        };
        let kept_before = self.counts().kept;
        match (&mut self.clocks, incoming.keys) {
            (Clocks::One { timeline, .. }, _) => match judged {
                Some(judged) => timeline.push(events, judged),
                None => timeline.push(events, &mut ()),
            },
            (
                Clocks::PerKey {
                    substreams,
                    released,
                    key_column,
                },
                Some(keys),
            ) => {
                dropped.judged = judged;
                if key_column.strip(&mut incoming.chunk) {
                    released.keys.get_or_insert_default();
                }
                substreams.push(events, &keys, released, &mut dropped);
            }
            (Clocks::PerKey { .. }, None) => unreachable!("an input with substreams has keys"),
        }
        let kept = self.counts().kept - kept_before;
        self.pending
            .add(incoming.chunk, kept as usize, &dropped.rows);
        self.release(out);
    }

    /// Advances time to at least this arrival without an event.
    pub(crate) fn punctuate(&mut self, arrival: Instant, out: &mut Vec<Item>) {
        match &mut self.clocks {
            Clocks::One { timeline, .. } => timeline.punctuate(arrival),
            Clocks::PerKey {
                substreams,
                released,
                ..
            } => substreams.punctuate(arrival, released),
        }
        self.release(out);
    }

    pub(crate) fn end(&mut self, out: &mut Vec<Item>) {
        match &mut self.clocks {
            Clocks::One { timeline, .. } => timeline.end(),
            Clocks::PerKey {
                substreams,
                released,
                ..
            } => substreams.end(released),
        }
        self.release(out);
    }

    /// Appends the events that are in order now and before the limit, and the watermark.
    pub(crate) fn release(&mut self, out: &mut Vec<Item>) {
        match &mut self.clocks {
            Clocks::One { timeline, released } => {
                timeline.release_before(self.limit, released);
                self.pending.take(&released.rows, &released.times, out);
                released.clear();
                out.push(Item::Watermark(timeline.watermark().min(self.limit)));
            }
            Clocks::PerKey {
                substreams,
                released,
                key_column,
            } => {
                let later = match self.limit {
                    Instant::AFTER_ALL => None,
                    limit => {
                        let before = released.take_before(limit);
                        Some(std::mem::replace(released, before))
                    }
                };
                let from = out.len();
                self.pending.take(&released.rows, &released.times, out);
                attach_lanes(&mut out[from..], released, key_column);
                if out.len() == from && !released.watermarks.is_empty() {
                    out.push(self.pending.empty(released));
                }
                match later {
                    Some(later) => *released = later,
                    None => released.clear(),
                }
                self.pending.thin();
                if substreams.floor().min(self.limit) == Instant::AFTER_ALL {
                    out.push(Item::Watermark(Instant::AFTER_ALL));
                }
            }
        }
    }
}

/// The verdicts about events, by their number in the stream.
pub(crate) struct JudgedEvents {
    /// Of the events on time, every how many-th is recorded; `None` for none.
    stride: Option<usize>,
    /// Events on time until the next is recorded.
    left: usize,
    /// How many adjusted and dropped events are recorded.
    moved_max: usize,
    pub seen: Vec<JudgedEvent>,
}

impl JudgedEvents {
    pub(crate) fn all() -> JudgedEvents {
        JudgedEvents {
            stride: Some(1),
            ..JudgedEvents::moved()
        }
    }

    /// Adjusted and dropped events.
    pub(crate) fn moved() -> JudgedEvents {
        JudgedEvents {
            stride: None,
            left: 0,
            moved_max: usize::MAX,
            seen: Vec::new(),
        }
    }

    /// A sample of so many events.
    pub(crate) fn sample(events: usize, share: SampleShare) -> JudgedEvents {
        JudgedEvents {
            stride: events
                .checked_div(share.on_time)
                .map(|stride| stride.max(1)),
            moved_max: share.moved,
            ..JudgedEvents::moved()
        }
    }

    /// Records all adjusted and dropped events as well.
    pub(crate) fn and_all_moved(self) -> JudgedEvents {
        JudgedEvents {
            moved_max: usize::MAX,
            ..self
        }
    }
}

impl VerdictObserver for JudgedEvents {
    #[inline]
    fn on_verdict(&mut self, event: JudgedEvent) {
        if !event.verdict.on_time() {
            if self.moved_max > 0 {
                self.moved_max -= 1;
                self.seen.push(event);
            }
        } else if let Some(stride) = self.stride {
            if self.left == 0 {
                self.left = stride;
                self.seen.push(event);
            }
            self.left -= 1;
        }
    }
}

/// Records the events that are never released, and passes verdicts on.
struct DropRecorder<'a> {
    rows: Vec<u64>,
    judged: Option<&'a mut JudgedEvents>,
}

impl VerdictObserver for DropRecorder<'_> {
    #[inline]
    fn on_verdict(&mut self, event: JudgedEvent) {
        if !event.verdict.kept() {
            self.rows.push(event.row);
        }
        if let Some(judged) = &mut self.judged {
            judged.on_verdict(event);
        }
    }
}

/// Gives released chunks their keys, their lanes and the watermarks between their rows.
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
