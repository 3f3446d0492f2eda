//! Judges whether an event is on time, early, late or out of order, and assigns its timestamp.
//!
//! The arrival bounds the event time: not before `arrival - late_arrival`, not after
//! `arrival + early_arrival`. An event within these bounds and not before the watermark is on time.
//! Most events pass that one check; the others take the cold path, which applies the rules in turn.

use crate::{Duration, Instant, TimePolicy, Verdict, Violation, ViolationAction};

/// The event times that an arrival allows. An unknown arrival allows every time.
#[derive(Clone, Copy)]
pub(crate) struct TimeBounds {
    /// Also the watermark that this arrival alone implies.
    pub earliest: Instant,
    pub latest: Instant,
}

impl TimeBounds {
    pub(crate) const ALL: TimeBounds = TimeBounds {
        earliest: Instant::BEFORE_ALL,
        latest: Instant::AFTER_ALL,
    };
}

/// The verdict on one event and its timestamp.
#[derive(Clone, Copy)]
pub(crate) struct Judgement {
    pub verdict: Verdict,
    /// The assigned timestamp; for a dropped event, its time when it was dropped.
    pub time: Instant,
}

impl Judgement {
    fn on_time(time: Instant) -> Judgement {
        Judgement {
            verdict: Verdict::ON_TIME,
            time,
        }
    }

    fn with_violation(
        self,
        violation: Violation,
        action: ViolationAction,
        nearest: Instant,
    ) -> Judgement {
        let verdict = self.verdict.and(violation);
        match action {
            ViolationAction::Adjust => Judgement {
                verdict,
                time: nearest,
            },
            ViolationAction::Drop => Judgement {
                verdict: verdict.and_dropped(),
                time: self.time,
            },
        }
    }

    pub(crate) fn timestamp(self) -> Option<Instant> {
        self.verdict.kept().then_some(self.time)
    }

    /// Every event but a dropped early one: the clock of an early event is wrong, so its arrival does not count.
    pub(crate) fn advances_watermark(self) -> bool {
        self.verdict.dropped_by() != Some(Violation::Early)
    }
}

impl TimePolicy {
    /// Replaces negative tolerances by zero, so that no watermark overtakes its event.
    pub(crate) fn without_negative_tolerances(self) -> TimePolicy {
        TimePolicy {
            late_arrival: self.late_arrival.max(Duration::ZERO),
            out_of_order: self.out_of_order.max(Duration::ZERO),
            early_arrival: self.early_arrival.map(|early| early.max(Duration::ZERO)),
            ..self
        }
    }

    #[inline]
    pub(crate) fn bounds(&self, arrival: Instant) -> TimeBounds {
        TimeBounds {
            earliest: arrival - self.late_arrival,
            latest: match self.early_arrival {
                Some(early) => arrival + early,
                None => Instant::AFTER_ALL,
            },
        }
    }

    #[inline]
    pub(crate) fn judge_event(
        &self,
        time: Instant,
        bounds: TimeBounds,
        watermark: Instant,
    ) -> Judgement {
        if bounds.earliest.max(watermark) <= time && time <= bounds.latest {
            Judgement::on_time(time)
        } else {
            self.judge_violation(time, bounds, watermark)
        }
    }

    #[cold]
    fn judge_violation(&self, time: Instant, bounds: TimeBounds, watermark: Instant) -> Judgement {
        let mut judgement = Judgement::on_time(time);
        if time > bounds.latest {
            judgement =
                judgement.with_violation(Violation::Early, self.early_events, bounds.latest);
        } else if time < bounds.earliest {
            judgement =
                judgement.with_violation(Violation::Late, self.late_events, bounds.earliest);
        }
        if judgement.verdict.kept() && judgement.time < watermark {
            judgement = judgement.with_violation(
                Violation::OutOfOrder,
                self.out_of_order_events,
                watermark,
            );
        }
        judgement
    }
}
