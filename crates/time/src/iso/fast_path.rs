//! Parses the form that nearly every timestamp has, `yyyy-MM-ddTHH:mm:ss[.f{1,7}]Z`, eight bytes at
//! a time.
//!
//! Eight bytes of text are combined with a [`Template`]: an exclusive or turns digits into their
//! values and correct separators into zeros, so that one comparison detects any wrong byte and one
//! multiplication reads all pairs of digits.

use crate::Instant;
use crate::instant::{TICKS_PER_DAY, TICKS_PER_SECOND, day_number, days_in_month};

const YEAR_MONTH: Template = Template::new(b"0000-00-");
const MONTH_DAY: Template = Template::new(b"0-00-00T");
const CLOCK: Template = Template::new(b"00:00:00");
const TICKS: Template = Template::new(b".0000000");

/// `None` if the text has another form or is invalid.
#[inline]
pub(super) fn parse(text: &[u8]) -> Option<Instant> {
    let (head, tail) = text.split_first_chunk::<19>()?;
    let [century, _, year, _, _, month, ..] = YEAR_MONTH.pairs(*head.first_chunk()?)?;
    let [_, _, _, _, _, day, ..] = MONTH_DAY.pairs(*head[3..].first_chunk()?)?;
    let [hour, _, _, minute, _, _, second, _] = CLOCK.pairs(*head.last_chunk()?)?;
    let fraction = match tail {
        [b'Z'] => 0,
        [b'.', digits @ .., b'Z'] => fraction(tail, digits)?,
        _ => return None,
    };
    let year = i32::from(century) * 100 + i32::from(year);
    let (month, day) = (u32::from(month), u32::from(day));
    let on_the_clock = hour < 24 && minute < 60 && second < 60;
    if year == 0 || !(1..=12).contains(&month) || day == 0 || !on_the_clock {
        return None;
    }
    if day > 28 && day > days_in_month(year, month) {
        return None;
    }
    let seconds = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    let ticks = day_number(year, month, day) * TICKS_PER_DAY + seconds * TICKS_PER_SECOND;
    Some(Instant::from_ticks(ticks + fraction))
}

#[inline]
fn fraction(tail: &[u8], digits: &[u8]) -> Option<i64> {
    if digits.len() != 7 {
        return ticks_of(digits);
    }
    let [a, _, b, _, c, _, d, _] = TICKS.pairs(*tail.first_chunk()?)?.map(i64::from);
    Some(((a * 100 + b) * 100 + c) * 100 + d)
}

/// The ticks in one to seven digits of a fraction of a second.
pub(super) fn ticks_of(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 7 {
        return None;
    }
    let value = digits.iter().try_fold(0, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| value * 10 + i64::from(digit))
    })?;
    const SCALE: [i64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    Some(value * SCALE[7 - digits.len()])
}

/// Matches eight bytes of text: any digit where the template has a 0, elsewhere the template's byte.
struct Template {
    text: u64,
    /// The largest value that can be added to each byte of a matching text without setting its high bit.
    slack: u64,
}

impl Template {
    const fn new(text: &[u8; 8]) -> Template {
        let mut slack = [0x7f; 8];
        let mut i = 0;
        while i < 8 {
            if text[i] == b'0' {
                slack[i] = 0x7f - 9;
            }
            i += 1;
        }
        Template {
            text: u64::from_le_bytes(*text),
            slack: u64::from_le_bytes(slack),
        }
    }

    /// The two-digit numbers: element `i` has the digits `i` and `i + 1`.
    #[inline]
    fn pairs(&self, bytes: [u8; 8]) -> Option<[u8; 8]> {
        let digits = u64::from_le_bytes(bytes) ^ self.text;
        let wrong = (digits.wrapping_add(self.slack) | digits) & 0x8080_8080_8080_8080;
        (wrong == 0).then(|| (digits * 10 + (digits >> 8)).to_le_bytes())
    }
}
