//! The verdict on an event: on time, adjusted or dropped, and by which bound.
//!
//! Every event gets exactly one [`Verdict`]. A [`VerdictObserver`] receives a [`JudgedEvent`] for
//! each event; the observer `()` receives nothing and costs nothing. [`VerdictCounts`] are always
//! kept.

use std::fmt;

use crate::Instant;

/// The bound that an event violated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    Early,
    Late,
    OutOfOrder,
}

impl Violation {
    pub const fn name(self) -> &'static str {
        match self {
            Violation::Early => "early",
            Violation::Late => "late",
            Violation::OutOfOrder => "out of order",
        }
    }
}

/// The bounds that an event violated, and whether it was kept.
///
/// An event can violate two bounds: after an adjustment for being early or late it may still be
/// before the watermark. The last violation is the one that dropped it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict {
    skewed: Option<Violation>,
    out_of_order: bool,
    kept: bool,
}

impl Verdict {
    pub const ON_TIME: Verdict = Verdict {
        skewed: None,
        out_of_order: false,
        kept: true,
    };

    pub const fn adjusted_for(violation: Violation) -> Verdict {
        Verdict::ON_TIME.and(violation)
    }

    pub const fn dropped_for(violation: Violation) -> Verdict {
        Verdict::ON_TIME.and(violation).and_dropped()
    }

    /// This verdict with one more violation.
    pub const fn and(self, violation: Violation) -> Verdict {
        match violation {
            Violation::OutOfOrder => Verdict {
                out_of_order: true,
                ..self
            },
            skew => Verdict {
                skewed: Some(skew),
                ..self
            },
        }
    }

    pub(crate) const fn and_dropped(self) -> Verdict {
        Verdict {
            kept: false,
            ..self
        }
    }

    /// Whether the event will be released.
    pub const fn kept(self) -> bool {
        self.kept
    }

    pub const fn on_time(self) -> bool {
        self.skewed.is_none() && !self.out_of_order
    }

    /// Whether the event was kept with a timestamp other than its event time.
    pub const fn adjusted(self) -> bool {
        self.kept && !self.on_time()
    }

    pub const fn dropped_by(self) -> Option<Violation> {
        match self {
            Verdict { kept: true, .. } => None,
            Verdict {
                out_of_order: true, ..
            } => Some(Violation::OutOfOrder),
            Verdict { skewed, .. } => skewed,
        }
    }

    pub const fn violates(self, violation: Violation) -> bool {
        match (violation, self.skewed) {
            (Violation::OutOfOrder, _) => self.out_of_order,
            (Violation::Early, Some(Violation::Early))
            | (Violation::Late, Some(Violation::Late)) => true,
            _ => false,
        }
    }

    /// The verdict in words, such as `late: adjusted`.
    pub const fn name(self) -> &'static str {
        match (self.skewed, self.out_of_order, self.kept) {
            (None, false, _) => "on time",
            (None, true, true) => "out of order: adjusted",
            (None, true, false) => "out of order: dropped",
            (Some(Violation::Early), false, true) => "early: adjusted",
            (Some(Violation::Early), false, false) => "early: dropped",
            (Some(Violation::Early), true, true) => "early and out of order: adjusted",
            (Some(Violation::Early), true, false) => "early and out of order: dropped",
            (Some(_), false, true) => "late: adjusted",
            (Some(_), false, false) => "late: dropped",
            (Some(_), true, true) => "late and out of order: adjusted",
            (Some(_), true, false) => "late and out of order: dropped",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One event with its times, its verdict and the watermarks around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JudgedEvent {
    /// The row number in the [`EventBatch`](crate::EventBatch).
    pub row: u64,
    /// `None` if unknown. In the arrival time domain this is also the event time.
    pub arrival: Option<Instant>,
    /// The event time before any adjustment.
    pub event_time: Instant,
    pub verdict: Verdict,
    /// The watermark that judged the event.
    pub watermark_before: Instant,
    /// The assigned timestamp; `None` if the event was dropped.
    pub timestamp: Option<Instant>,
    pub watermark_after: Instant,
    /// The lane of its key; `None` without substreams.
    pub lane: Option<u32>,
}

/// Receives every event with its verdict, in arrival order.
pub trait VerdictObserver {
    fn on_verdict(&mut self, event: JudgedEvent);
}

/// Ignores all verdicts.
impl VerdictObserver for () {
    #[inline(always)]
    fn on_verdict(&mut self, _: JudgedEvent) {}
}

/// Collects all verdicts, for tests and for `why`.
impl VerdictObserver for Vec<JudgedEvent> {
    fn on_verdict(&mut self, event: JudgedEvent) {
        self.push(event);
    }
}

/// The number of events by verdict. Each event read was either kept or dropped by one bound.
///
/// An event that violated two bounds counts as adjusted by the first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerdictCounts {
    pub read: u64,
    pub kept: u64,
    pub early_adjusted: u64,
    pub early_dropped: u64,
    pub late_adjusted: u64,
    pub late_dropped: u64,
    pub out_of_order_adjusted: u64,
    pub out_of_order_dropped: u64,
}

impl VerdictCounts {
    pub const fn dropped(&self) -> u64 {
        self.early_dropped + self.late_dropped + self.out_of_order_dropped
    }

    pub const fn early(&self) -> u64 {
        self.early_adjusted + self.early_dropped
    }

    pub const fn late(&self) -> u64 {
        self.late_adjusted + self.late_dropped
    }

    pub const fn out_of_order(&self) -> u64 {
        self.out_of_order_adjusted + self.out_of_order_dropped
    }

    pub fn merge(&mut self, other: &VerdictCounts) {
        self.read += other.read;
        self.kept += other.kept;
        self.early_adjusted += other.early_adjusted;
        self.early_dropped += other.early_dropped;
        self.late_adjusted += other.late_adjusted;
        self.late_dropped += other.late_dropped;
        self.out_of_order_adjusted += other.out_of_order_adjusted;
        self.out_of_order_dropped += other.out_of_order_dropped;
    }

    /// Counts the violations of one event. Not needed for events on time.
    pub(crate) fn add_violations(&mut self, verdict: Verdict) {
        let dropped_by = verdict.dropped_by();
        for violation in [Violation::Early, Violation::Late, Violation::OutOfOrder] {
            if verdict.violates(violation) {
                *self.counter(violation, dropped_by == Some(violation)) += 1;
            }
        }
    }

    /// Counts a batch of events after [`VerdictCounts::add_violations`] for those not on time.
    pub(crate) fn add_read(&mut self, events: usize) {
        self.read += events as u64;
        self.kept = self.read - self.dropped();
    }

    fn counter(&mut self, violation: Violation, dropped: bool) -> &mut u64 {
        match (violation, dropped) {
            (Violation::Early, false) => &mut self.early_adjusted,
            (Violation::Early, true) => &mut self.early_dropped,
            (Violation::Late, false) => &mut self.late_adjusted,
            (Violation::Late, true) => &mut self.late_dropped,
            (Violation::OutOfOrder, false) => &mut self.out_of_order_adjusted,
            (Violation::OutOfOrder, true) => &mut self.out_of_order_dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_in_words_what_happened() {
        use Violation::*;
        for (verdict, name) in [
            (Verdict::ON_TIME, "on time"),
            (Verdict::adjusted_for(Late), "late: adjusted"),
            (Verdict::dropped_for(OutOfOrder), "out of order: dropped"),
            (Verdict::dropped_for(Early), "early: dropped"),
            (
                Verdict::adjusted_for(Late).and(OutOfOrder),
                "late and out of order: adjusted",
            ),
        ] {
            assert_eq!(verdict.name(), name);
        }
    }

    #[test]
    fn the_last_bound_broken_is_the_one_that_dropped_the_event() {
        let verdict = Verdict::adjusted_for(Violation::Late)
            .and(Violation::OutOfOrder)
            .and_dropped();
        assert_eq!(verdict.dropped_by(), Some(Violation::OutOfOrder));
        let mut counts = VerdictCounts::default();
        counts.add_violations(verdict);
        counts.add_read(3);
        assert_eq!((counts.late_adjusted, counts.out_of_order_dropped), (1, 1));
        assert_eq!((counts.read, counts.kept, counts.dropped()), (3, 2, 1));
    }

    #[test]
    fn a_verdict_is_small() {
        assert!(size_of::<Verdict>() <= 4);
    }
}
