//! Bad input by name: each of these must be reported, skipped and survived.

#![allow(
    clippy::disallowed_methods,
    reason = "tests prepare the files that are read"
)]

use std::path::Path;

use highwater_connect::json::{BadJson, Batch, DecodedBatch, Decoder, Field};
use highwater_connect::{Format, ReadError, SourceOptions, open};
use highwater_engine::ValueRef;

fn a() -> Vec<Field> {
    vec![Field::Path(vec!["a".into()])]
}

fn decode_with(fields: Vec<Field>, block: &[u8]) -> DecodedBatch {
    let mut batch = Batch::tracking_lines(fields.len());
    Decoder::new(fields).decode(block, 1, &mut batch);
    batch.finish()
}

fn decode(block: &[u8]) -> DecodedBatch {
    decode_with(a(), block)
}

fn ints(decoded: &DecodedBatch) -> Vec<i64> {
    let ints = (0..decoded.rows).map(|row| int(decoded.columns[0].get(row)));
    ints.collect()
}

fn int(value: ValueRef<'_>) -> i64 {
    match value {
        ValueRef::Int(value) => value,
        other => panic!("{other:?} is not an integer"),
    }
}

/// The only bad line: its number, column and reason.
fn only_bad(decoded: &DecodedBatch) -> (u64, u32, BadJson) {
    assert_eq!(decoded.bad.len(), 1, "{:?}", decoded.bad);
    let bad = &decoded.bad[0];
    assert!(!bad.reason.to_string().is_empty());
    (bad.line, bad.column, bad.reason.clone())
}

/// The events of a file.
#[derive(Default)]
struct FileEvents {
    ints: Vec<i64>,
    lines: Vec<u64>,
    bad: usize,
}

fn decode_file(path: &Path) -> Result<FileEvents, ReadError> {
    let options = SourceOptions {
        format: Some(Format::JsonLines),
        fields: a(),
        ..SourceOptions::default()
    };
    let (mut source, mut all) = (open(path, options)?, FileEvents::default());
    while let Some(events) = source.next_batch()? {
        let ints = (0..events.rows).map(|row| int(events.columns[0].get(row)));
        all.ints.extend(ints);
        all.lines.extend(events.lines);
        all.bad += events.bad.len();
    }
    Ok(all)
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("it can be written");
    file
}

#[test]
fn broken_json_is_left_out_and_its_neighbours_are_kept() {
    let decoded = decode(b"{\"a\":1}\n{\"a\":2,\"b\":}\n{\"a\":3}\n{\"a\":4,}\n{\"a\":5}");
    assert_eq!(ints(&decoded), [1, 3, 5]);
    assert_eq!(decoded.lines, [1, 3, 5]);
    let places: Vec<_> = decoded
        .bad
        .iter()
        .map(|bad| (bad.line, bad.column))
        .collect();
    assert_eq!(places, [(2, 12), (4, 8)]);
    assert_eq!(decoded.bad[0].sample, "{\"a\":2,\"b\":}");
}

#[test]
fn skipped_fields_are_checked_as_strictly_as_wanted_ones() {
    for value in [
        "01",
        "1.",
        "+1",
        "nul",
        "\"\\x\"",
        "\"\\ud800\"",
        "[1,]",
        "{\"x\"}",
        "{\"x\":1,}",
        "'x'",
        "[1}",
        "NaN",
        "1e999",
        "9223372036854775808",
        "{\"x\":99999999999999999999}",
        "\"\x01\"",
    ] {
        let decoded = decode(format!("{{\"a\":1,\"skipped\":{value}}}\n").as_bytes());
        assert_eq!((decoded.rows, decoded.bad.len()), (0, 1), "{value}");
        let decoded = decode(format!("{{\"a\":{value}}}\n").as_bytes());
        assert_eq!((decoded.rows, decoded.bad.len()), (0, 1), "{value}");
    }
}

#[test]
fn anything_but_an_object_is_not_an_event() {
    for (line, found) in [
        ("[1,2]", "an array"),
        ("17", "a number"),
        ("\"text\"", "a text"),
        ("null", "null"),
        ("true", "a boolean"),
    ] {
        let reason = only_bad(&decode(line.as_bytes())).2;
        assert_eq!(reason, BadJson::NotAnObject { found });
    }
    let reason = only_bad(&decode(b"hello")).2;
    assert!(matches!(reason, BadJson::Unexpected { .. }));
}

#[test]
fn two_objects_on_one_line_are_refused() {
    let decoded = decode(b"{\"a\":1} {\"a\":2}\n");
    assert!(matches!(
        only_bad(&decoded),
        (1, 9, BadJson::Trailing { .. })
    ));
}

#[test]
fn an_object_over_several_lines_is_refused_line_by_line() {
    let decoded = decode(b"{\n\"a\":1\n}\n{\"a\":2}\n");
    assert_eq!(ints(&decoded), [2]);
    assert_eq!(decoded.bad.len(), 3);
    assert!(matches!(decoded.bad[0].reason, BadJson::EndsEarly { .. }));
}

#[test]
fn an_empty_file_has_no_events_and_no_complaints() {
    let decoded = decode_file(file(b"").path()).unwrap();
    assert_eq!((decoded.ints.len(), decoded.bad), (0, 0));
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let error = decode_file(Path::new("/no/such/file.jsonl"));
    let error = error.err().expect("there is no such file");
    assert!(error.to_string().contains("/no/such/file.jsonl"));
}

#[test]
fn blank_lines_are_skipped_but_counted() {
    let decoded = decode(b"\n  \t\r\n{\"a\":1}\n\n{\"a\":2}\n \n");
    assert_eq!(ints(&decoded), [1, 2]);
    assert_eq!(decoded.lines, [3, 5]);
    assert!(decoded.bad.is_empty());
}

#[test]
fn lines_may_end_in_carriage_return_and_newline() {
    let decoded = decode(b"{\"a\":1}\r\n{\"a\":2}\r\n\r\n{\"a\":3 \r\n");
    assert_eq!(ints(&decoded), [1, 2]);
    assert_eq!(only_bad(&decoded).0, 4);
    assert_eq!(decoded.bad[0].sample, "{\"a\":3 ");
}

#[test]
fn a_byte_order_mark_starts_a_file_and_nothing_else() {
    assert_eq!(ints(&decode(b"\xef\xbb\xbf{\"a\":1}\n{\"a\":2}")), [1, 2]);
    let from_file = decode_file(file(b"\xef\xbb\xbf{\"a\":1}\n{\"a\":2}").path()).unwrap();
    assert_eq!(from_file.ints, [1, 2]);
    assert_eq!(only_bad(&decode(b"{\"a\":1}\n\xef\xbb\xbf{\"a\":2}")).0, 2);
}

#[test]
fn a_line_of_ten_megabytes_is_read_like_any_other() {
    let mut bytes = b"{\"a\":1}\n{\"long\":\"".to_vec();
    bytes.extend(std::iter::repeat_n(b'x', 10_000_000));
    bytes.extend_from_slice(b"\",\"a\":2}\n{\"a\":3}\n");
    let decoded = decode_file(file(&bytes).path()).unwrap();
    assert_eq!(decoded.ints, [1, 2, 3]);
    assert_eq!(decoded.lines, [1, 2, 3]);
}

#[test]
fn nesting_ten_thousand_deep_is_a_bad_line_and_no_stack_overflow() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for name in ["a", "skipped"] {
            for fields in [
                a(),
                vec![Field::Whole],
                vec![Field::Path(vec!["a".into(); 200])],
            ] {
                let value = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
                let line = format!("{{\"{name}\":{value}}}\n{{}}\n");
                let decoded = decode_with(fields, line.as_bytes());
                assert_eq!(only_bad(&decoded).2, BadJson::TooDeep);
                assert_eq!(decoded.rows, 1);
            }
        }
    }
}

#[test]
fn the_limit_of_nesting_is_the_same_for_what_is_kept_and_what_is_skipped() {
    let line = |levels| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    for fields in [
        vec![],
        a(),
        vec![Field::Whole],
        vec![Field::Path(vec!["b".into()])],
    ] {
        assert_eq!(decode_with(fields.clone(), line(127).as_bytes()).rows, 1);
        assert_eq!(
            only_bad(&decode_with(fields, line(128).as_bytes())).2,
            BadJson::TooDeep
        );
    }
}

#[test]
fn invalid_utf8_spoils_its_own_line_only() {
    let decoded = decode(b"{\"a\":1}\n{\"a\":2,\"b\":\"\xff\xfe\"}\n{\"a\":3}\n\xc3");
    assert_eq!(ints(&decoded), [1, 3]);
    assert_eq!(decoded.lines, [1, 3]);
    let places: Vec<_> = decoded
        .bad
        .iter()
        .map(|bad| (bad.line, bad.column))
        .collect();
    assert_eq!(places, [(2, 13), (4, 1)]);
    assert!(decoded.bad.iter().all(|bad| bad.reason == BadJson::NotUtf8));
}

#[test]
fn nul_bytes_are_refused_inside_and_outside_of_texts() {
    let decoded = decode(b"{\"a\":\"x\0y\"}\n{\"a\":1}\0\n\0\0\0\0\n{\"a\":2}\n");
    assert_eq!(ints(&decoded), [2]);
    assert_eq!(decoded.bad.len(), 3);
    assert!(
        decoded
            .bad
            .iter()
            .all(|bad| bad.reason.to_string().contains("NUL"))
    );
}

#[test]
fn a_file_cut_in_the_middle_of_a_line_loses_that_line_only() {
    let whole = b"{\"a\":1,\"b\":\"\\u00e4x\"}\n{\"a\":2,\"b\":[true,1.5e3]}\n";
    for end in 0..whole.len() {
        let decoded = decode_file(file(&whole[..end]).path()).unwrap();
        let newlines = whole[..end].iter().filter(|&&b| b == b'\n').count();
        let complete = newlines + usize::from(whole[end] == b'\n');
        assert_eq!(decoded.ints.len(), complete, "cut at {end}");
        let started = end > 0 && whole[end - 1] != b'\n' && whole[end] != b'\n';
        assert_eq!(decoded.bad, usize::from(started), "cut at {end}");
    }
}

#[test]
fn numbers_out_of_range_make_the_event_bad() {
    for (number, reason) in [
        ("9223372036854775808", BadJson::IntegerRange),
        ("-9223372036854775809", BadJson::IntegerRange),
        ("1e400", BadJson::FloatRange),
        ("-1e400", BadJson::FloatRange),
    ] {
        for name in ["a", "skipped"] {
            let decoded = decode(format!("{{\"{name}\":{number}}}").as_bytes());
            assert_eq!((decoded.rows, only_bad(&decoded).2), (0, reason.clone()));
        }
    }
    assert_eq!(
        ints(&decode(
            b"{\"a\":9223372036854775807}\n{\"a\":-9223372036854775808}"
        )),
        [i64::MAX, i64::MIN]
    );
}

#[test]
fn names_are_found_exactly_or_by_the_only_match_but_for_case() {
    let decoded = decode(
        b"{\"A\":1}\n{\"A\":1,\"a\":2}\n{\"a\":3,\"A\":4}\n{\"A\":5,\"A\":6}\n{\"\\u0061\":7}\n\
          {\"a\":8,\"\\u0061\":9}\n",
    );
    assert_eq!(ints(&decoded), [1, 2, 3, 6, 7, 9]);
    let wanted = vec![Field::Path(vec!["ab".into()])];
    let decoded = decode_with(
        wanted,
        b"{\"aB\":1,\"Ab\":2}\n{\"aB\":1,\"Ab\":2,\"ab\":3}\n",
    );
    assert!(decoded.columns[0].is_null(0));
    assert!(matches!(decoded.columns[0].get(1), ValueRef::Int(3)));
}

#[test]
fn a_repeated_key_forgets_what_was_inside_the_earlier_one() {
    let wanted = vec![Field::Path(vec!["a".into(), "b".into()])];
    let decoded = decode_with(
        wanted,
        b"{\"a\":{\"b\":1},\"a\":5}\n{\"a\":{\"b\":1},\"a\":{\"b\":2}}\n",
    );
    assert!(decoded.columns[0].is_null(0));
    assert!(matches!(decoded.columns[0].get(1), ValueRef::Int(2)));
}

#[test]
fn objects_with_ever_new_keys_are_still_read_right() {
    let mut block = String::new();
    for i in 0..5000 {
        block.push_str(&format!(
            "{{\"key{i}\":true,\"A\":{i},\"other{i}\":null}}\n"
        ));
    }
    let decoded = decode(block.as_bytes());
    assert_eq!(ints(&decoded), (0..5000).collect::<Vec<i64>>());
}
