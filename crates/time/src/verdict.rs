//! What was decided about an event, and who wants to know.
//!
//! Every event gets exactly one [`Verdict`]. Somebody who asks "where did my event go?" plugs in a
//! [`Witness`] and hears the whole [`Fate`] of each one; the witness `()` hears nothing and costs
//! nothing. [`Counts`] are kept always.

use std::fmt;

use crate::Instant;

/// The bound that an event broke.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    Early,
    Late,
    OutOfOrder,
}

impl Cause {
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Early => "early",
            Cause::Late => "late",
            Cause::OutOfOrder => "out of order",
        }
    }
}

/// Which bounds an event broke, and whether it was kept all the same.
///
/// An event can break two bounds: one that is adjusted for being early or late may still lie
/// before the watermark. If it was dropped, the last bound that it broke is the one that did it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict {
    skewed: Option<Cause>,
    out_of_order: bool,
    kept: bool,
}

impl Verdict {
    pub const ON_TIME: Verdict = Verdict {
        skewed: None,
        out_of_order: false,
        kept: true,
    };

    pub const fn adjusted_for(cause: Cause) -> Verdict {
        Verdict::ON_TIME.and(cause)
    }

    pub const fn dropped_for(cause: Cause) -> Verdict {
        Verdict::ON_TIME.and(cause).and_dropped()
    }

    /// This verdict for an event that broke one more bound.
    pub const fn and(self, cause: Cause) -> Verdict {
        match cause {
            Cause::OutOfOrder => Verdict {
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

    /// Will the event be released in the end?
    pub const fn kept(self) -> bool {
        self.kept
    }

    pub const fn on_time(self) -> bool {
        self.skewed.is_none() && !self.out_of_order
    }

    /// Was it kept with a timestamp other than its own?
    pub const fn adjusted(self) -> bool {
        self.kept && !self.on_time()
    }

    pub const fn dropped_by(self) -> Option<Cause> {
        match self {
            Verdict { kept: true, .. } => None,
            Verdict {
                out_of_order: true, ..
            } => Some(Cause::OutOfOrder),
            Verdict { skewed, .. } => skewed,
        }
    }

    pub const fn broke(self, cause: Cause) -> bool {
        match (cause, self.skewed) {
            (Cause::OutOfOrder, _) => self.out_of_order,
            (Cause::Early, Some(Cause::Early)) | (Cause::Late, Some(Cause::Late)) => true,
            _ => false,
        }
    }

    /// The verdict in words, such as `late: adjusted`.
    pub const fn name(self) -> &'static str {
        match (self.skewed, self.out_of_order, self.kept) {
            (None, false, _) => "on time",
            (None, true, true) => "out of order: adjusted",
            (None, true, false) => "out of order: dropped",
            (Some(Cause::Early), false, true) => "early: adjusted",
            (Some(Cause::Early), false, false) => "early: dropped",
            (Some(Cause::Early), true, true) => "early and out of order: adjusted",
            (Some(Cause::Early), true, false) => "early and out of order: dropped",
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

/// Everything that time has to say about one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fate {
    /// The handle that the event was pushed with.
    pub row: u64,
    /// When it arrived, if that is known; on the arrival clock, its time.
    pub arrival: Option<Instant>,
    /// The event's own time, before any adjustment.
    pub event_time: Instant,
    pub verdict: Verdict,
    /// The watermark that the event met.
    pub met: Instant,
    /// The timestamp that it got, if it was kept.
    pub timestamp: Option<Instant>,
    /// The watermark that it left behind.
    pub watermark: Instant,
    /// The lane of its key, where keys have watermarks of their own.
    pub lane: Option<u32>,
}

/// Hears the fate of every event, in the order of arrival.
pub trait Witness {
    fn judged(&mut self, fate: Fate);
}

/// Nobody asks.
impl Witness for () {
    #[inline(always)]
    fn judged(&mut self, _: Fate) {}
}

/// Everybody's fate, for tests and for `why`.
impl Witness for Vec<Fate> {
    fn judged(&mut self, fate: Fate) {
        self.push(fate);
    }
}

/// How many events met which verdict. Each event read was either kept or dropped by one bound.
///
/// An event that broke two bounds counts as adjusted by the first, whatever the second did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    pub read: u64,
    pub kept: u64,
    pub early_adjusted: u64,
    pub early_dropped: u64,
    pub late_adjusted: u64,
    pub late_dropped: u64,
    pub out_of_order_adjusted: u64,
    pub out_of_order_dropped: u64,
}

impl Counts {
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

    pub fn merge(&mut self, other: &Counts) {
        self.read += other.read;
        self.kept += other.kept;
        self.early_adjusted += other.early_adjusted;
        self.early_dropped += other.early_dropped;
        self.late_adjusted += other.late_adjusted;
        self.late_dropped += other.late_dropped;
        self.out_of_order_adjusted += other.out_of_order_adjusted;
        self.out_of_order_dropped += other.out_of_order_dropped;
    }

    /// Counts the bounds that one event broke. On-time events need not come here.
    pub(crate) fn note(&mut self, verdict: Verdict) {
        let dropped_by = verdict.dropped_by();
        for cause in [Cause::Early, Cause::Late, Cause::OutOfOrder] {
            if verdict.broke(cause) {
                *self.counter(cause, dropped_by == Some(cause)) += 1;
            }
        }
    }

    /// Counts a batch of events, the broken bounds of which have been noted.
    pub(crate) fn note_read(&mut self, events: usize) {
        self.read += events as u64;
        self.kept = self.read - self.dropped();
    }

    fn counter(&mut self, cause: Cause, dropped: bool) -> &mut u64 {
        match (cause, dropped) {
            (Cause::Early, false) => &mut self.early_adjusted,
            (Cause::Early, true) => &mut self.early_dropped,
            (Cause::Late, false) => &mut self.late_adjusted,
            (Cause::Late, true) => &mut self.late_dropped,
            (Cause::OutOfOrder, false) => &mut self.out_of_order_adjusted,
            (Cause::OutOfOrder, true) => &mut self.out_of_order_dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_in_words_what_happened() {
        use Cause::*;
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
        let verdict = Verdict::adjusted_for(Cause::Late)
            .and(Cause::OutOfOrder)
            .and_dropped();
        assert_eq!(verdict.dropped_by(), Some(Cause::OutOfOrder));
        let mut counts = Counts::default();
        counts.note(verdict);
        counts.note_read(3);
        assert_eq!((counts.late_adjusted, counts.out_of_order_dropped), (1, 1));
        assert_eq!((counts.read, counts.kept, counts.dropped()), (3, 2, 1));
    }

    #[test]
    fn a_verdict_is_small() {
        assert!(size_of::<Verdict>() <= 4);
    }
}
