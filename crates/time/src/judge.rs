//! The one place where an event's timestamp is decided.
//!
//! An arrival allows an event a span of times: not before `arrival - late`, not after
//! `arrival + early`. An event within its span and not before the watermark is on time. That one
//! check is all that most events meet; the rest take the cold path, where the rules are spelled
//! out.

use crate::{Action, Cause, Duration, Instant, Policy, Verdict};

/// The times that an arrival allows. An unknown arrival allows every time.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// Also how far this arrival alone moves the watermark.
    pub earliest: Instant,
    pub latest: Instant,
}

impl Span {
    pub const ALL: Span = Span {
        earliest: Instant::BEFORE_ALL,
        latest: Instant::AFTER_ALL,
    };
}

/// What was decided about one event.
#[derive(Clone, Copy)]
pub(crate) struct Ruling {
    pub verdict: Verdict,
    /// The time assigned; if the event is dropped, the time at which it was.
    pub time: Instant,
}

impl Ruling {
    fn on_time(time: Instant) -> Ruling {
        Ruling {
            verdict: Verdict::ON_TIME,
            time,
        }
    }

    fn broken(self, cause: Cause, action: Action, nearest: Instant) -> Ruling {
        let verdict = self.verdict.and(cause);
        match action {
            Action::Adjust => Ruling {
                verdict,
                time: nearest,
            },
            Action::Drop => Ruling {
                verdict: verdict.and_dropped(),
                time: self.time,
            },
        }
    }

    pub fn timestamp(self) -> Option<Instant> {
        self.verdict.kept().then_some(self.time)
    }

    /// A dropped early event is the only one whose arrival does not count: its clock is wrong, and
    /// nothing about it may move time.
    pub fn moves_time(self) -> bool {
        self.verdict.dropped_by() != Some(Cause::Early)
    }
}

impl Policy {
    /// The same policy without negative tolerances, so that no watermark overtakes its event.
    pub(crate) fn checked(self) -> Policy {
        Policy {
            late_arrival: self.late_arrival.max(Duration::ZERO),
            out_of_order: self.out_of_order.max(Duration::ZERO),
            early_arrival: self.early_arrival.map(|early| early.max(Duration::ZERO)),
            ..self
        }
    }

    #[inline]
    pub(crate) fn span(&self, arrival: Instant) -> Span {
        Span {
            earliest: arrival - self.late_arrival,
            latest: match self.early_arrival {
                Some(early) => arrival + early,
                None => Instant::AFTER_ALL,
            },
        }
    }

    #[inline]
    pub(crate) fn judge(&self, time: Instant, span: Span, met: Instant) -> Ruling {
        if span.earliest.max(met) <= time && time <= span.latest {
            Ruling::on_time(time)
        } else {
            self.judge_stray(time, span, met)
        }
    }

    #[cold]
    fn judge_stray(&self, time: Instant, span: Span, met: Instant) -> Ruling {
        let mut ruling = Ruling::on_time(time);
        if time > span.latest {
            ruling = ruling.broken(Cause::Early, self.early_events, span.latest);
        } else if time < span.earliest {
            ruling = ruling.broken(Cause::Late, self.late_events, span.earliest);
        }
        if ruling.verdict.kept() && ruling.time < met {
            ruling = ruling.broken(Cause::OutOfOrder, self.out_of_order_events, met);
        }
        ruling
    }
}
