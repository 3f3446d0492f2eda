//! The timeline of one partition: its watermark and its reorder buffer.
//!
//! After every event the watermark is the maximum of three times: the previous watermark, the
//! event's timestamp minus the out-of-order tolerance, and the event's arrival minus the late
//! tolerance. It never goes back. An event is released once the watermark has reached its
//! timestamp. Later events are adjusted to the watermark or dropped, so releases stay sorted.
//!
//! Each event is judged on its own, in turn, so results do not depend on batch boundaries or on
//! when [`Timeline::release`] is called.

use highwater_codec::{DecodeError, Reader, Writer};

use crate::lateness::TimeBounds;
use crate::reorder_buffer::ReorderBuffer;
use crate::snapshot;
use crate::{
    Duration, Instant, JudgedEvent, TimePolicy, VerdictCounts, VerdictObserver, ViolationAction,
};

const FORMAT: u8 = 0x11;

/// The time that orders events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimeDomain {
    /// The time in the payload, judged by the policy.
    EventTime,
    /// The arrival time. The policy is ignored.
    ArrivalTime,
}

/// When the events of a batch arrived.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals<'a> {
    Each(&'a [Instant]),
    All(Instant),
    /// The late and early bounds do not apply, and only event times advance the watermark.
    Unknown,
}

impl Arrivals<'_> {
    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<Instant> {
        match self {
            Arrivals::Each(arrivals) => Some(arrivals[i]),
            Arrivals::All(arrival) => Some(*arrival),
            Arrivals::Unknown => None,
        }
    }
}

/// A batch of events in arrival order. Event `i` has the row number `first_row + i`; row numbers
/// grow from one batch to the next.
#[derive(Clone, Copy, Debug)]
pub struct EventBatch<'a> {
    pub first_row: u64,
    /// The event times; with [`TimeDomain::ArrivalTime`], the arrivals.
    pub times: &'a [Instant],
    pub arrivals: Arrivals<'a>,
}

impl EventBatch<'_> {
    pub(crate) fn assert_arrival_per_event(&self) {
        if let Arrivals::Each(arrivals) = self.arrivals {
            assert_eq!(
                arrivals.len(),
                self.times.len(),
                "each event has one arrival"
            );
        }
    }
}

/// Events that the watermark has reached, sorted: `rows[i]` has the timestamp `times[i]`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReleasedEvents {
    pub rows: Vec<u64>,
    pub times: Vec<Instant>,
}

impl ReleasedEvents {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.times.clear();
    }
}

/// Judges the events of one partition and releases them in order.
#[derive(Clone, Debug)]
pub struct Timeline {
    policy: TimePolicy,
    domain: TimeDomain,
    watermark: Instant,
    buffer: ReorderBuffer,
    counts: VerdictCounts,
}

impl Timeline {
    pub fn new(policy: TimePolicy, domain: TimeDomain) -> Timeline {
        Timeline {
            policy: match domain {
                TimeDomain::EventTime => policy.without_negative_tolerances(),
                TimeDomain::ArrivalTime => ARRIVAL_POLICY,
            },
            domain,
            watermark: Instant::BEFORE_ALL,
            buffer: ReorderBuffer::default(),
            counts: VerdictCounts::default(),
        }
    }

    /// Judges each event and buffers it unless it is dropped.
    pub fn push(&mut self, events: EventBatch<'_>, observer: &mut (impl VerdictObserver + ?Sized)) {
        events.assert_arrival_per_event();
        let policy = self.policy;
        match (self.domain, events.arrivals) {
            (TimeDomain::ArrivalTime, _) => {
                self.judge_each(
                    events,
                    |_| TimeBounds::ALL,
                    |i| Some(events.times[i]),
                    observer,
                );
            }
            (TimeDomain::EventTime, Arrivals::Unknown) => {
                self.judge_each(events, |_| TimeBounds::ALL, |_| None, observer);
            }
            (TimeDomain::EventTime, Arrivals::All(arrival)) => {
                let bounds = policy.bounds(arrival);
                self.judge_each(events, |_| bounds, |_| Some(arrival), observer);
            }
            (TimeDomain::EventTime, Arrivals::Each(arrivals)) => {
                let bounds = |i| policy.bounds(arrivals[i]);
                self.judge_each(events, bounds, |i| Some(arrivals[i]), observer);
            }
        }
    }

    #[inline]
    fn judge_each(
        &mut self,
        events: EventBatch<'_>,
        bounds: impl Fn(usize) -> TimeBounds,
        arrival: impl Fn(usize) -> Option<Instant>,
        observer: &mut (impl VerdictObserver + ?Sized),
    ) {
        let policy = self.policy;
        let mut watermark = self.watermark;
        for (i, &event_time) in events.times.iter().enumerate() {
            let row = events.first_row + i as u64;
            let bounds = bounds(i);
            let watermark_before = watermark;
            let judgement = policy.judge_event(event_time, bounds, watermark_before);
            if judgement.advances_watermark() {
                watermark = watermark.max(bounds.earliest);
            }
            if judgement.verdict.kept() {
                watermark = watermark.max(judgement.time - policy.out_of_order);
                self.buffer.push(judgement.time, row);
            }
            if !judgement.verdict.on_time() {
                self.counts.add_violations(judgement.verdict);
            }
            observer.on_verdict(JudgedEvent {
                row,
                arrival: arrival(i),
                event_time,
                verdict: judgement.verdict,
                watermark_before,
                timestamp: judgement.timestamp(),
                watermark_after: watermark,
                lane: None,
            });
        }
        debug_assert!(watermark >= self.watermark, "the watermark never goes back");
        self.watermark = watermark;
        self.counts.add_read(events.times.len());
    }

    /// Advances the watermark without an event, as far as an event that arrives at
    /// `estimated_arrival` would by its arrival.
    pub fn punctuate(&mut self, estimated_arrival: Instant) {
        self.watermark = self
            .watermark
            .max(estimated_arrival - self.policy.late_arrival);
    }

    /// Advances the watermark to infinity at the end of input.
    pub fn end(&mut self) {
        self.watermark = Instant::AFTER_ALL;
    }

    /// Appends every buffered event that the watermark has reached, sorted by (timestamp, row). No
    /// later release has an earlier timestamp.
    pub fn release(&mut self, out: &mut ReleasedEvents) {
        self.buffer.release(self.watermark, |time, row| {
            out.rows.push(row);
            out.times.push(time);
        });
    }

    /// Like [`Timeline::release`], but only events before `limit`.
    pub fn release_before(&mut self, limit: Instant, out: &mut ReleasedEvents) {
        if limit == Instant::AFTER_ALL {
            return self.release(out);
        }
        let last = Instant::from_ticks(limit.ticks().saturating_sub(1));
        self.buffer.release(self.watermark.min(last), |time, row| {
            out.rows.push(row);
            out.times.push(time);
        });
    }

    /// No later release has an earlier timestamp.
    pub fn next_release(&self) -> Instant {
        let first = self.buffer.first();
        first.map_or(self.watermark, |(time, _)| time.min(self.watermark))
    }

    pub fn watermark(&self) -> Instant {
        self.watermark
    }

    pub fn counts(&self) -> &VerdictCounts {
        &self.counts
    }

    /// The number of events in the reorder buffer.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// The rows of the events in the reorder buffer, ascending.
    pub fn buffered_rows(&self) -> Vec<u64> {
        let mut rows: Vec<u64> = self
            .buffer
            .sorted()
            .into_iter()
            .map(|(_, row)| row)
            .collect();
        rows.sort_unstable();
        rows
    }

    /// Appends the state. The policy belongs to the job and is not part of it.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        out.u8(FORMAT);
        snapshot::write_instant(out, self.watermark);
        snapshot::write_counts(out, &self.counts);
        self.buffer.snapshot(out);
    }

    /// Reads the bytes of [`Timeline::snapshot`] and leaves `from` after them.
    pub fn restore(
        policy: TimePolicy,
        domain: TimeDomain,
        from: &mut Reader<'_>,
    ) -> Result<Timeline, DecodeError> {
        from.version(FORMAT)?;
        Ok(Timeline {
            watermark: snapshot::read_instant(from)?,
            counts: snapshot::read_counts(from)?,
            buffer: ReorderBuffer::restore(from, Instant::AFTER_ALL)?,
            ..Timeline::new(policy, domain)
        })
    }
}

/// An arrival is before the watermark only if a punctuation ran ahead of it; then its timestamp is
/// the watermark.
const ARRIVAL_POLICY: TimePolicy = TimePolicy {
    late_arrival: Duration::ZERO,
    out_of_order: Duration::ZERO,
    early_arrival: None,
    late_events: ViolationAction::Adjust,
    out_of_order_events: ViolationAction::Adjust,
    early_events: ViolationAction::Adjust,
};
