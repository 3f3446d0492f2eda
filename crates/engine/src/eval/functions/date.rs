//! DATEADD, DATEDIFF, DATEPART and related functions: calendar arithmetic on ticks.
//!
//! DATEDIFF counts crossed boundaries of the unit and not elapsed time: a minute before and a minute after midnight are
//! one day apart. Weeks begin on Sunday, and week 1 contains the first of January.

use highwater_query::functions::DatePart;
use highwater_time::{
    Duration, Instant, TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MICRO, TICKS_PER_MILLI,
    TICKS_PER_MINUTE, TICKS_PER_SECOND,
};

use crate::column::Column;
use crate::eval::fault::{EvalError, display_value};
use crate::eval::operand::{Datum, NumericOperand, Operand};
use crate::value::Value;

use super::call::{Call, Row};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// DATEADD(part, count, date)
pub(super) fn add(call: Call<'_, '_>, part: DatePart) -> Datum {
    if let [count, Datum::Column(Column::Time(times))] = call.args
        && let Some(NumericOperand::Ints(Operand::One(count))) = count.numbers()
    {
        let sums: Option<Vec<i64>> = times
            .values()
            .iter()
            .map(|&ticks| sum(part, count, Instant::from_ticks(ticks)).map(Instant::ticks))
            .collect();
        if let Some(sums) = sums {
            return Datum::ticks(sums, call.args[1].nulls().cloned());
        }
    }
    call.strict(|row, out| {
        let (count, time) = (row.integer(0)?, row.time(1)?);
        let sum = sum(part, count, time).ok_or_else(|| off_calendar(part, row))?;
        out.push_time(sum);
        Ok(())
    })
}

#[cold]
fn off_calendar(part: DatePart, row: Row<'_>) -> EvalError {
    let [count, date] = [row.value(0), row.value(1)].map(display_value);
    EvalError::OffCalendar {
        expression: format!("DATEADD({}, {count}, {date})", part.name()),
    }
}

/// DATEDIFF(part, from, to)
pub(super) fn diff(call: Call<'_, '_>, part: DatePart) -> Datum {
    let [from, to] = call.args else {
        unreachable!("the binder counts arguments")
    };
    let index = |ticks| boundaries(part, Instant::from_ticks(ticks));
    let literal = |arg: &Datum| match arg {
        Datum::Scalar(Value::Text(text)) => {
            Instant::parse_iso(text.as_bytes()).map(|time| Operand::One(time.ticks()))
        }
        _ => None,
    };
    let sides = [from, to].map(|arg| literal(arg).or_else(|| arg.times()));
    let differences: Option<Vec<i64>> = match sides.into() {
        (Some(Operand::Many(from)), Some(Operand::Many(to))) => {
            let pairs = from.iter().zip(to);
            Some(pairs.map(|(&a, &b)| index(b) - index(a)).collect())
        }
        (Some(Operand::Many(from)), Some(Operand::One(to))) => {
            let to = index(to);
            Some(from.iter().map(|&a| to - index(a)).collect())
        }
        (Some(Operand::One(from)), Some(Operand::Many(to))) => {
            let from = index(from);
            Some(to.iter().map(|&b| index(b) - from).collect())
        }
        _ => None,
    };
    if let Some(differences) = differences {
        let nulls = arrow_buffer::NullBuffer::union(from.nulls(), to.nulls());
        return Datum::ints(differences, nulls);
    }
    call.strict(|row, out| {
        let (from, to) = (row.time(0)?, row.time(1)?);
        out.push_int(boundaries(part, to) - boundaries(part, from));
        Ok(())
    })
}

/// DATEPART(part, date), DAY(date), MONTH(date), YEAR(date)
pub(super) fn part(call: Call<'_, '_>, part: DatePart) -> Datum {
    if let [Datum::Column(Column::Time(times))] = call.args {
        let values = times.values().iter();
        let parts = values.map(|&ticks| part_of(part, Instant::from_ticks(ticks)));
        return Datum::ints(parts.collect(), call.args[0].nulls().cloned());
    }
    call.strict(|row, out| {
        out.push_int(part_of(part, row.time(0)?));
        Ok(())
    })
}

/// DATENAME(part, date)
pub(super) fn name(call: Call<'_, '_>, part: DatePart) -> Datum {
    let mut digits = itoa::Buffer::new();
    call.strict(|row, out| {
        let value = part_of(part, row.time(0)?);
        out.push_text(match part {
            DatePart::Month => MONTHS[value as usize - 1],
            DatePart::Weekday => WEEKDAYS[value as usize - 1],
            _ => digits.format(value),
        });
        Ok(())
    })
}

/// DATETIMEFROMPARTS(year, month, day, hour, minute, second, millisecond)
pub(super) fn from_parts(call: Call<'_, '_>) -> Datum {
    /// The range of each part, and the error message. The month bounds the day further.
    const PARTS: [(i64, i64, &str); 7] = [
        (1, 9999, "a year lies between 1 and 9999"),
        (1, 12, "a month lies between 1 and 12"),
        (1, 31, "a day lies between 1 and the length of its month"),
        (0, 23, "an hour lies between 0 and 23"),
        (0, 59, "a minute lies between 0 and 59"),
        (0, 59, "a second lies between 0 and 59"),
        (0, 999, "a millisecond lies between 0 and 999"),
    ];
    call.strict(|row, out| {
        let mut parts = [0; 7];
        for (at, (least, most, rule)) in PARTS.into_iter().enumerate() {
            let part = row.integer(at)?;
            if !(least..=most).contains(&part) {
                return Err(row.wrong_value(at, rule));
            }
            parts[at] = part;
        }
        let [year, month, day, hour, minute, second, milli] = parts;
        let midnight = Instant::from_civil(year as i32, month as u32, day as u32)
            .ok_or_else(|| row.wrong_value(2, PARTS[2].2))?;
        let seconds = (hour * 60 + minute) * 60 + second;
        out.push_time(midnight + Duration::from_millis(seconds * 1000 + milli));
        Ok(())
    })
}

/// Adds months by the calendar, where a day past the end of the month becomes its last day, and other units as a fixed
/// duration. `None` outside of the calendar.
#[inline]
fn sum(part: DatePart, count: i64, time: Instant) -> Option<Instant> {
    let months = match part {
        DatePart::Year => 12,
        DatePart::Quarter => 3,
        DatePart::Month => 1,
        _ => {
            let ticks = count.checked_mul(unit(part))?;
            let sum = Instant::from_ticks(time.ticks().checked_add(ticks)?);
            return sum.is_in_calendar().then_some(sum);
        }
    };
    let (year, month, day) = time.civil();
    let month = count
        .checked_mul(months)?
        .checked_add(i64::from(year) * 12 + i64::from(month) - 1)?;
    let year = i32::try_from(month.div_euclid(12)).ok()?;
    let month = month.rem_euclid(12) as u32 + 1;
    let midnight = (day.min(28)..=day)
        .rev()
        .find_map(|day| Instant::from_civil(year, month, day))?;
    Some(midnight + time.time_of_day())
}

/// The number of unit boundaries between a fixed point and this time.
#[inline]
fn boundaries(part: DatePart, time: Instant) -> i64 {
    match part {
        DatePart::Year => i64::from(time.civil().0),
        DatePart::Quarter => {
            let (year, month, _) = time.civil();
            i64::from(year) * 4 + i64::from((month - 1) / 3)
        }
        DatePart::Month => {
            let (year, month, _) = time.civil();
            i64::from(year) * 12 + i64::from(month)
        }
        DatePart::Week => week(time.day_number()),
        _ => time.ticks().div_euclid(unit(part)),
    }
}

#[inline]
fn part_of(part: DatePart, time: Instant) -> i64 {
    let within = |unit: i64, larger: i64| time.time_of_day().ticks() % larger / unit;
    match part {
        DatePart::Year => i64::from(time.civil().0),
        DatePart::Quarter => i64::from((time.civil().1 - 1) / 3) + 1,
        DatePart::Month => i64::from(time.civil().1),
        DatePart::DayOfYear => time.day_number() - new_year(time) + 1,
        DatePart::Day => i64::from(time.civil().2),
        DatePart::Week => week(time.day_number()) - week(new_year(time)) + 1,
        // Day 0 was a Monday.
        DatePart::Weekday => (time.day_number() + 1).rem_euclid(7) + 1,
        DatePart::Hour => within(TICKS_PER_HOUR, TICKS_PER_DAY),
        DatePart::Minute => within(TICKS_PER_MINUTE, TICKS_PER_HOUR),
        DatePart::Second => within(TICKS_PER_SECOND, TICKS_PER_MINUTE),
        DatePart::Millisecond => within(TICKS_PER_MILLI, TICKS_PER_SECOND),
        DatePart::Microsecond => within(TICKS_PER_MICRO, TICKS_PER_SECOND),
    }
}

/// The number of the week of a day. Weeks begin on Sunday.
fn week(day: i64) -> i64 {
    (day + 1).div_euclid(7)
}

/// The number of the first day of the year.
fn new_year(time: Instant) -> i64 {
    let (year, ..) = time.civil();
    Instant::from_civil(year, 1, 1).map_or(0, Instant::day_number)
}

/// The length of the units with a fixed length.
const fn unit(part: DatePart) -> i64 {
    match part {
        DatePart::Week => 7 * TICKS_PER_DAY,
        DatePart::Hour => TICKS_PER_HOUR,
        DatePart::Minute => TICKS_PER_MINUTE,
        DatePart::Second => TICKS_PER_SECOND,
        DatePart::Millisecond => TICKS_PER_MILLI,
        DatePart::Microsecond => TICKS_PER_MICRO,
        _ => TICKS_PER_DAY,
    }
}
