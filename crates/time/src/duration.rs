//! Lengths of time, and how people write them: `5s`, `150ms`, `1h30m`.
//!
//! Job files and command lines use the text form, so the error for a bad one shows the correct form.

use std::error::Error;
use std::fmt;
use std::ops::{Add, Neg, Sub};

use crate::instant::{
    TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MICRO, TICKS_PER_MILLI, TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
};

/// A length of time in ticks of 100 ns; negative where a rule allows it (window offsets).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Duration(i64);

impl Duration {
    pub const ZERO: Duration = Duration(0);
    pub const MAX: Duration = Duration(i64::MAX);

    pub const fn from_ticks(ticks: i64) -> Duration {
        Duration(ticks)
    }

    pub const fn from_micros(micros: i64) -> Duration {
        Duration(micros.saturating_mul(TICKS_PER_MICRO))
    }

    pub const fn from_millis(millis: i64) -> Duration {
        Duration(millis.saturating_mul(TICKS_PER_MILLI))
    }

    pub const fn from_secs(secs: i64) -> Duration {
        Duration(secs.saturating_mul(TICKS_PER_SECOND))
    }

    pub const fn from_minutes(minutes: i64) -> Duration {
        Duration(minutes.saturating_mul(TICKS_PER_MINUTE))
    }

    pub const fn from_hours(hours: i64) -> Duration {
        Duration(hours.saturating_mul(TICKS_PER_HOUR))
    }

    pub const fn from_days(days: i64) -> Duration {
        Duration(days.saturating_mul(TICKS_PER_DAY))
    }

    pub const fn ticks(self) -> i64 {
        self.0
    }

    /// Reads a sum of whole numbers with units, such as `5s`, `150ms` or `1h30m`.
    pub fn parse(text: &str) -> Result<Duration, DurationError> {
        let fail = |kind| DurationError {
            text: text.to_owned(),
            kind,
        };
        if text.is_empty() {
            return Err(fail(DurationErrorKind::Empty));
        }
        let mut total = 0i64;
        let mut rest = text;
        while !rest.is_empty() {
            let (number, after) = split_where(rest, |c| !c.is_ascii_digit());
            let (unit, after) = split_where(after, |c| !c.is_ascii_alphabetic());
            if number.is_empty() {
                return Err(fail(DurationErrorKind::NoNumber(rest.to_owned())));
            }
            if unit.is_empty() {
                return Err(fail(DurationErrorKind::NoUnit(number.to_owned())));
            }
            let Some(&(_, ticks)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(fail(DurationErrorKind::UnknownUnit(unit.to_owned())));
            };
            let part = number.parse().ok().and_then(|n| in_ticks(n, ticks));
            total = part
                .and_then(|p| total.checked_add(p))
                .ok_or_else(|| fail(DurationErrorKind::TooLong))?;
            rest = after;
        }
        Ok(Duration(total))
    }
}

/// Ticks per unit; negative for units shorter than a tick, as units per tick.
const UNITS: [(&str, i64); 8] = [
    ("d", TICKS_PER_DAY),
    ("h", TICKS_PER_HOUR),
    ("m", TICKS_PER_MINUTE),
    ("s", TICKS_PER_SECOND),
    ("ms", TICKS_PER_MILLI),
    ("us", TICKS_PER_MICRO),
    ("ns", -100),
    ("min", TICKS_PER_MINUTE),
];

fn in_ticks(number: i64, unit: i64) -> Option<i64> {
    if unit > 0 {
        number.checked_mul(unit)
    } else {
        Some(number / -unit)
    }
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// The form that [`Duration::parse`] reads, from the largest unit down; a minus sign if negative.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let mut rest = self.0.unsigned_abs();
        for (name, ticks) in UNITS.into_iter().filter(|(_, ticks)| *ticks > 0) {
            let ticks = ticks.unsigned_abs();
            if rest >= ticks {
                write!(f, "{}{name}", rest / ticks)?;
                rest %= ticks;
            }
        }
        if rest > 0 {
            write!(f, "{}ns", rest * 100)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Saturates.
impl Add for Duration {
    type Output = Duration;

    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

/// Saturates.
impl Sub for Duration {
    type Output = Duration;

    fn sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

/// Saturates.
impl Neg for Duration {
    type Output = Duration;

    fn neg(self) -> Duration {
        Duration(self.0.saturating_neg())
    }
}

/// Why a text is not a duration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DurationError {
    text: String,
    kind: DurationErrorKind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum DurationErrorKind {
    Empty,
    NoNumber(String),
    NoUnit(String),
    UnknownUnit(String),
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a duration: ", self.text)?;
        match &self.kind {
            DurationErrorKind::Empty => f.write_str("it is empty"),
            DurationErrorKind::NoNumber(at) => write!(f, "expected a whole number at {at:?}"),
            DurationErrorKind::NoUnit(number) => write!(f, "{number} has no unit"),
            DurationErrorKind::UnknownUnit(unit) => write!(f, "unknown unit {unit:?}"),
            DurationErrorKind::TooLong => f.write_str("it is longer than 29,000 years"),
        }?;
        f.write_str(
            "; write whole numbers with the units d, h, m (or min), s, ms, us, ns, \
             such as 5s, 150ms or 1h30m",
        )
    }
}

impl Error for DurationError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_write_durations_as_sums_of_units() {
        let cases = [
            ("5s", Duration::from_secs(5)),
            ("150ms", Duration::from_millis(150)),
            ("3m", Duration::from_minutes(3)),
            ("3min", Duration::from_minutes(3)),
            ("2h", Duration::from_hours(2)),
            ("20d", Duration::from_days(20)),
            ("10us", Duration::from_micros(10)),
            ("1h30m", Duration::from_minutes(90)),
            ("700ns", Duration::from_ticks(7)),
            ("0s", Duration::ZERO),
        ];
        for (text, expected) in cases {
            assert_eq!(Duration::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_largest_unit_comes_first_when_a_duration_is_shown() {
        let shown = |ticks| Duration::from_ticks(ticks).to_string();
        assert_eq!(shown(0), "0s");
        assert_eq!(shown(5 * TICKS_PER_MINUTE), "5m");
        assert_eq!(shown(90 * TICKS_PER_MINUTE), "1h30m");
        assert_eq!(shown(-TICKS_PER_MILLI), "-1ms");
        assert_eq!(shown(TICKS_PER_SECOND + 7), "1s700ns");
    }

    #[test]
    fn a_bad_duration_is_answered_with_what_is_allowed() {
        let answer = |text: &str| Duration::parse(text).expect_err(text).to_string();
        let hint = "write whole numbers with the units d, h, m (or min), s, ms, us, ns, \
                    such as 5s, 150ms or 1h30m";
        for (text, reason) in [
            ("", "it is empty"),
            ("5", "5 has no unit"),
            ("5 s", "5 has no unit"),
            ("5parsecs", "unknown unit \"parsecs\""),
            ("-5s", "expected a whole number at \"-5s\""),
            ("1h.5s", "expected a whole number at \".5s\""),
            ("99999999999d", "it is longer than 29,000 years"),
            ("99999999999999999999s", "it is longer than 29,000 years"),
        ] {
            assert_eq!(
                answer(text),
                format!("{text:?} is not a duration: {reason}; {hint}")
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn reading_undoes_showing(ticks in 0..=i64::MAX) {
            let duration = Duration::from_ticks(ticks);
            prop_assert_eq!(Duration::parse(&duration.to_string()), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,12}") {
            let _ = Duration::parse(&text);
        }
    }
}
