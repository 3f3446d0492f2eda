//! Bad input: counted, named, and never the end of a run.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::io::Write;
use std::path::Path;

use highwater_job::config::JobFile;
use highwater_job::why::why;
use highwater_job::{
    InputErrorKind, InputErrorSample, Job, Options, Outputs, Report, RunError, run,
};

const GOOD: &str = r#"{"id":1,"t":"2026-01-01T00:00:01Z"}"#;
const LAST: &str = r#"{"id":2,"t":"2026-01-01T00:00:02Z"}"#;
const QUERY: &str = "SELECT id INTO out FROM a TIMESTAMP BY t";

fn job(folder: &Path, sql: &str, more: &str) -> Job {
    let text = format!("sql = '''{sql}'''\n[inputs.a]\npath = \"in.jsonl\"\n{more}");
    let file = JobFile::parse(&text, "job.toml").unwrap_or_else(|e| panic!("{e}"));
    Job::new(file.resolve(folder)).unwrap_or_else(|e| panic!("{e}"))
}

struct Ran {
    rows: String,
    report: Report,
}

impl Ran {
    fn errors(&self) -> Vec<(InputErrorKind, u64, Vec<InputErrorSample>)> {
        let errors = self.report.inputs[0].errors.iter();
        errors
            .map(|(kind, sum)| (kind, sum.count, sum.samples.clone()))
            .collect()
    }
}

fn run_text(text: &[u8], sql: &str, more: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.jsonl"), text).unwrap();
    let job = job(folder.path(), sql, more);
    let (outputs, collected) = Outputs::collected(&job.plan);
    let report = run(&job, outputs, Options::default())
        .unwrap_or_else(|e| panic!("{e}"))
        .report;
    // The same lines are lost however the question is asked.
    let lost = why(&job, None)
        .unwrap()
        .iter()
        .filter(|f| f.verdict.starts_with("lost"))
        .count();
    assert_eq!(lost as u64, report.inputs[0].errors.count());
    let rows = collected.lock().unwrap().remove("out").unwrap_or_default();
    Ran {
        rows: String::from_utf8(rows).unwrap(),
        report,
    }
}

/// One bad line between two good ones.
fn one_bad(bad: &[u8], kind: InputErrorKind, reason: &str) {
    one_bad_in(bad, QUERY, "", kind, reason);
}

fn one_bad_in(bad: &[u8], sql: &str, more: &str, kind: InputErrorKind, reason: &str) {
    let text = [GOOD.as_bytes(), b"\n", bad, b"\n", LAST.as_bytes(), b"\n"].concat();
    let ran = run_text(&text, sql, more);
    assert_eq!(ran.rows, "{\"id\":1}\n{\"id\":2}\n");
    assert!(ran.report.lost_data());
    assert_eq!(
        (
            ran.report.inputs[0].events(),
            ran.report.inputs[0].time.kept
        ),
        (3, 2)
    );
    let errors = ran.errors();
    let [(found, 1, samples)] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!(*found, kind);
    let [sample] = &samples[..] else {
        panic!("{samples:?}")
    };
    assert!(sample.file.ends_with("in.jsonl"), "{sample:?}");
    assert_eq!(sample.line, 2);
    assert!(
        sample.reason.contains(reason),
        "{:?} does not say {reason:?}",
        sample.reason
    );
    assert!(sample.event.len() <= 200);
}

// proves S2
#[test]
fn lines_that_are_no_event_are_named() {
    one_bad(
        b"{\"id\":",
        InputErrorKind::Json,
        "ends where a value should follow",
    );
    one_bad(b"{\"id\":3,}", InputErrorKind::Json, "field name");
    one_bad(
        b"nonsense",
        InputErrorKind::Json,
        "expected '{' but found 'n'",
    );
    one_bad(b"null", InputErrorKind::Json, "holds null, not an object");
    one_bad(b"[1,2]", InputErrorKind::Json, "an array, not an object");
    one_bad(
        b"{\"id\":3}{\"id\":4}",
        InputErrorKind::Json,
        "line of its own",
    );
    one_bad(
        b"{\"id\":99999999999999999999}",
        InputErrorKind::Json,
        "64 bits",
    );
    one_bad(b"{\"id\":1e999}", InputErrorKind::Json, "64-bit float");
    one_bad(b"{\"id\":\"\xff\xfe\"}", InputErrorKind::Json, "UTF-8");
    one_bad(b"\x00\x01\x02", InputErrorKind::Json, "NUL");
}

// proves S2
#[test]
fn times_that_are_none_are_named() {
    let kind = InputErrorKind::Timestamp;
    one_bad(br#"{"id":3}"#, kind, "no ISO 8601 date-time");
    one_bad(br#"{"id":3,"t":null}"#, kind, "no ISO 8601 date-time");
    one_bad(br#"{"id":3,"t":"yesterday"}"#, kind, "ISO 8601");
    one_bad(br#"{"id":3,"t":"2026-02-30T00:00:00Z"}"#, kind, "ISO 8601");
    one_bad(br#"{"id":3,"t":17}"#, kind, "ISO 8601");
    one_bad(br#"{"id":3,"t":{"at":1}}"#, kind, "ISO 8601");
}

// proves S2
#[test]
fn a_timestamp_expression_that_fails_is_named() {
    let sql = "SELECT id INTO out FROM a TIMESTAMP BY CAST(t AS datetime)";
    one_bad_in(
        br#"{"id":3,"t":"soon"}"#,
        sql,
        "",
        InputErrorKind::Timestamp,
        "soon",
    );
}

// proves S2 T11
#[test]
fn a_null_key_of_a_substream_is_named() {
    let sql = "SELECT id INTO out FROM a TIMESTAMP BY t OVER id";
    let bad = br#"{"t":"2026-01-01T00:00:01Z"}"#;
    one_bad_in(bad, sql, "", InputErrorKind::Key, "NULL");
}

// proves S2 T1
#[test]
fn a_missing_arrival_is_named() {
    let text = "{\"id\":1,\"t\":\"2026-01-01T00:00:01Z\",\"arr\":\"2026-01-01T00:00:01Z\"}\n\
                {\"id\":2,\"t\":\"2026-01-01T00:00:01Z\"}\n\
                {\"id\":3,\"t\":\"2026-01-01T00:00:01Z\",\"arr\":7}\n";
    let ran = run_text(text.as_bytes(), QUERY, "arrival = \"arr\"");
    assert_eq!(ran.rows, "{\"id\":1}\n");
    let errors = ran.errors();
    let [(InputErrorKind::Arrival, 2, samples)] = &errors[..] else {
        panic!("{errors:?}")
    };
    let lines: Vec<u64> = samples.iter().map(|sample| sample.line).collect();
    assert_eq!(lines, [2, 3]);
}

/// The row is dropped, and the report has the position in the query.
// proves S2
#[test]
fn a_value_of_the_wrong_type_fails_its_row_alone() {
    let text = format!("{GOOD}\n{{\"id\":\"many\",\"t\":\"2026-01-01T00:00:01Z\"}}\n{LAST}\n");
    let sql = "SELECT id + 1 AS id INTO out FROM a TIMESTAMP BY t";
    let ran = run_text(text.as_bytes(), sql, "");
    assert_eq!(ran.rows, "{\"id\":2}\n{\"id\":3}\n");
    assert!(ran.report.lost_data());
    assert_eq!(ran.report.errors.count, 1);
    let error = ran.report.first_error().unwrap();
    assert!(error.reason.contains("many"), "{error:?}");
    assert!(sql[error.span.start as usize..error.span.end as usize].contains("id"));

    let sql =
        "SELECT SUM(id) AS id INTO out FROM a TIMESTAMP BY t GROUP BY TumblingWindow(hour, 1)";
    let ran = run_text(text.as_bytes(), sql, "");
    assert_eq!(
        (ran.rows.as_str(), ran.report.errors.count),
        ("{\"id\":3}\n", 1)
    );
}

#[test]
fn what_is_only_unusual_loses_nothing() {
    let both = "{\"id\":1}\n{\"id\":2}\n";
    for (text, rows) in [
        (String::new(), ""),
        ("\n\n \n".into(), ""),
        (format!("{GOOD}\r\n{LAST}\r\n"), both),
        (format!("\u{feff}{GOOD}\n{LAST}"), both),
        (format!("\n{GOOD}\n\n\n  {LAST}  "), both),
    ] {
        let ran = run_text(text.as_bytes(), QUERY, "");
        assert_eq!(ran.rows, rows, "{text:?}");
        assert!(!ran.report.lost_data(), "{text:?}: {:?}", ran.report);
    }
}

#[test]
fn a_line_of_ten_megabytes_is_an_event() {
    let long = format!(
        "{{\"pad\":\"{}\",\"id\":3,\"t\":\"2026-01-01T00:00:01Z\"}}",
        "x".repeat(10_000_000)
    );
    let ran = run_text(format!("{GOOD}\n{long}\n{LAST}\n").as_bytes(), QUERY, "");
    assert_eq!(ran.rows, "{\"id\":1}\n{\"id\":3}\n{\"id\":2}\n");
    assert!(!ran.report.lost_data());
}

// proves S2
#[test]
fn a_line_beyond_the_limit_is_passed_over() {
    one_bad(
        &vec![b'x'; (64 << 20) + 10],
        InputErrorKind::Json,
        "longer than",
    );
}

// proves S2
#[test]
fn nesting_without_end_is_refused() {
    let deep = format!("{{\"id\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    one_bad(deep.as_bytes(), InputErrorKind::Json, "128 levels");
    let open = format!("{{\"id\":{}", "{\"a\":".repeat(10_000));
    one_bad(open.as_bytes(), InputErrorKind::Json, "128 levels");
}

/// Partitions may be told apart by anything, in any mixture: numbers, text that spells numbers, text that does not.
// proves S2
#[test]
fn partitions_of_mixed_types_are_no_trouble() {
    let mut values = Vec::new();
    for number in (0..100).map(|i| i * 7919 % 300) {
        values.extend([format!("{number}"), format!("\"{number}\"")]);
    }
    check_partitions(&values);
    values.extend(["null", "true", "\"x\"", "[1]", "{\"a\":1}"].map(String::from));
    check_partitions(&values);
}

fn check_partitions(values: &[String]) {
    let line = |p: &String| format!("{{\"id\":1,\"t\":\"2026-01-01T00:00:01Z\",\"p\":{p}}}\n");
    let text: String = values.iter().map(line).collect();
    let ran = run_text(text.as_bytes(), QUERY, "partition = \"p\"");
    assert_eq!(ran.report.inputs[0].time.kept, values.len() as u64);
    assert_eq!(ran.rows.lines().count(), values.len());
}

// proves S2
#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), QUERY, "");
    let outcome = run(&job, Outputs::discarded(&job.plan), Options::default());
    let error = outcome.err().expect("there is nothing to read");
    assert!(matches!(error, RunError::Read(_)));
    let text = error.to_string();
    assert!(
        text.contains("in.jsonl") && text.contains("cannot open"),
        "{text}"
    );
}

/// Cuts the file after its first block has been read.
// proves S2
#[test]
fn a_file_that_is_cut_while_it_is_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = tempfile::Builder::new().tempfile_in(folder.path()).unwrap();
    let lines = format!("{GOOD}\n").repeat(100_000);
    file.write_all(lines.as_bytes()).unwrap();
    file.flush().unwrap();
    std::fs::hard_link(file.path(), folder.path().join("in.jsonl")).unwrap();
    let job = job(folder.path(), QUERY, "");
    let (outputs, _) = Outputs::collected(&job.plan);
    let mut cut = |_: u64| file.as_file().set_len(2_000_000).unwrap();
    let options = Options {
        progress: Some(&mut cut),
        ..Options::default()
    };
    let report = run(&job, outputs, options).unwrap().report;
    assert!(report.lost_data());
    let errors: Vec<_> = report.inputs[0].errors.iter().collect();
    // Complete lines are read, the last one is torn, and the report names the file.
    let kinds: Vec<InputErrorKind> = errors.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [InputErrorKind::Json, InputErrorKind::File]);
    let reason = &errors[1].1.samples[0].reason;
    assert!(
        reason.contains("in.jsonl") && reason.contains("cut short"),
        "{reason}"
    );
    assert_eq!(
        report.inputs[0].time.kept,
        2_000_000 / (GOOD.len() as u64 + 1)
    );
    assert_eq!(report.inputs[0].events(), report.inputs[0].time.kept + 1);
}

// proves S2
#[test]
fn on_error_stop_ends_the_run_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("in.jsonl"),
        format!("{GOOD}\nnonsense\n"),
    )
    .unwrap();
    let job = job(folder.path(), QUERY, "[errors]\non_error = \"stop\"");
    for threads in [1, 2] {
        let options = Options {
            threads,
            ..Options::default()
        };
        let outcome = run(&job, Outputs::discarded(&job.plan), options);
        let error = outcome.err().expect("the second line is bad").to_string();
        assert!(error.contains("in.jsonl:2"), "{error}");
    }
}

/// Random bytes: never a panic, and every line is accounted for.
// proves S2
#[test]
fn no_bytes_can_stop_a_run() {
    use proptest::prelude::*;
    let pieces = prop_oneof![
        Just(GOOD.as_bytes().to_vec()),
        Just(b"\n".to_vec()),
        Just(b"{\"id\":".to_vec()),
        Just(b"\"t\":\"2026-01-01T00:00:0".to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    let config = ProptestConfig::with_cases(500);
    proptest!(config, |(pieces in prop::collection::vec(pieces, 0..12))| {
        let text = pieces.concat();
        let ran = run_text(&text, QUERY, "");
        let input = &ran.report.inputs[0];
        prop_assert_eq!(input.events(), input.time.kept + input.time.dropped() + input.errors.count());
    });
}

/// A-73: an open ring of a polygon is closed, with a remark that is no error.
// proves S1 S2
#[test]
fn rings_that_events_leave_open_are_counted() {
    let line = |id: u32, end: &str| {
        let ring = format!("[[0,0],[4,0],[4,4]{end}]");
        format!(
            r#"{{"id":{id},"t":"2026-01-01T00:00:{id:02}Z","area":{{"type":"Polygon","coordinates":[{ring}]}}}}"#
        )
    };
    let lines = [
        line(1, ",[0,0]"),
        line(2, ""),
        line(3, ""),
        r#"{"id":4,"t":"2026-01-01T00:00:04Z","area":7}"#.to_string(),
        r#"{"id":5,"t":"2026-01-01T00:00:05Z","area":"POLYGON((0 0, 4 0, 4 4))"}"#.to_string(),
    ];
    let sql =
        "SELECT id INTO out FROM a TIMESTAMP BY t WHERE ST_WITHIN(CreatePoint(1, 3), area) = 1";
    let ran = run_text(lines.join("\n").as_bytes(), sql, "");
    assert_eq!(ran.rows, "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n{\"id\":5}\n");
    let errors = &ran.report.errors;
    assert_eq!((errors.count, errors.warnings.count), (1, 3));
    let first = errors.warnings.first.as_ref().expect("one is kept");
    assert_eq!(
        first.reason,
        "a ring does not end where it began, so it was closed"
    );
    assert!(
        first.time.to_string().starts_with("2026-01-01T00:00:02"),
        "{first:?}"
    );
    assert!(sql[first.span.start as usize..].starts_with("ST_WITHIN"));
    // It is counted once for a row of a step, and a run that closes rings has lost nothing.
    let sql = "SELECT id, ST_WITHIN(CreatePoint(1, 3), area) AS i, ST_INTERSECTS(area, area) AS o \
               INTO out FROM a TIMESTAMP BY t";
    let ran = run_text(lines[..3].join("\n").as_bytes(), sql, "");
    assert_eq!(ran.report.errors.warnings.count, 2);
    assert!(!ran.report.lost_data());
}
