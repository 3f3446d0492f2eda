//! Section 8.1, and the calendar against one that others wrote.

use highwater_query::functions::{DatePart, DatePart::*, Function, Function::*};
use highwater_time::{Instant, TICKS_PER_DAY};
use jiff::civil::DateTime;
use jiff::{Span, ToSpan, Unit};
use proptest::prelude::*;

use super::*;

// proves S1
#[test]
fn dateadd_adds_units_and_clamps_to_the_end_of_the_month() {
    for (part, count, from, to) in [
        (DatePart::Month, 1, "2024-01-31", "2024-02-29"),
        (DatePart::Month, -1, "2024-03-31", "2024-02-29"),
        (DatePart::Month, 13, "2024-01-31", "2025-02-28"),
        (
            DatePart::Year,
            1,
            "2024-02-29T10:00:00Z",
            "2025-02-28T10:00:00Z",
        ),
        (DatePart::Year, 4, "2024-02-29", "2028-02-29"),
        (Quarter, 1, "2024-11-30", "2025-02-28"),
        (DatePart::Day, 1, "2024-02-28", "2024-02-29"),
        (DayOfYear, 1, "2024-02-28", "2024-02-29"),
        (Weekday, 1, "2024-02-28", "2024-02-29"),
        (Week, -1, "2024-03-05", "2024-02-27"),
        (Hour, 25, "2024-03-05", "2024-03-06T01:00:00Z"),
        (Minute, -1, "2024-01-01", "2023-12-31T23:59:00Z"),
        (Second, 61, "2024-01-01", "2024-01-01T00:01:01Z"),
        (Millisecond, 1, "2024-01-01", "2024-01-01T00:00:00.001Z"),
        (Microsecond, 1, "2024-01-01", "2024-01-01T00:00:00.000001Z"),
        (
            DatePart::Year,
            0,
            "9999-12-31T23:59:59.9999999Z",
            "9999-12-31T23:59:59.9999999Z",
        ),
    ] {
        check_part(DateAdd, part, args![count, time(from)], time(to));
        check_part(DateAdd, part, args![count, from], time(to));
    }
    check_part(
        DateAdd,
        Hour,
        args![1.9, "2024-01-01"],
        time("2024-01-01T01:00:00Z"),
    );
    check_part(
        DateAdd,
        Hour,
        args![-1.9, "2024-01-01"],
        time("2023-12-31T23:00:00Z"),
    );
    check_part(
        DateAdd,
        Hour,
        args!["2", "2024-01-01"],
        time("2024-01-01T02:00:00Z"),
    );
    check_part(
        DateAdd,
        Hour,
        args![true, "2024-01-01"],
        time("2024-01-01T01:00:00Z"),
    );
    check_part(DateAdd, Hour, args![NULL, "no date"], NULL);
    check_part(DateAdd, Hour, args!["no number", NULL], NULL);
}

// proves S2
#[test]
fn dateadd_fails_outside_of_the_calendar_and_for_what_is_no_date() {
    let fails =
        |part, args: &[Value], message: &str| fails_part(DateAdd, Some(part), args, message);
    fails(
        DatePart::Year,
        args![8000, "2024-01-01"],
        "DATEADD(year, 8000, '2024-01-01') lies outside of the years 0001 to 9999",
    );
    fails(
        Microsecond,
        args![-1, time("0001-01-01")],
        "DATEADD(microsecond, -1, 0001-01-01T00:00:00.0000000Z) lies outside of the years 0001 to 9999",
    );
    for part in DatePart::ALL {
        for count in [i64::MIN, i64::MAX] {
            let args = args![count, time("2024-01-01")];
            assert!(answer(DateAdd, Some(part), args).is_err(), "{part:?}");
        }
    }
    fails(
        DatePart::Day,
        args![1, "soon"],
        "argument 3 of DATEADD: cannot read the text 'soon' as a datetime; \
         TRY_CAST(.. AS datetime) gives NULL instead",
    );
    fails(
        DatePart::Day,
        args!["x", "soon"],
        "argument 2 of DATEADD: cannot read the text 'x' as a number; \
         TRY_CAST(.. AS float) gives NULL instead",
    );
    fails(
        DatePart::Day,
        args![1, 5],
        "argument 3 of DATEADD is bigint, but it takes datetime and ISO 8601 text",
    );
}

// proves S1
#[test]
fn datediff_counts_the_boundaries_that_were_crossed() {
    for (part, from, to, expected) in [
        (Hour, "2024-01-01T10:59:00Z", "2024-01-01T11:01:00Z", 1),
        (DatePart::Year, "2024-12-31", "2025-01-01", 1),
        (Quarter, "2024-03-31", "2024-04-01", 1),
        (DatePart::Month, "2024-01-31", "2024-03-01", 2),
        (
            DatePart::Day,
            "2024-03-05T23:59:59Z",
            "2024-03-06T00:00:00Z",
            1,
        ),
        (DayOfYear, "2024-03-05", "2024-03-01", -4),
        (Weekday, "2024-03-01", "2024-03-05", 4),
        (Week, "2024-03-02", "2024-03-03", 1),
        (Week, "2024-03-03", "2024-03-09", 0),
        (
            Minute,
            "2024-01-01T00:00:59.9999999Z",
            "2024-01-01T00:01:00Z",
            1,
        ),
        (Second, "2024-01-01T00:00:01Z", "2024-01-01T00:00:00Z", -1),
        (Millisecond, "2024-01-01", "2024-01-01T00:00:01Z", 1000),
        (
            Microsecond,
            "0001-01-01",
            "9999-12-31T23:59:59.9999999Z",
            315_537_897_599_999_999,
        ),
    ] {
        check_part(DateDiff, part, args![time(from), time(to)], expected);
        check_part(DateDiff, part, args![from, time(to)], expected);
        check_part(DateDiff, part, args![from, to], expected);
        check_part(DateDiff, part, args![to, from], -expected);
    }
    check_part(DateDiff, Hour, args![NULL, "2024-01-01"], NULL);
}

// proves S1
#[test]
fn datepart_and_datename_take_a_date_apart() {
    let date = "2024-03-05T13:14:15.1234567Z";
    for (part, value, name) in [
        (DatePart::Year, 2024, "2024"),
        (Quarter, 1, "1"),
        (DatePart::Month, 3, "March"),
        (DayOfYear, 65, "65"),
        (DatePart::Day, 5, "5"),
        (Week, 10, "10"),
        (Weekday, 3, "Tuesday"),
        (Hour, 13, "13"),
        (Minute, 14, "14"),
        (Second, 15, "15"),
        (Millisecond, 123, "123"),
        (Microsecond, 123_456, "123456"),
    ] {
        check_part(Function::DatePart, part, args![date], value);
        check_part(Function::DatePart, part, args![time(date)], value);
        check_part(DateName, part, args![date], name);
        check_part(DateName, part, args![time(date)], name);
        check_part(Function::DatePart, part, args![NULL], NULL);
        check_part(DateName, part, args![NULL], NULL);
    }
    for (date, week) in [
        ("2023-01-01", 1),
        ("2022-01-01", 1),
        ("2022-01-02", 2),
        ("2024-12-31", 53),
        ("2000-12-31", 54),
    ] {
        check_part(Function::DatePart, Week, args![date], week);
    }
    check_part(Function::DatePart, Weekday, args!["2024-03-03"], 1);
    check_part(Function::DatePart, Weekday, args!["2024-03-02"], 7);
    check(Function::Day, args![date], 5);
    check(Function::Month, args![date], 3);
    check(Function::Year, args![date], 2024);
    check(Function::Year, args![NULL], NULL);
    fails(
        Function::Year,
        args![2024],
        "argument 1 of YEAR is bigint, but it takes datetime and ISO 8601 text",
    );
}

// proves S1
#[test]
fn datetimefromparts_does_not_carry() {
    let expected = time("2024-03-05T01:02:03.004Z");
    check(
        DateTimeFromParts,
        args![2024, 3, 5, 1, 2, 3, 4],
        expected.clone(),
    );
    check(
        DateTimeFromParts,
        args!["2024", 3.9, 5, true, 2, 3, 4],
        expected,
    );
    check(
        DateTimeFromParts,
        args![2024, 2, 29, 0, 0, 0, 0],
        time("2024-02-29"),
    );
    check(DateTimeFromParts, args![2024, 13, 5, 1, 2, 3, NULL], NULL);
    for (at, bad, rule) in [
        (0, 0, "a year lies between 1 and 9999"),
        (0, 10_000, "a year lies between 1 and 9999"),
        (1, 13, "a month lies between 1 and 12"),
        (2, 32, "a day lies between 1 and the length of its month"),
        (3, 24, "an hour lies between 0 and 23"),
        (4, 69, "a minute lies between 0 and 59"),
        (5, 60, "a second lies between 0 and 59"),
        (6, 1000, "a millisecond lies between 0 and 999"),
        (6, -1, "a millisecond lies between 0 and 999"),
    ] {
        let mut parts = [2024, 3, 5, 1, 2, 3, 4].map(Value::Int);
        parts[at] = Value::Int(bad);
        let message = format!(
            "argument {} of DATETIMEFROMPARTS is {bad}, but {rule}",
            at + 1
        );
        fails(DateTimeFromParts, &parts, &message);
    }
    fails(
        DateTimeFromParts,
        args![2023, 2, 29, 0, 0, 0, 0],
        "argument 3 of DATETIMEFROMPARTS is 29, but a day lies between 1 and the length of its month",
    );
}

/// The same instant in the other calendar, which has nanoseconds.
fn other(ticks: i64) -> DateTime {
    let nanos = (ticks % TICKS_PER_DAY * 100).nanoseconds();
    let days = (ticks / TICKS_PER_DAY).days();
    let start = jiff::civil::date(1, 1, 1).at(0, 0, 0, 0);
    start
        .checked_add(days)
        .expect("in range")
        .checked_add(nanos)
        .expect("in range")
}

fn ticks_of(at: DateTime) -> i64 {
    let start = jiff::civil::date(1, 1, 1).at(0, 0, 0, 0);
    let days = at
        .date()
        .since((Unit::Day, start.date()))
        .expect("in range")
        .get_days();
    let time = at
        .time()
        .since(jiff::civil::Time::midnight())
        .expect("in range");
    let nanos = time.total(Unit::Nanosecond).expect("a time of day");
    i64::from(days) * TICKS_PER_DAY + nanos as i64 / 100
}

fn times() -> impl Strategy<Value = i64> {
    let end = Instant::CALENDAR_END.ticks();
    prop_oneof![
        0..=end,
        (0..=end / TICKS_PER_DAY).prop_map(|day| day * TICKS_PER_DAY)
    ]
}

/// As long as `count` units, in a calendar that knows its months.
fn span(part: DatePart, count: i64) -> Option<Span> {
    let span = Span::new();
    match part {
        DatePart::Year => span.try_years(count),
        Quarter => span.try_months(count.checked_mul(3)?),
        DatePart::Month => span.try_months(count),
        DatePart::Day | DayOfYear | Weekday => span.try_days(count),
        Week => span.try_weeks(count),
        Hour => span.try_hours(count),
        Minute => span.try_minutes(count),
        Second => span.try_seconds(count),
        Millisecond => span.try_milliseconds(count),
        Microsecond => span.try_microseconds(count),
    }
    .ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    // proves S1
    #[test]
    fn sums_and_parts_are_those_of_the_other_calendar(
        ticks in times(), count in prop_oneof![-50_i64..50, -100_000_i64..100_000],
    ) {
        let at = other(ticks);
        prop_assert_eq!(ticks_of(at), ticks);
        let date = Value::Time(Instant::from_ticks(ticks));
        for part in DatePart::ALL {
            let sum = span(part, count).and_then(|span| at.checked_add(span).ok());
            let sum = sum.filter(|sum| sum.year() > 0).map(ticks_of);
            let expected = sum.map(|ticks| format!("{:?}", Value::Time(Instant::from_ticks(ticks))));
            let found = answer(DateAdd, Some(part), &[Value::Int(count), date.clone()]).ok();
            prop_assert_eq!(found, expected, "{:?} {} {}", part, count, at);
        }
        for (part, expected) in [
            (DatePart::Year, i64::from(at.year())),
            (DatePart::Month, at.month().into()),
            (DatePart::Day, at.day().into()),
            (DayOfYear, at.day_of_year().into()),
            (Weekday, i64::from(at.weekday().to_sunday_one_offset())),
            (Hour, at.hour().into()),
            (Minute, at.minute().into()),
            (Second, at.second().into()),
            (Millisecond, i64::from(at.subsec_nanosecond()) / 1_000_000),
            (Microsecond, i64::from(at.subsec_nanosecond()) / 1_000),
        ] {
            let found = answer(Function::DatePart, Some(part), std::slice::from_ref(&date));
            prop_assert_eq!(found, Ok(format!("{:?}", Value::Int(expected))), "{:?}", part);
        }
    }

    // proves S1
    #[test]
    fn differences_count_every_boundary_once(ticks in times(), days in 0_i64..200) {
        // Walks from day to day and counts with the other calendar.
        let from = other(ticks);
        let Ok(to) = from.checked_add(days.days()) else { return Ok(()) };
        let mut counts = [0_i64; 5];
        let mut at = from.date();
        while at < to.date() {
            let next = at.tomorrow().expect("in range");
            counts[0] += 1;
            counts[1] += i64::from(next.weekday() == jiff::civil::Weekday::Sunday);
            counts[2] += i64::from(next.month() != at.month());
            counts[3] += i64::from((next.month() - 1) / 3 != (at.month() - 1) / 3);
            counts[4] += i64::from(next.year() != at.year());
            at = next;
        }
        let [from, to] = [from, to].map(|at| Value::Time(Instant::from_ticks(ticks_of(at))));
        let parts = [DatePart::Day, Week, DatePart::Month, Quarter, DatePart::Year];
        for (part, expected) in parts.into_iter().zip(counts) {
            check_part(DateDiff, part, &[from.clone(), to.clone()], expected);
            check_part(DateDiff, part, &[to.clone(), from.clone()], -expected);
        }
    }
}
