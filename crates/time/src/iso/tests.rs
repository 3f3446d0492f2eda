use proptest::prelude::*;

use super::fast_path::parse as parse_fast;
use super::*;

fn read(text: &str) -> Option<String> {
    let fast = parse_fast(text.as_bytes());
    let general = parse_general(text.as_bytes());
    assert!(
        fast.is_none() || fast == general,
        "two readers, one answer: {text}"
    );
    Instant::parse_iso(text.as_bytes()).map(|instant| instant.to_string())
}

#[track_caller]
fn same(texts: &[&str], expected: &str) {
    for text in texts {
        assert_eq!(read(text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn a_time_is_written_with_seven_digits_and_z() {
    same(&["2026-11-15T09:08:07Z"], "2026-11-15T09:08:07.0000000Z");
    same(&["2026-11-15T09:08:07.12Z"], "2026-11-15T09:08:07.1200000Z");
    assert_eq!(
        format!("{:?}", Instant::CALENDAR_END),
        "9999-12-31T23:59:59.9999999Z"
    );
    assert_eq!(Instant::BEFORE_ALL.to_string(), "-infinity");
    assert_eq!(Instant::AFTER_ALL.to_string(), "+infinity");
    assert_eq!(
        Instant::from_ticks(-1).to_string(),
        "0000-12-31T23:59:59.9999999Z"
    );
    let past_the_end = Instant::CALENDAR_END + Duration::from_ticks(1);
    assert_eq!(past_the_end.to_string(), "10000-01-01T00:00:00.0000000Z");
}

#[test]
fn separator_zone_and_seconds_have_several_forms() {
    same(
        &[
            "2026-11-15T09:08:00Z",
            "2026-11-15T09:08:00z",
            "2026-11-15 09:08:00",
            "2026-11-15T09:08",
            "2026-11-15T0908Z",
            "2026-11-15T090800.0Z",
            "2026-11-15T09:08:00,000Z",
            "2026-11-15T11:08:00+02:00",
            "2026-11-15T11:08:00+0200",
            "2026-11-15T11:08+02",
            "2026-11-15T03:38:00-05:30",
            "2026-11-15T09:08:00-00:00",
        ],
        "2026-11-15T09:08:00.0000000Z",
    );
}

#[test]
fn a_date_alone_is_its_midnight_and_has_six_forms() {
    same(
        &[
            "2026-11-15",
            "20261115",
            "2026-319",
            "2026319",
            "2026-W46-7",
            "2026W467",
        ],
        "2026-11-15T00:00:00.0000000Z",
    );
    same(&["2024-366", "2025-W01-2"], "2024-12-31T00:00:00.0000000Z");
    same(&["2020-W53-7"], "2021-01-03T00:00:00.0000000Z");
}

#[test]
fn digits_past_the_seventh_are_cut_off() {
    same(
        &[
            "2026-11-15T09:08:07.1234567Z",
            "2026-11-15T09:08:07.12345679999Z",
        ],
        "2026-11-15T09:08:07.1234567Z",
    );
}

#[test]
fn hour_24_is_the_next_midnight() {
    same(
        &[
            "2026-12-31T24:00:00Z",
            "2026-12-31T24:00",
            "2026-12-31T24:00:00.000",
        ],
        "2027-01-01T00:00:00.0000000Z",
    );
    assert_eq!(read("2026-12-31T24:00:01Z"), None);
    assert_eq!(read("2026-12-31T24:01Z"), None);
    assert_eq!(read("2026-12-31T25:00Z"), None);
}

#[test]
fn the_range_is_that_of_the_calendar_in_utc() {
    same(&["0001-01-01T01:00+01:00"], "0001-01-01T00:00:00.0000000Z");
    same(&["9999-12-31T24:00+01:00"], "9999-12-31T23:00:00.0000000Z");
    for text in [
        "0000-12-31",
        "0000-12-31T23:00:00Z",
        "0000-12-31T23:00-02:00",
        "0001-01-01T00:59+01:00",
        "9999-12-31T24:00",
        "9999-12-31T23:00-01:00",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn anything_else_is_not_a_time() {
    for text in [
        "",
        "now",
        "2026",
        "2026-11",
        "2026-11-15T",
        "2026-11-15T09",
        "2026-11-15Z",
        " 2026-11-15",
        "2026-11-15 ",
        "2026-11-15T09:08:07ZZ",
        "2026-11-15T09:08:07Z ",
        "2026-11-15T09:08:07 Z",
        "2026-11-15T09:08:07.Z",
        "2026-11-15T09:08:60Z",
        "2026-11-15T09:60:00Z",
        "2026-11-15T9:08:07Z",
        "2026-11-15T09:0807Z",
        "2026-11-15t09:08:07Z",
        "2026-11-15T09:08:07+24:00",
        "2026-11-15T09:08:07+2:00",
        "2026-11-15T09:08:07+02:60",
        "2026-1115",
        "202611-15",
        "2026-02-29",
        "2026-13-01",
        "2026-00-01",
        "2026-01-00",
        "2026-366",
        "2026-000",
        "2026-W00-1",
        "2025-W53-1",
        "2026-W46-8",
        "2026-W46",
        "26-11-15",
        "+2026-11-15",
        "2026-11-15T09:08:0\u{0665}Z",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn reading_undoes_writing(ticks in 0..=Instant::CALENDAR_END.ticks()) {
        let instant = Instant::from_ticks(ticks);
        let mut text = Vec::new();
        instant.write_iso(&mut text);
        prop_assert_eq!(parse_fast(&text), Some(instant));
        prop_assert_eq!(parse_general(&text), Some(instant));
    }

    #[test]
    fn the_two_readers_agree_on_the_common_shape(
        text in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,8})?Z"
    ) {
        let hour_24 = &text[11..13] == "24";
        let long = text.len() > 28;
        let (fast, general) = (parse_fast(text.as_bytes()), parse_general(text.as_bytes()));
        prop_assert!(fast == general || fast.is_none() && (hour_24 || long));
    }

    #[test]
    fn the_fast_reader_never_answers_otherwise(text in "[0-9TZtzW:., +-]{0,30}") {
        let fast = parse_fast(text.as_bytes());
        prop_assert!(fast.is_none() || fast == parse_general(text.as_bytes()));
    }

    #[test]
    fn a_common_text_with_one_byte_changed_gets_one_answer(
        ticks in 0..=Instant::CALENDAR_END.ticks(), at in 0..28usize, byte: u8
    ) {
        let mut text = Vec::new();
        Instant::from_ticks(ticks).write_iso(&mut text);
        text[at] = byte;
        let fast = parse_fast(&text);
        prop_assert!(fast.is_none() || fast == parse_general(&text));
    }

    #[test]
    fn an_offset_is_taken_off(
        ticks in TICKS_PER_DAY..Instant::CALENDAR_END.ticks() - TICKS_PER_DAY, minutes in 0..1440i64
    ) {
        let local = Instant::from_ticks(ticks);
        let text = local.to_string().replace('Z', "");
        let (hours, rest) = (minutes / 60, minutes % 60);
        let offset = Duration::from_minutes(minutes);
        let ahead = format!("{text}+{hours:02}:{rest:02}");
        let behind = format!("{text}-{hours:02}{rest:02}");
        prop_assert_eq!(Instant::parse_iso(ahead.as_bytes()), Some(local - offset));
        prop_assert_eq!(Instant::parse_iso(behind.as_bytes()), Some(local + offset));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(text in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = Instant::parse_iso(&text);
    }
}
