//! The timeline of one partition: its watermark, and the events that wait for it.
//!
//! After every event the watermark is the largest of three: what it was, the event's accepted time
//! less the out-of-order tolerance, and the event's arrival less the late tolerance. It never goes
//! back. An event is released once the watermark has reached its timestamp; since whatever follows
//! is moved up to the watermark, or dropped, releases are sorted for ever.
//!
//! Each event is judged on its own, in turn, so it makes no difference how the input was cut into
//! batches or when [`Timeline::release`] was called.

use crate::judge::Span;
use crate::reorder::Reorder;
use crate::snapshot::{self, RestoreError};
use crate::{Action, Counts, Duration, Fate, Instant, Policy, Witness};

const FORMAT: u8 = 0x11;

/// Whose time it is that events are ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Clock {
    /// The time in the payload, under the policy.
    Application,
    /// The arrival. Arrivals do not stray, so the policy is ignored.
    Arrival,
}

/// When the events of a batch arrived.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals<'a> {
    Each(&'a [Instant]),
    All(Instant),
    /// The late and early bounds do not apply, and only event times move the watermark.
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

/// A batch of events in the order of arrival. Event `i` has the handle `first + i`, and handles
/// grow from one batch to the next.
#[derive(Clone, Copy, Debug)]
pub struct Events<'a> {
    pub first: u64,
    /// The events' own times; with [`Clock::Arrival`], their arrivals.
    pub times: &'a [Instant],
    pub arrivals: Arrivals<'a>,
}

impl Events<'_> {
    pub(crate) fn check(&self) {
        if let Arrivals::Each(arrivals) = self.arrivals {
            assert_eq!(
                arrivals.len(),
                self.times.len(),
                "each event has one arrival"
            );
        }
    }
}

/// Events whose time has come, sorted: `rows[i]` has the timestamp `times[i]`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Released {
    pub rows: Vec<u64>,
    pub times: Vec<Instant>,
}

impl Released {
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

/// One partition's events on their way into order.
#[derive(Clone, Debug)]
pub struct Timeline {
    policy: Policy,
    clock: Clock,
    watermark: Instant,
    held: Reorder,
    counts: Counts,
}

impl Timeline {
    pub fn new(policy: Policy, clock: Clock) -> Timeline {
        Timeline {
            policy: match clock {
                Clock::Application => policy.checked(),
                Clock::Arrival => ARRIVAL_POLICY,
            },
            clock,
            watermark: Instant::BEFORE_ALL,
            held: Reorder::default(),
            counts: Counts::default(),
        }
    }

    /// Judges each event and holds those that are kept.
    pub fn push(&mut self, events: Events<'_>, witness: &mut (impl Witness + ?Sized)) {
        events.check();
        let policy = self.policy;
        match (self.clock, events.arrivals) {
            (Clock::Arrival, _) => {
                self.judge_each(events, |_| Span::ALL, |i| Some(events.times[i]), witness);
            }
            (Clock::Application, Arrivals::Unknown) => {
                self.judge_each(events, |_| Span::ALL, |_| None, witness);
            }
            (Clock::Application, Arrivals::All(arrival)) => {
                let span = policy.span(arrival);
                self.judge_each(events, |_| span, |_| Some(arrival), witness);
            }
            (Clock::Application, Arrivals::Each(arrivals)) => {
                let span = |i| policy.span(arrivals[i]);
                self.judge_each(events, span, |i| Some(arrivals[i]), witness);
            }
        }
    }

    #[inline]
    fn judge_each(
        &mut self,
        events: Events<'_>,
        span: impl Fn(usize) -> Span,
        arrival: impl Fn(usize) -> Option<Instant>,
        witness: &mut (impl Witness + ?Sized),
    ) {
        let policy = self.policy;
        let mut watermark = self.watermark;
        for (i, &event_time) in events.times.iter().enumerate() {
            let row = events.first + i as u64;
            let span = span(i);
            let met = watermark;
            let ruling = policy.judge(event_time, span, met);
            if ruling.moves_time() {
                watermark = watermark.max(span.earliest);
            }
            if ruling.verdict.kept() {
                watermark = watermark.max(ruling.time - policy.out_of_order);
                self.held.push(ruling.time, row);
            }
            if !ruling.verdict.on_time() {
                self.counts.note(ruling.verdict);
            }
            witness.judged(Fate {
                row,
                arrival: arrival(i),
                event_time,
                verdict: ruling.verdict,
                met,
                timestamp: ruling.timestamp(),
                watermark,
                lane: None,
            });
        }
        debug_assert!(watermark >= self.watermark, "the watermark never goes back");
        self.watermark = watermark;
        self.counts.note_read(events.times.len());
    }

    /// Lets time pass without an event: an event that arrived now would arrive at
    /// `estimated_arrival`.
    pub fn punctuate(&mut self, estimated_arrival: Instant) {
        self.watermark = self
            .watermark
            .max(estimated_arrival - self.policy.late_arrival);
    }

    /// No event will follow, so time runs to its end.
    pub fn end(&mut self) {
        self.watermark = Instant::AFTER_ALL;
    }

    /// Appends every held event that the watermark has reached, sorted by (timestamp, handle). No
    /// event released later is earlier.
    pub fn release(&mut self, out: &mut Released) {
        self.held.release(self.watermark, |time, row| {
            out.rows.push(row);
            out.times.push(time);
        });
    }

    pub fn watermark(&self) -> Instant {
        self.watermark
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many events wait for the watermark.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The handles of the events that wait, ascending.
    pub fn waiting(&self) -> Vec<u64> {
        let mut handles: Vec<u64> = self.held.sorted().into_iter().map(|(_, row)| row).collect();
        handles.sort_unstable();
        handles
    }

    /// Appends the state, without the policy, which belongs to the job.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        snapshot::put_instant(out, self.watermark);
        snapshot::put_counts(out, &self.counts);
        self.held.snapshot(out);
    }

    /// Reads what [`Timeline::snapshot`] wrote, and leaves `from` after it.
    pub fn restore(
        policy: Policy,
        clock: Clock,
        from: &mut &[u8],
    ) -> Result<Timeline, RestoreError> {
        snapshot::take_format(from, FORMAT)?;
        Ok(Timeline {
            watermark: snapshot::take_instant(from)?,
            counts: snapshot::take_counts(from)?,
            held: Reorder::restore(from, Instant::AFTER_ALL)?,
            ..Timeline::new(policy, clock)
        })
    }
}

/// An arrival is its own bound. It can lie before the watermark only if a punctuation ran ahead of
/// it, and then it takes the watermark.
const ARRIVAL_POLICY: Policy = Policy {
    late_arrival: Duration::ZERO,
    out_of_order: Duration::ZERO,
    early_arrival: None,
    late_events: Action::Adjust,
    out_of_order_events: Action::Adjust,
    early_events: Action::Adjust,
};
