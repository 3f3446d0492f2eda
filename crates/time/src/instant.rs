//! Points in time, as whole ticks of 100 ns.
//!
//! Tick 0 is 0001-01-01T00:00:00Z, the origin of every window grid, so that alignment is integer
//! arithmetic. Two values outside the calendar mean "before all time" and "after all time": a
//! watermark starts at the first and ends at the second, and arithmetic does not change them.

use std::ops::{Add, Sub};

use crate::Duration;

pub const TICKS_PER_MICRO: i64 = 10;
pub const TICKS_PER_MILLI: i64 = 1_000 * TICKS_PER_MICRO;
pub const TICKS_PER_SECOND: i64 = 1_000 * TICKS_PER_MILLI;
pub const TICKS_PER_MINUTE: i64 = 60 * TICKS_PER_SECOND;
pub const TICKS_PER_HOUR: i64 = 60 * TICKS_PER_MINUTE;
pub const TICKS_PER_DAY: i64 = 24 * TICKS_PER_HOUR;

/// 1970-01-01T00:00:00Z.
const UNIX_EPOCH_TICKS: i64 = 719_162 * TICKS_PER_DAY;

const DAYS_BEFORE_MONTH: [u16; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// A point in time, in ticks of 100 ns since 0001-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Instant(i64);

impl Instant {
    pub const BEFORE_ALL: Instant = Instant(i64::MIN);
    pub const AFTER_ALL: Instant = Instant(i64::MAX);

    /// The first instant of the calendar, 0001-01-01T00:00:00Z.
    pub const CALENDAR_START: Instant = Instant(0);
    /// The last instant of the calendar, 9999-12-31T23:59:59.9999999Z.
    pub const CALENDAR_END: Instant = Instant(3_652_059 * TICKS_PER_DAY - 1);

    pub const fn from_ticks(ticks: i64) -> Instant {
        Instant(ticks)
    }

    pub const fn ticks(self) -> i64 {
        self.0
    }

    /// Midnight of a day of the proleptic Gregorian calendar, if there is such a day.
    pub const fn from_civil(year: i32, month: u32, day: u32) -> Option<Instant> {
        if year < 1 || year > 9999 || month < 1 || month > 12 {
            return None;
        }
        if day < 1 || day > days_in_month(year, month) {
            return None;
        }
        Some(Instant(day_number(year, month, day) * TICKS_PER_DAY))
    }

    /// Rounds down to 100 ns and saturates at the ends of time.
    pub const fn from_unix_nanos(nanos: i128) -> Instant {
        let ticks = nanos.div_euclid(100) + UNIX_EPOCH_TICKS as i128;
        if ticks <= i64::MIN as i128 {
            Instant::BEFORE_ALL
        } else if ticks >= i64::MAX as i128 {
            Instant::AFTER_ALL
        } else {
            Instant(ticks as i64)
        }
    }

    pub const fn from_unix_millis(millis: i64) -> Instant {
        Instant::from_unix_nanos(millis as i128 * 1_000_000)
    }

    /// Rounds down to a millisecond.
    pub const fn to_unix_millis(self) -> i64 {
        self.0
            .saturating_sub(UNIX_EPOCH_TICKS)
            .div_euclid(TICKS_PER_MILLI)
    }

    pub const fn to_unix_nanos(self) -> i128 {
        (self.0 as i128 - UNIX_EPOCH_TICKS as i128) * 100
    }

    /// Whether this is [`Instant::BEFORE_ALL`] or [`Instant::AFTER_ALL`].
    pub(crate) const fn is_end_of_time(self) -> bool {
        self.0 == i64::MIN || self.0 == i64::MAX
    }

    /// Whether this is within the years 0001 to 9999.
    pub const fn is_in_calendar(self) -> bool {
        0 <= self.0 && self.0 <= Instant::CALENDAR_END.0
    }

    /// Whole days since 0001-01-01, which was a Monday.
    pub const fn day_number(self) -> i64 {
        self.0.div_euclid(TICKS_PER_DAY)
    }

    /// The time since midnight.
    pub const fn time_of_day(self) -> Duration {
        Duration::from_ticks(self.0.rem_euclid(TICKS_PER_DAY))
    }

    /// Year, month (1 to 12) and day of the month (1 to 31).
    pub const fn civil(self) -> (i32, u32, u32) {
        // In years that begin in March the leap day is last and month lengths are regular.
        const DAYS_PER_ERA: i64 = 146_097;
        let days = self.day_number() + 306;
        let era = days.div_euclid(DAYS_PER_ERA) as i32;
        let day = days.rem_euclid(DAYS_PER_ERA) as u32;
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let year = era * 400 + year as i32;
        if month < 10 {
            (year, month + 3, day)
        } else {
            (year + 1, month - 9, day)
        }
    }

    /// The earliest point of the grid `k * size + offset` that is not before this instant: the end
    /// of the tumbling window `(end - size, end]` that contains it. Saturates at the ends of time.
    ///
    /// # Panics
    ///
    /// If `size` is not positive; the query compiler rejects such windows.
    pub const fn ceil_to(self, size: Duration, offset: Duration) -> Instant {
        let size = size.ticks();
        assert!(size > 0, "a window has a positive size");
        if self.is_end_of_time() {
            return self;
        }
        let gap = offset.ticks().rem_euclid(size) - self.0.rem_euclid(size);
        Instant(
            self.0
                .saturating_add(if gap < 0 { gap + size } else { gap }),
        )
    }
}

/// Saturates, and does not change the two ends of time.
impl Add<Duration> for Instant {
    type Output = Instant;

    #[inline]
    fn add(self, d: Duration) -> Instant {
        if self.is_end_of_time() {
            self
        } else {
            Instant(self.0.saturating_add(d.ticks()))
        }
    }
}

/// Saturates, and does not change the two ends of time.
impl Sub<Duration> for Instant {
    type Output = Instant;

    #[inline]
    fn sub(self, d: Duration) -> Instant {
        if self.is_end_of_time() {
            self
        } else {
            Instant(self.0.saturating_sub(d.ticks()))
        }
    }
}

/// Saturates.
impl Sub<Instant> for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_ticks(self.0.saturating_sub(earlier.0))
    }
}

const fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(crate) const fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

pub(crate) const fn days_in_year(year: i32) -> u32 {
    if is_leap(year) { 366 } else { 365 }
}

/// Days from 0001-01-01 to a valid date.
#[inline]
pub(crate) const fn day_number(year: i32, month: u32, day: u32) -> i64 {
    let past = year - 1;
    let leap_days = past / 4 - past / 100 + past / 400 + (month > 2 && is_leap(year)) as i32;
    let days = past * 365 + leap_days + DAYS_BEFORE_MONTH[month as usize - 1] as i32;
    days as i64 + day as i64 - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_runs_from_year_1_to_year_9999() {
        assert_eq!(Instant::from_civil(1, 1, 1), Some(Instant::CALENDAR_START));
        let last_day = Instant::from_civil(9999, 12, 31).expect("a day");
        assert_eq!(
            last_day + Duration::from_ticks(TICKS_PER_DAY - 1),
            Instant::CALENDAR_END
        );
        for (year, month, day) in [(0, 1, 1), (10_000, 1, 1), (2023, 2, 29), (2024, 13, 1)] {
            assert_eq!(Instant::from_civil(year, month, day), None);
        }
    }

    #[test]
    fn every_day_of_the_calendar_survives_the_way_to_its_parts_and_back() {
        let mut expected = 0;
        for year in 1..=9999 {
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    let instant = Instant::from_civil(year, month, day).expect("a day");
                    assert_eq!(instant.day_number(), expected);
                    assert_eq!(instant.civil(), (year, month, day));
                    expected += 1;
                }
            }
        }
    }

    #[test]
    fn unix_time_is_cut_off_towards_the_past() {
        let epoch = Instant::from_civil(1970, 1, 1).expect("a day");
        assert_eq!(Instant::from_unix_millis(0), epoch);
        assert_eq!(
            Instant::from_unix_nanos(199),
            epoch + Duration::from_ticks(1)
        );
        assert_eq!(
            Instant::from_unix_nanos(-1),
            epoch - Duration::from_ticks(1)
        );
        assert_eq!((epoch - Duration::from_ticks(1)).to_unix_millis(), -1);
        assert_eq!(
            Instant::from_unix_millis(-62_135_596_800_000),
            Instant::CALENDAR_START
        );
        assert_eq!(Instant::from_unix_nanos(i128::MAX / 2), Instant::AFTER_ALL);
    }

    #[test]
    fn arithmetic_leaves_the_ends_of_time_alone() {
        let day = Duration::from_days(1);
        assert_eq!(Instant::BEFORE_ALL + day, Instant::BEFORE_ALL);
        assert_eq!(Instant::AFTER_ALL - day, Instant::AFTER_ALL);
        assert_eq!(Instant::from_ticks(i64::MIN + 1) - day, Instant::BEFORE_ALL);
        assert_eq!(
            Instant::AFTER_ALL - Instant::BEFORE_ALL,
            Duration::from_ticks(i64::MAX)
        );
    }

    #[test]
    fn a_window_holds_its_end_but_not_its_start() {
        let at = |millis| Instant::from_ticks(millis * TICKS_PER_MILLI);
        let ten = Duration::from_secs(10);
        let ends = |offset| [0, 3_000, 10_000, 10_500, 20_000].map(|t| at(t).ceil_to(ten, offset));
        assert_eq!(
            ends(Duration::ZERO),
            [0, 10_000, 10_000, 20_000, 20_000].map(at)
        );
        let shifted = Duration::ZERO - Duration::from_millis(1);
        assert_eq!(
            ends(shifted),
            [9_999, 9_999, 19_999, 19_999, 29_999].map(at)
        );
    }

    #[test]
    fn the_grid_is_exact_up_to_the_ends_of_time() {
        let size = Duration::from_ticks(7);
        let offset = Duration::from_ticks(-100);
        for ticks in [
            i64::MIN + 1,
            i64::MIN + 50,
            -8,
            -7,
            -1,
            0,
            1,
            6,
            7,
            i64::MAX - 20,
        ] {
            let end = Instant::from_ticks(ticks).ceil_to(size, offset).ticks();
            assert!((0..7).contains(&(end as i128 - ticks as i128)));
            assert_eq!((end as i128 + 100).rem_euclid(7), 0);
        }
        assert_eq!(Instant::AFTER_ALL.ceil_to(size, offset), Instant::AFTER_ALL);
        assert_eq!(
            Instant::BEFORE_ALL.ceil_to(size, offset),
            Instant::BEFORE_ALL
        );
        let nearly = Instant::from_ticks(i64::MAX - 1);
        assert_eq!(
            nearly.ceil_to(Duration::from_days(1), Duration::ZERO),
            Instant::AFTER_ALL
        );
    }
}
