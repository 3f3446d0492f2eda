//! A time axis and its ticks.

use highwater_time::{
    Instant, TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MILLI, TICKS_PER_MINUTE, TICKS_PER_SECOND,
};

/// The range from `lo` to `hi`, which lie in the calendar and differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    lo: i64,
    hi: i64,
}

/// A labelled position on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub at: Instant,
    pub label: String,
}

impl Axis {
    /// The range of the values plus a margin.
    pub(super) fn with_margin(lo: Instant, hi: Instant) -> Axis {
        let (lo, hi) = (clamped(lo), clamped(hi));
        let margin = ((hi - lo) / 16).max(if hi == lo { TICKS_PER_SECOND } else { 1 });
        let end = Instant::CALENDAR_END.ticks();
        Axis {
            lo: (lo - margin).max(0),
            hi: (hi + margin).min(end),
        }
    }

    pub(super) fn lo(&self) -> Instant {
        Instant::from_ticks(self.lo)
    }

    pub(super) fn hi(&self) -> Instant {
        Instant::from_ticks(self.hi)
    }

    pub(super) fn contains(&self, at: Instant) -> bool {
        (self.lo..=self.hi).contains(&at.ticks())
    }

    /// 0 at the low end, 1 at the high end; outside the range, below 0 or above 1.
    pub(super) fn fraction(&self, at: Instant) -> f64 {
        (at.ticks() as f64 - self.lo as f64) / (self.hi as f64 - self.lo as f64)
    }

    /// Ticks at round times, about `at_most`.
    pub(super) fn ticks(&self, at_most: usize) -> Vec<Tick> {
        let step = self.step(at_most.max(1) as i64);
        let first = self.lo.div_euclid(step) + i64::from(self.lo.rem_euclid(step) != 0);
        (first..)
            .map(|k| k * step)
            .take_while(|at| *at <= self.hi)
            .map(Instant::from_ticks)
            .map(|at| Tick {
                at,
                label: self.label(at, step),
            })
            .collect()
    }

    fn step(&self, at_most: i64) -> i64 {
        let fits = |step: &i64| (self.hi - self.lo) / step < at_most;
        let days = (self.hi - self.lo) / TICKS_PER_DAY / at_most + 1;
        STEPS
            .iter()
            .copied()
            .find(fits)
            .unwrap_or(days * TICKS_PER_DAY)
    }

    fn label(&self, at: Instant, step: i64) -> String {
        let iso = at.to_string();
        let time = match step {
            TICKS_PER_DAY.. => return slice(&iso, 0, 10),
            TICKS_PER_MINUTE.. => slice(&iso, 11, 16),
            TICKS_PER_SECOND.. => slice(&iso, 11, 19),
            TICKS_PER_MILLI.. => slice(&iso, 11, 23),
            _ => slice(&iso, 11, 27),
        };
        if self.is_one_day() {
            time
        } else {
            format!("{} {time}", slice(&iso, 5, 10))
        }
    }

    fn is_one_day(&self) -> bool {
        self.lo().day_number() == self.hi().day_number()
    }

    /// The date, which the labels omit.
    pub(super) fn day(&self) -> String {
        let first = slice(&self.lo().to_string(), 0, 10);
        if self.is_one_day() {
            first
        } else {
            format!("from {first}")
        }
    }
}

/// Date and time for a sentence, with milliseconds if it has any.
pub(super) fn date_and_time(at: Instant) -> String {
    let iso = at.to_string();
    let whole = at.ticks().rem_euclid(TICKS_PER_SECOND) == 0;
    format!(
        "{} {}",
        slice(&iso, 0, 10),
        slice(&iso, 11, if whole { 19 } else { 23 })
    )
}

/// A part of an ISO time; the ends of time have no such parts and stay whole.
fn slice(iso: &str, from: usize, to: usize) -> String {
    iso.get(from..to).unwrap_or(iso).to_owned()
}

fn clamped(at: Instant) -> i64 {
    at.ticks().clamp(0, Instant::CALENDAR_END.ticks())
}

#[rustfmt::skip]
const STEPS: [i64; 46] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000,
    TICKS_PER_MILLI, 2 * TICKS_PER_MILLI, 5 * TICKS_PER_MILLI,
    10 * TICKS_PER_MILLI, 20 * TICKS_PER_MILLI, 50 * TICKS_PER_MILLI,
    100 * TICKS_PER_MILLI, 200 * TICKS_PER_MILLI, 500 * TICKS_PER_MILLI,
    TICKS_PER_SECOND, 2 * TICKS_PER_SECOND, 5 * TICKS_PER_SECOND,
    10 * TICKS_PER_SECOND, 15 * TICKS_PER_SECOND, 30 * TICKS_PER_SECOND,
    TICKS_PER_MINUTE, 2 * TICKS_PER_MINUTE, 5 * TICKS_PER_MINUTE,
    10 * TICKS_PER_MINUTE, 15 * TICKS_PER_MINUTE, 30 * TICKS_PER_MINUTE,
    TICKS_PER_HOUR, 2 * TICKS_PER_HOUR, 3 * TICKS_PER_HOUR,
    6 * TICKS_PER_HOUR, 12 * TICKS_PER_HOUR,
    TICKS_PER_DAY, 2 * TICKS_PER_DAY, 7 * TICKS_PER_DAY,
    14 * TICKS_PER_DAY, 28 * TICKS_PER_DAY, 91 * TICKS_PER_DAY,
    182 * TICKS_PER_DAY, 364 * TICKS_PER_DAY,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Instant {
        Instant::parse_iso(text.as_bytes()).expect("a valid time")
    }

    fn labels(lo: &str, hi: &str) -> Vec<String> {
        let axis = Axis::with_margin(at(lo), at(hi));
        axis.ticks(6).into_iter().map(|t| t.label).collect()
    }

    #[test]
    fn ticks_are_round_and_say_no_more_than_they_must() {
        assert_eq!(
            labels("2026-01-01T12:07:00Z", "2026-01-01T12:27:00Z"),
            ["12:10", "12:15", "12:20", "12:25"]
        );
        assert_eq!(
            labels("2026-01-01T12:00:00Z", "2026-01-01T12:00:20Z"),
            ["12:00:00", "12:00:05", "12:00:10", "12:00:15", "12:00:20"]
        );
        assert_eq!(
            labels("2026-01-01T12:00:00Z", "2026-01-01T12:00:00.002Z").len(),
            5
        );
    }

    #[test]
    fn the_date_appears_when_there_is_more_than_one() {
        let labels_of_two_days = labels("2026-01-01T20:00:00Z", "2026-01-02T04:00:00Z");
        assert_eq!(labels_of_two_days[0], "01-01 20:00");
        assert_eq!(
            labels("2026-01-01T00:00:00Z", "2026-01-20T00:00:00Z")[0],
            "2026-01-05"
        );
    }

    #[test]
    fn no_range_is_too_short_or_too_long() {
        for (lo, hi) in [
            (0, 0),
            (5, 6),
            (0, i64::MAX),
            (i64::MIN, i64::MAX),
            (i64::MAX, i64::MAX),
        ] {
            let axis = Axis::with_margin(Instant::from_ticks(lo), Instant::from_ticks(hi));
            assert!(axis.lo < axis.hi);
            assert!(axis.ticks(8).len() <= 9, "{lo} to {hi}");
        }
    }
}
