//! A watermark for every key: `TIMESTAMP BY time OVER key`.
//!
//! Devices with different clocks must not make each other late. Each key is a *lane* with a
//! watermark of its own: its latest timestamp minus the out-of-order tolerance. Events are ordered
//! within a lane and not between lanes.
//!
//! The *floor* bounds how far lanes drift apart. It is common to all lanes: the latest arrival
//! minus the late tolerance. The effective watermark of a lane is the maximum of its own watermark
//! and the floor. So the floor advances silent keys, and a key at the floor can be expired.
//!
//! The result is one sequence of events and watermarks. Each input event appends, in this order: the
//! events of its lane that are now due; the lane's watermark, if it rose; the events of any lane
//! that the floor has reached; the floor, if it rose. Nothing else appends, so the sequence depends
//! on the events alone and not on batch boundaries.

use highwater_codec::{DecodeError, Reader, Writer};

use crate::lanes::Lanes;
use crate::lateness::TimeBounds;
use crate::released_lanes::{ReleasedLaneEvents, SequencePosition};
use crate::reorder_buffer::ReorderBuffer;
use crate::snapshot;
use crate::{
    Duration, EventBatch, Instant, JudgedEvent, TimePolicy, VerdictCounts, VerdictObserver,
};

const FORMAT: u8 = 0x21;

/// How many keys are looked up before their events are judged, so that the cache misses of a block
/// overlap.
const LOOKUP_BLOCK: usize = 64;

/// The keys of a batch of events: key `i` is `bytes[offsets[i]..offsets[i + 1]]`. Keys are equal if
/// their bytes are.
#[derive(Clone, Copy, Debug)]
pub struct EventKeys<'a> {
    pub offsets: &'a [u32],
    pub bytes: &'a [u8],
}

impl<'a> EventKeys<'a> {
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

struct Event<'a> {
    row: u64,
    arrival: Option<Instant>,
    time: Instant,
    key: &'a [u8],
}

/// Judges the events of one partition and releases them in order within each key.
#[derive(Clone, Debug)]
pub struct Substreams {
    policy: TimePolicy,
    floor: Instant,
    lanes: Lanes,
    /// The lanes that the floor must visit, by (time, row) of an event that once was first in the
    /// lane. A lane with buffered events has an entry at its `scheduled` time; entries at other
    /// times are stale. Only the floor reads this queue, so it costs nothing for events released by
    /// the watermark of their lane, which are the majority.
    lane_heads: ReorderBuffer<(u64, u32)>,
    counts: VerdictCounts,
}

impl Substreams {
    /// `retention` is how long after a key's latest timestamp an operator may keep state for it.
    pub fn new(policy: TimePolicy, retention: Duration) -> Substreams {
        Substreams {
            policy: policy.without_negative_tolerances(),
            floor: Instant::BEFORE_ALL,
            lanes: Lanes::new(retention),
            lane_heads: ReorderBuffer::default(),
            counts: VerdictCounts::default(),
        }
    }

    /// Judges each event by the watermark of its lane and appends the events that become due.
    pub fn push(
        &mut self,
        events: EventBatch<'_>,
        keys: &EventKeys<'_>,
        out: &mut ReleasedLaneEvents,
        observer: &mut (impl VerdictObserver + ?Sized),
    ) {
        events.assert_arrival_per_event();
        assert_eq!(keys.len(), events.times.len(), "each event has one key");
        let mut candidates = Vec::with_capacity(LOOKUP_BLOCK);
        for start in (0..events.times.len()).step_by(LOOKUP_BLOCK) {
            let stop = events.times.len().min(start + LOOKUP_BLOCK);
            self.lanes
                .find_candidates((start..stop).map(|i| keys.get(i)), &mut candidates);
            for i in start..stop {
                let row = events.first_row + i as u64;
                let arrival = events.arrivals.get(i);
                // EventBatch before this one may have opened or closed lanes.
                let key = keys.get(i);
                let lane = Some(candidates[i - start]).filter(|&id| self.lanes.has_key(id, key));
                let lane = lane.or_else(|| self.lanes.find(key));
                let event = Event {
                    row,
                    arrival,
                    time: events.times[i],
                    key,
                };
                observer.on_verdict(self.push_one(event, lane, out));
            }
        }
        self.counts.add_read(events.times.len());
    }

    #[inline]
    fn push_one(
        &mut self,
        event: Event<'_>,
        mut lane: Option<u32>,
        out: &mut ReleasedLaneEvents,
    ) -> JudgedEvent {
        let Event {
            row,
            arrival,
            time: event_time,
            key,
        } = event;
        let position = out.position();
        let bounds = arrival.map_or(TimeBounds::ALL, |arrival| self.policy.bounds(arrival));
        let watermark_before = lane.map_or(self.floor, |id| self.watermark_of(id));
        let judgement = self
            .policy
            .judge_event(event_time, bounds, watermark_before);
        let mut watermark = watermark_before;
        if judgement.verdict.kept() {
            // Only a kept event opens a lane, so dropped ones leave no trace.
            let id = lane.unwrap_or_else(|| self.lanes.open(key, judgement.time));
            lane = Some(id);
            watermark = self.accept(id, judgement.time, row, watermark_before, out);
        }
        if !judgement.verdict.on_time() {
            self.counts.add_violations(judgement.verdict);
        }
        if judgement.advances_watermark() {
            self.raise_floor(bounds.earliest, position, out);
        }
        JudgedEvent {
            row,
            arrival,
            event_time,
            verdict: judgement.verdict,
            watermark_before,
            timestamp: judgement.timestamp(),
            watermark_after: watermark.max(self.floor),
            lane,
        }
    }

    /// Adds an event to its lane, releases the events that the lane's watermark has reached, and
    /// returns that watermark.
    fn accept(
        &mut self,
        id: u32,
        time: Instant,
        row: u64,
        watermark_before: Instant,
        out: &mut ReleasedLaneEvents,
    ) -> Instant {
        let lane = self.lanes.get_mut(id);
        lane.latest = lane.latest.max(time);
        let watermark = watermark_before.max(lane.latest - self.policy.out_of_order);
        let (buffer, key) = lane.buffer_and_key();
        buffer.push_and_release(time, row, watermark, |time, row| {
            out.push_event(id, key, time, row)
        });
        if watermark > watermark_before {
            out.push_watermark(Some(id), watermark);
        }
        self.schedule(id);
        watermark
    }

    /// Queues the lane for the time when the floor reaches its first event.
    #[inline]
    fn schedule(&mut self, id: u32) {
        let lane = self.lanes.get_mut(id);
        if let Some((time, row)) = lane.buffer.first()
            && (lane.scheduled == Instant::BEFORE_ALL || time < lane.scheduled)
        {
            lane.scheduled = time;
            self.lane_heads.push(time, (row, id));
        }
    }

    /// `before` is the position of the input event that raises it.
    fn raise_floor(
        &mut self,
        floor: Instant,
        before: SequencePosition,
        out: &mut ReleasedLaneEvents,
    ) {
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        out.push_floor_rise(before, floor);
        let mut touched = 0;
        while let Some((time, (row, id))) = self.lane_heads.first()
            && time <= floor
        {
            if touched == 0 {
                let next = self.lane_heads.upcoming(LOOKUP_BLOCK);
                self.lanes.touch(next.map(|(_, id)| id));
                touched = LOOKUP_BLOCK;
            }
            touched -= 1;
            self.lane_heads.pop_first();
            let lane = self.lanes.get_mut(id);
            if lane.scheduled != time {
                continue;
            }
            lane.scheduled = Instant::BEFORE_ALL;
            if lane.buffer.first() == Some((time, row)) {
                lane.buffer.pop_first();
                out.push_event(id, lane.key(), time, row);
            }
            self.schedule(id);
        }
        out.push_watermark(None, floor);
        self.lanes.expire(floor);
    }

    /// Raises the floor without an event, as far as an event that arrives at `estimated_arrival`
    /// would.
    pub fn punctuate(&mut self, estimated_arrival: Instant, out: &mut ReleasedLaneEvents) {
        let floor = estimated_arrival - self.policy.late_arrival;
        self.raise_floor(floor, out.position(), out);
    }

    /// Advances every lane to infinity at the end of input.
    pub fn end(&mut self, out: &mut ReleasedLaneEvents) {
        self.raise_floor(Instant::AFTER_ALL, out.position(), out);
    }

    /// The lower bound on the watermark of every lane.
    pub fn floor(&self) -> Instant {
        self.floor
    }

    pub fn counts(&self) -> &VerdictCounts {
        &self.counts
    }

    /// The number of keys with a lane.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// The number of buffered events, in time proportional to the number of lanes.
    pub fn buffered(&self) -> usize {
        self.lanes.iter().map(|(_, lane)| lane.buffer.len()).sum()
    }

    fn watermark_of(&self, id: u32) -> Instant {
        self.floor
            .max(self.lanes.get(id).latest - self.policy.out_of_order)
    }

    /// Appends the state. The policy belongs to the job and is not part of it.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        out.u8(FORMAT);
        snapshot::write_instant(out, self.floor);
        snapshot::write_counts(out, &self.counts);
        self.lanes.snapshot(out);
    }

    /// Reads the bytes of [`Substreams::snapshot`] and leaves `from` after them.
    pub fn restore(
        policy: TimePolicy,
        retention: Duration,
        from: &mut Reader<'_>,
    ) -> Result<Substreams, DecodeError> {
        from.version(FORMAT)?;
        let floor = snapshot::read_instant(from)?;
        let counts = snapshot::read_counts(from)?;
        let lanes = Lanes::restore(retention, from)?;
        let mut heads: Vec<_> = lanes
            .iter()
            .filter_map(|(id, lane)| lane.buffer.first().map(|(time, row)| (time, row, id)))
            .collect();
        heads.sort_unstable();
        let mut restored = Substreams {
            floor,
            counts,
            lanes,
            ..Substreams::new(policy, retention)
        };
        heads.iter().for_each(|&(_, _, id)| restored.schedule(id));
        Ok(restored)
    }
}
