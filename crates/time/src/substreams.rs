//! A watermark for every key: `TIMESTAMP BY time OVER key`.
//!
//! A thousand devices with a thousand clocks should not make one another late. Here each key is a
//! *lane* with a watermark of its own, its latest timestamp less the out-of-order tolerance, and
//! its events are in order among themselves but not with those of other lanes.
//!
//! What bounds how far lanes may drift apart is the *floor*, which all of them share: the latest
//! arrival less the late tolerance. A lane stands at its own watermark or at the floor, whichever
//! is later. So a silent key is carried along, and once it has fallen to the floor it can be
//! forgotten.
//!
//! The result is one sequence of events and marks. Every event adds to it, in this order: the
//! events of its lane that are now due; a mark, if its lane rose; the events of any lane that the
//! floor has reached; a mark, if the floor rose. Nothing else does, so the sequence depends on the
//! events alone and not on how they were cut into batches.

use crate::judge::Span;
use crate::lanes::Lanes;
use crate::reorder::Reorder;
use crate::snapshot::{self, RestoreError};
use crate::{Counts, Duration, Events, Fate, Instant, Policy, Witness};

const FORMAT: u8 = 0x21;

/// How many keys are looked up before their events are judged. Lookups do not wait for one another, so
/// the lanes of a block come out of memory together.
const BLOCK: usize = 64;

/// The keys of some events: key `i` is `bytes[offsets[i]..offsets[i + 1]]`. Keys are equal if their
/// bytes are.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    pub offsets: &'a [u32],
    pub bytes: &'a [u8],
}

impl<'a> Keys<'a> {
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, i: usize) -> &'a [u8] {
        &self.bytes[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
}

/// Keys that were gathered one by one: key `i` ends at `ends[i]`, where the next begins.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    #[inline]
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// The keys of the events from `from` to `to`.
    pub fn range(&self, from: usize, to: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = from.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.ends[from..to].iter().map(move |&end| {
            let key = &self.bytes[start..end];
            start = end;
            key
        })
    }
}

/// Says that a watermark rose, at its place among the events released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneMark {
    /// The index in [`LaneReleased::rows`] of the first event after the mark.
    pub before: usize,
    /// The lane that rose; `None` means that every lane now stands at `watermark` at least.
    pub lane: Option<u32>,
    pub watermark: Instant,
}

/// Events whose time has come, and the marks between them. The events of one lane are sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LaneReleased {
    pub rows: Vec<u64>,
    pub times: Vec<Instant>,
    pub lanes: Vec<u32>,
    pub marks: Vec<LaneMark>,
    /// The keys of the events, for whoever puts a list here.
    pub keys: Option<KeyList>,
}

impl LaneReleased {
    pub fn clear(&mut self) {
        self.rows.clear();
        self.times.clear();
        self.lanes.clear();
        self.marks.clear();
        if let Some(keys) = &mut self.keys {
            keys.clear();
        }
    }

    #[inline]
    fn event(&mut self, lane: u32, key: &[u8], time: Instant, row: u64) {
        self.rows.push(row);
        self.times.push(time);
        self.lanes.push(lane);
        if let Some(keys) = &mut self.keys {
            keys.push(key);
        }
    }

    fn mark(&mut self, lane: Option<u32>, watermark: Instant) {
        self.marks.push(LaneMark {
            before: self.rows.len(),
            lane,
            watermark,
        });
    }
}

struct Event<'a> {
    row: u64,
    arrival: Option<Instant>,
    time: Instant,
    key: &'a [u8],
}

/// One partition's events on their way into order, key by key.
#[derive(Clone, Debug)]
pub struct Substreams {
    policy: Policy,
    floor: Instant,
    lanes: Lanes,
    /// When to look at which lane, so that the floor finds what is due: by (time, row) of an event
    /// that once was its lane's first. A lane that holds events has an entry at its `scheduled` time;
    /// entries at other times are out of date. Only the floor looks here, so an event that leaves
    /// by its lane's own watermark, as most do, costs nothing here.
    heads: Reorder<(u64, u32)>,
    counts: Counts,
}

impl Substreams {
    /// `linger` is how long past a key's latest timestamp an operator may keep state for it.
    pub fn new(policy: Policy, linger: Duration) -> Substreams {
        Substreams {
            policy: policy.checked(),
            floor: Instant::BEFORE_ALL,
            lanes: Lanes::new(linger),
            heads: Reorder::default(),
            counts: Counts::default(),
        }
    }

    /// Judges each event against the lane of its key, and appends what is then due.
    pub fn push(
        &mut self,
        events: Events<'_>,
        keys: &Keys<'_>,
        out: &mut LaneReleased,
        witness: &mut (impl Witness + ?Sized),
    ) {
        events.check();
        assert_eq!(keys.len(), events.times.len(), "each event has one key");
        let mut found = Vec::with_capacity(BLOCK);
        for start in (0..events.times.len()).step_by(BLOCK) {
            let stop = events.times.len().min(start + BLOCK);
            self.lanes
                .guess((start..stop).map(|i| keys.get(i)), &mut found);
            for i in start..stop {
                let row = events.first + i as u64;
                let arrival = events.arrivals.get(i);
                // Events before this one may have opened or closed lanes.
                let key = keys.get(i);
                let lane = Some(found[i - start]).filter(|&id| self.lanes.is_of(id, key));
                let lane = lane.or_else(|| self.lanes.find(key));
                let event = Event {
                    row,
                    arrival,
                    time: events.times[i],
                    key,
                };
                witness.judged(self.push_one(event, lane, out));
            }
        }
        self.counts.note_read(events.times.len());
    }

    #[inline]
    fn push_one(
        &mut self,
        event: Event<'_>,
        mut lane: Option<u32>,
        out: &mut LaneReleased,
    ) -> Fate {
        let Event {
            row,
            arrival,
            time: event_time,
            key,
        } = event;
        let span = arrival.map_or(Span::ALL, |arrival| self.policy.span(arrival));
        let met = lane.map_or(self.floor, |id| self.watermark_of(id));
        let ruling = self.policy.judge(event_time, span, met);
        let mut watermark = met;
        if ruling.verdict.kept() {
            // A key has no lane until it has an event, so dropped ones leave no trace.
            let id = lane.unwrap_or_else(|| self.lanes.open(key, ruling.time));
            lane = Some(id);
            watermark = self.accept(id, ruling.time, row, met, out);
        }
        if !ruling.verdict.on_time() {
            self.counts.note(ruling.verdict);
        }
        if ruling.moves_time() {
            self.raise_floor(span.earliest, out);
        }
        Fate {
            row,
            arrival,
            event_time,
            verdict: ruling.verdict,
            met,
            timestamp: ruling.timestamp(),
            watermark: watermark.max(self.floor),
            lane,
        }
    }

    /// Adds an event to its lane, gives out what the lane's watermark has reached, and returns
    /// that watermark.
    fn accept(
        &mut self,
        id: u32,
        time: Instant,
        row: u64,
        met: Instant,
        out: &mut LaneReleased,
    ) -> Instant {
        let lane = self.lanes.get_mut(id);
        lane.latest = lane.latest.max(time);
        let watermark = met.max(lane.latest - self.policy.out_of_order);
        let (held, key) = lane.held_and_key();
        held.admit(time, row, watermark, |time, row| {
            out.event(id, key, time, row)
        });
        if watermark > met {
            out.mark(Some(id), watermark);
        }
        self.schedule(id);
        watermark
    }

    /// Sees to it that the lane is looked at when the floor has reached its first event.
    #[inline]
    fn schedule(&mut self, id: u32) {
        let lane = self.lanes.get_mut(id);
        if let Some((time, row)) = lane.held.first()
            && (lane.scheduled == Instant::BEFORE_ALL || time < lane.scheduled)
        {
            lane.scheduled = time;
            self.heads.push(time, (row, id));
        }
    }

    fn raise_floor(&mut self, floor: Instant, out: &mut LaneReleased) {
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        while let Some((time, (row, id))) = self.heads.first()
            && time <= floor
        {
            self.heads.pop_first();
            let lane = self.lanes.get_mut(id);
            if lane.scheduled != time {
                continue;
            }
            lane.scheduled = Instant::BEFORE_ALL;
            if lane.held.first() == Some((time, row)) {
                lane.held.pop_first();
                out.event(id, lane.key(), time, row);
            }
            self.schedule(id);
        }
        out.mark(None, floor);
        self.lanes.forget(floor);
    }

    /// Lets time pass without an event: one that arrived now would arrive at `estimated_arrival`.
    pub fn punctuate(&mut self, estimated_arrival: Instant, out: &mut LaneReleased) {
        self.raise_floor(estimated_arrival - self.policy.late_arrival, out);
    }

    /// No event will follow, so time runs to its end in every lane.
    pub fn end(&mut self, out: &mut LaneReleased) {
        self.raise_floor(Instant::AFTER_ALL, out);
    }

    /// The watermark that no lane stands below.
    pub fn floor(&self) -> Instant {
        self.floor
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many keys are remembered.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// How many events wait for a watermark. Looks at every lane.
    pub fn held(&self) -> usize {
        self.lanes.iter().map(|(_, lane)| lane.held.len()).sum()
    }

    fn watermark_of(&self, id: u32) -> Instant {
        self.floor
            .max(self.lanes.get(id).latest - self.policy.out_of_order)
    }

    /// Appends the state, without the policy, which belongs to the job.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        snapshot::put_instant(out, self.floor);
        snapshot::put_counts(out, &self.counts);
        self.lanes.snapshot(out);
    }

    /// Reads what [`Substreams::snapshot`] wrote, and leaves `from` after it.
    pub fn restore(
        policy: Policy,
        linger: Duration,
        from: &mut &[u8],
    ) -> Result<Substreams, RestoreError> {
        snapshot::take_format(from, FORMAT)?;
        let floor = snapshot::take_instant(from)?;
        let counts = snapshot::take_counts(from)?;
        let lanes = Lanes::restore(linger, from)?;
        let mut heads: Vec<_> = lanes
            .iter()
            .filter_map(|(id, lane)| lane.held.first().map(|(time, row)| (time, row, id)))
            .collect();
        heads.sort_unstable();
        let mut restored = Substreams {
            floor,
            counts,
            lanes,
            ..Substreams::new(policy, linger)
        };
        heads.iter().for_each(|&(_, _, id)| restored.schedule(id));
        Ok(restored)
    }
}
