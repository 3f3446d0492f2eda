//! Instants as ISO 8601 text.
//!
//! Nearly every timestamp on the wire has the form `yyyy-MM-ddTHH:mm:ss[.fffffff]Z`, and parsing it
//! is a large part of an event's cost. So that form has a parser of its own (`fast_path.rs`); others
//! use the general one. A property test checks that both agree.
//!
//! Text is always written in that form, with seven digits of fraction.

mod fast_path;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::instant::{
    TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MINUTE, TICKS_PER_SECOND, day_number, days_in_year,
};
use crate::{Duration, Instant};

impl Instant {
    /// Parses an ISO 8601 date, alone or with a time; `None` for other text.
    ///
    /// - Dates are `yyyy-MM-dd`, ordinal `yyyy-DDD` or by week `yyyy-Www-D`, all of them also
    ///   without hyphens. A date alone is its midnight.
    /// - A time follows a `T` or a blank: `HH:mm` or `HH:mm:ss`, also without colons. Seconds may
    ///   have a fraction, truncated to a tick. 24:00 is the next midnight, and there are no leap
    ///   seconds.
    /// - A time may end in `Z`, `±hh:mm`, `±hhmm` or `±hh`; without that it is UTC.
    /// - The instant must be in the years 0001 to 9999, in UTC.
    #[inline]
    pub fn parse_iso(text: &[u8]) -> Option<Instant> {
        fast_path::parse(text).or_else(|| parse_general(text))
    }

    /// Appends `yyyy-MM-ddTHH:mm:ss.fffffffZ`, or `-infinity` or `+infinity` for an end of time.
    pub fn write_iso(self, out: &mut Vec<u8>) {
        match self {
            Instant::BEFORE_ALL => out.extend_from_slice(b"-infinity"),
            Instant::AFTER_ALL => out.extend_from_slice(b"+infinity"),
            _ => self.write_point(out),
        }
    }

    fn write_point(self, out: &mut Vec<u8>) {
        let (year, month, day) = self.civil();
        let time = self.time_of_day().ticks();
        let seconds = (time / TICKS_PER_SECOND) as u32;
        let mut text = *b"0000-00-00T00:00:00.0000000Z";
        put_digits::<4>(&mut text, 0, year.unsigned_abs());
        put_digits::<2>(&mut text, 5, month);
        put_digits::<2>(&mut text, 8, day);
        put_digits::<2>(&mut text, 11, seconds / 3600);
        put_digits::<2>(&mut text, 14, seconds / 60 % 60);
        put_digits::<2>(&mut text, 17, seconds % 60);
        put_digits::<7>(&mut text, 20, (time % TICKS_PER_SECOND) as u32);
        if (0..=9999).contains(&year) {
            out.extend_from_slice(&text);
        } else {
            // Only arithmetic leaves the calendar. The text is for people, not for parsers.
            out.extend_from_slice(year.to_string().as_bytes());
            out.extend_from_slice(&text[4..]);
        }
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(28);
        self.write_iso(&mut text);
        f.pad(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes the last `N` digits of a value.
#[inline]
fn put_digits<const N: usize>(text: &mut [u8; 28], at: usize, mut value: u32) {
    for i in (0..N).rev() {
        text[at + i] = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

#[cold]
fn parse_general(text: &[u8]) -> Option<Instant> {
    let mut scanner = Scanner { rest: text };
    let mut ticks = scanner.date()? * TICKS_PER_DAY;
    if scanner.take(b'T') || scanner.take(b' ') {
        ticks += scanner.time()?;
        ticks -= scanner.zone()?.ticks();
    }
    let instant = Instant::from_ticks(ticks);
    (scanner.rest.is_empty() && instant.is_in_calendar()).then_some(instant)
}

/// The text that is not parsed yet.
struct Scanner<'a> {
    rest: &'a [u8],
}

impl Scanner<'_> {
    fn take(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn digits_ahead(&self) -> usize {
        self.rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    }

    /// A number of exactly `digits` digits.
    fn number(&mut self, digits: usize) -> Option<u32> {
        let (number, rest) = self.rest.split_at_checked(digits)?;
        self.rest = rest;
        number.iter().try_fold(0, |value, byte| {
            byte.is_ascii_digit()
                .then(|| value * 10 + u32::from(byte - b'0'))
        })
    }

    /// The day's number since 0001-01-01.
    fn date(&mut self) -> Option<i64> {
        let year = self.number(4)?;
        let year = i32::try_from(year).ok().filter(|year| *year > 0)?;
        let hyphens = self.take(b'-');
        if self.take(b'W') {
            return self.week_and_day(year, hyphens);
        }
        if self.digits_ahead() == 3 {
            let day = self.number(3)?;
            let exists = (1..=days_in_year(year)).contains(&day);
            return exists.then(|| day_number(year, 1, 1) + i64::from(day) - 1);
        }
        let month = self.number(2)?;
        if hyphens && !self.take(b'-') {
            return None;
        }
        let day = self.number(2)?;
        Instant::from_civil(year, month, day).map(Instant::day_number)
    }

    fn week_and_day(&mut self, year: i32, hyphens: bool) -> Option<i64> {
        let week = self.number(2)?;
        if hyphens && !self.take(b'-') {
            return None;
        }
        let day = self.number(1)?;
        let first = first_monday(year);
        let weeks = (first_monday(year + 1) - first) / 7;
        let exists = (1..=weeks).contains(&i64::from(week)) && (1..=7).contains(&day);
        exists.then(|| first + i64::from(week - 1) * 7 + i64::from(day - 1))
    }

    /// The ticks since midnight.
    fn time(&mut self) -> Option<i64> {
        let hour = self.number(2)?;
        let colons = self.take(b':');
        let minute = self.number(2)?;
        let has_seconds = if colons {
            self.take(b':')
        } else {
            self.digits_ahead() > 0
        };
        let (second, fraction) = if has_seconds {
            (self.number(2)?, self.fraction()?)
        } else {
            (0, 0)
        };
        let ticks = i64::from(hour) * TICKS_PER_HOUR
            + i64::from(minute) * TICKS_PER_MINUTE
            + i64::from(second) * TICKS_PER_SECOND
            + fraction;
        (minute < 60 && second < 60 && ticks <= TICKS_PER_DAY).then_some(ticks)
    }

    /// The ticks in a fraction of a second, truncated.
    fn fraction(&mut self) -> Option<i64> {
        if !self.take(b'.') && !self.take(b',') {
            return Some(0);
        }
        let (digits, rest) = self.rest.split_at(self.digits_ahead());
        self.rest = rest;
        fast_path::ticks_of(&digits[..digits.len().min(7)])
    }

    /// The offset of the local time from UTC.
    fn zone(&mut self) -> Option<Duration> {
        let sign = match self.rest.first() {
            Some(b'Z' | b'z') => {
                self.rest = &self.rest[1..];
                return Some(Duration::ZERO);
            }
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Some(Duration::ZERO),
        };
        self.rest = &self.rest[1..];
        let hours = self.number(2)?;
        let has_minutes = self.take(b':') || self.digits_ahead() > 0;
        let minutes = if has_minutes { self.number(2)? } else { 0 };
        (hours < 24 && minutes < 60)
            .then(|| Duration::from_minutes(sign * i64::from(hours * 60 + minutes)))
    }
}

/// The day on which the first week of a year begins: the week that has its 4th of January.
fn first_monday(year: i32) -> i64 {
    let fourth = day_number(year, 1, 4);
    fourth - fourth.rem_euclid(7)
}
