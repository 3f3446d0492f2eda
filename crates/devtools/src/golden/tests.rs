#![allow(clippy::disallowed_methods, reason = "tests make their own files")]
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use highwater_job::config::Order;

use super::compare::{Mismatch, compare, compare_outputs};
use super::*;

fn any(expected: &str, actual: &str) -> Result<(), Mismatch> {
    compare(expected, actual, Order::Any)
}

#[track_caller]
fn same(expected: &str, actual: &str) {
    for order in [Order::Any, Order::Strict] {
        compare(expected, actual, order).unwrap_or_else(|e| panic!("{order:?}: {e}"));
    }
}

#[track_caller]
fn differ(expected: &str, actual: &str) {
    for order in [Order::Any, Order::Strict] {
        assert!(
            compare(expected, actual, order).is_err(),
            "{order:?}: {expected} {actual}"
        );
    }
}

#[track_caller]
fn check(expected: &str, actual: &str, order: Order, message: &str) {
    let mismatch = compare(expected, actual, order)
        .expect_err("the rows differ")
        .to_string();
    assert_eq!(mismatch.trim(), message.trim(), "\n{mismatch}\n");
}

#[test]
fn numbers_are_equal_within_one_part_in_a_billion() {
    same(r#"{"a": 96.5}"#, r#"{"a": 96.50000000001}"#);
    same(r#"{"a": 2}"#, r#"{"a": 2.0}"#);
    same(r#"{"a": 1e300}"#, r#"{"a": 1.0000000001e300}"#);
    same(r#"{"a": 0}"#, r#"{"a": -0.0}"#);
    differ(r#"{"a": 1}"#, r#"{"a": 1.00000001}"#);
    differ(r#"{"a": 0}"#, r#"{"a": 1e-12}"#);
    differ(r#"{"a": 1}"#, r#"{"a": -1}"#);
}

#[test]
fn date_times_are_equal_if_they_are_the_same_instant() {
    same(
        r#"{"t": "2023-01-01T00:00:10.0000000Z"}"#,
        r#"{"t": "2023-01-01T00:00:10Z"}"#,
    );
    same(
        r#"{"t": "2023-01-01T02:00:00+02:00"}"#,
        r#"{"t": "2023-01-01T00:00:00.000Z"}"#,
    );
    differ(
        r#"{"t": "2023-01-01T00:00:10Z"}"#,
        r#"{"t": "2023-01-01T00:00:10.0000001Z"}"#,
    );
    differ(r#"{"t": "2023-01-01T00:00:10Z"}"#, r#"{"t": "soon"}"#);
    differ(r#"{"t": "abc"}"#, r#"{"t": "ABC"}"#);
}

#[test]
fn a_missing_column_is_not_a_null_and_an_extra_one_is_wrong() {
    same(r#"{"a": null}"#, r#"{"a": null}"#);
    differ(r#"{"a": 1, "b": null}"#, r#"{"a": 1}"#);
    differ(r#"{"a": 1}"#, r#"{"a": 1, "b": null}"#);
    differ(r#"{"a": 1}"#, r#"{"A": 1}"#);
    differ(r#"{"a": "1"}"#, r#"{"a": 1}"#);
}

#[test]
fn key_order_and_blank_lines_mean_nothing() {
    same(
        "{\"a\": 1, \"b\": [1, {\"c\": 2, \"d\": 3}]}\n\n",
        r#"{"b":[1.0,{"d":3,"c":2}],"a":1}"#,
    );
    differ(r#"{"b": [1, 2]}"#, r#"{"b": [2, 1]}"#);
    same("", "\n");
}

#[test]
fn rows_are_a_multiset_unless_the_order_is_strict() {
    let (forth, back) = (
        "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 1}",
        "{\"a\": 1}\n{\"a\": 1}\n{\"a\": 2}",
    );
    assert_eq!(any(forth, back), Ok(()));
    assert!(compare(forth, back, Order::Strict).is_err());
    differ(
        "{\"a\": 1}\n{\"a\": 1}\n{\"a\": 2}",
        "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 2}",
    );
    differ("{\"a\": 1}\n{\"a\": 1}", "{\"a\": 1}");
}

#[test]
fn a_match_is_found_even_where_taking_the_first_near_row_would_spoil_it() {
    // 1.0 is near both actual rows, the other only the first of them.
    let (low, middle, high) = (1.0 - 0.8e-9, 1.0, 1.0 + 0.8e-9);
    let expected = format!("{{\"a\": {middle:?}}}\n{{\"a\": {low:?}}}");
    let nudged = low + 0.3e-9;
    let actual = format!("{{\"a\": {nudged:?}}}\n{{\"a\": {high:?}}}");
    assert_eq!(any(&expected, &actual), Ok(()));
}

#[test]
fn a_changed_row_says_which_column_and_how() {
    check(
        "{\"Make\": \"A\", \"Count\": 2, \"ts\": \"2023-01-01T00:00:10Z\"}\n{\"Make\": \"B\", \"Count\": 1, \"ts\": null}",
        "{\"Make\": \"B\", \"Count\": 1, \"ts\": null}\n{\"Make\": \"A\", \"Count\": 3, \"ts\": \"2023-01-01T00:00:10.000Z\"}",
        Order::Any,
        r#"
expected 2 rows, got 2
- {"Make": "A", "Count": 2, "ts": "2023-01-01T00:00:10Z"}
+ {"Make": "A", "Count": 3, "ts": "2023-01-01T00:00:10.000Z"}
    Count: expected 2, got 3
"#,
    );
}

#[test]
fn rows_that_are_nothing_like_each_other_are_shown_apart() {
    check(
        "{\"a\": 1, \"b\": 2, \"c\": 3}\n{\"x\": {\"y\": [1, 2], \"z\": 1}, \"k\": 1}",
        "{\"a\": 7, \"b\": 8, \"c\": 9}\n{\"x\": {\"y\": [1, 5]}, \"k\": 1, \"n\": null}\n{\"q\": 1}",
        Order::Strict,
        r#"
expected 2 rows, got 3
- {"a": 1, "b": 2, "c": 3}
- {"x": {"y": [1, 2], "z": 1}, "k": 1}
+ {"a": 7, "b": 8, "c": 9}
+ {"x": {"y": [1, 5]}, "k": 1, "n": null}
+ {"q": 1}
"#,
    );
}

#[test]
fn a_difference_deep_in_a_row_is_named_by_its_path() {
    check(
        "{\"k\": 1, \"m\": 2, \"x\": {\"y\": [1, 2]}}",
        "{\"k\": 1, \"m\": 2, \"x\": {\"y\": [1, 5]}}",
        Order::Any,
        r#"
expected 1 row, got 1
- {"k": 1, "m": 2, "x": {"y": [1, 2]}}
+ {"k": 1, "m": 2, "x": {"y": [1, 5]}}
    x.y[1]: expected 2, got 5
"#,
    );
}

#[test]
fn right_rows_in_the_wrong_order_are_said_to_be_just_that() {
    check(
        "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}",
        "{\"a\": 2}\n{\"a\": 1}\n{\"a\": 3}",
        Order::Strict,
        r#"
expected 3 rows, got 3
~ {"a": 1}
    expected as row 1, came as row 2
~ {"a": 2}
    expected as row 2, came as row 1
"#,
    );
}

#[test]
fn a_line_that_is_not_a_row_is_named() {
    let mismatch = any("{\"a\": 1}\n[1]\n", "{\"a\": 1}\n{oops\n")
        .expect_err("not rows")
        .to_string();
    assert!(
        mismatch.contains("line 2 of the expected rows: not a JSON object"),
        "{mismatch}"
    );
    assert!(
        mismatch.contains("line 2 of the actual rows: not JSON"),
        "{mismatch}"
    );
}

#[test]
fn a_long_list_of_problems_is_cut() {
    let rows: String = (0..50).map(|i| format!("{{\"a\": {i}}}\n")).collect();
    let mismatch = any(&rows, "").expect_err("nothing came").to_string();
    assert!(mismatch.ends_with("… and 30 more"), "{mismatch}");
}

#[test]
fn a_hundred_thousand_rows_compare_quickly_in_any_order() {
    let row = |i: usize| format!("{{\"k\": \"{}\", \"v\": {}.5}}\n", i % 1000, i);
    let forth: String = (0..100_000).map(row).collect();
    let back: String = (0..100_000).rev().map(row).collect();
    assert_eq!(any(&forth, &back), Ok(()));
}

fn outputs(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
    texts
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

#[test]
fn outputs_without_files_and_files_without_outputs_are_mismatches() {
    let expected = outputs(&[("a", "{\"a\": 1}"), ("B", "")]);
    let actual = outputs(&[("A", "{\"a\": 1}"), ("C", "{\"a\": 1}\n"), ("D", "")]);
    let mismatches = compare_outputs(&expected, &actual, Order::Any).expect_err("two are wrong");
    assert!(
        mismatches
            .to_string()
            .starts_with("output B: expected 0 rows, got 0\n! the job")
    );
    let mismatches = mismatches.outputs;
    assert_eq!(mismatches.keys().collect::<Vec<_>>(), ["B", "C"]);
    assert!(
        mismatches["B"]
            .to_string()
            .contains("no such output; it has: A, C, D")
    );
    assert!(
        mismatches["C"]
            .to_string()
            .contains("no file in expected/ names this output")
    );
    let actual = outputs(&[("A", "{\"a\": 1}"), ("B", "")]);
    assert_eq!(compare_outputs(&expected, &actual, Order::Any), Ok(()));
}

#[test]
fn cases_are_found_below_a_folder_and_sorted() {
    let root = tempfile::tempdir().expect("a folder");
    let case = |name: &str, job: &str, expected: bool| {
        let folder = root.path().join(name);
        fs::create_dir_all(folder.join(if expected { "expected" } else { "input" }))
            .expect("a folder");
        fs::write(folder.join("job.toml"), job).expect("a file");
        folder
    };
    let deep = case("b/deep", "name = 'x'", true);
    let rejected = case("a", "[expect]\nerror = ''", false);
    case("just-a-job", "name = 'x'", false);
    case(".hidden", "name = 'x'", true);
    fs::create_dir_all(root.path().join("no-job/expected")).expect("a folder");
    fs::write(deep.join("expected/Out.jsonl"), "{}").expect("a file");
    fs::write(deep.join("expected/note.txt"), "").expect("a file");

    let found = discover(&[
        root.path().to_owned(),
        deep.clone(),
        PathBuf::from("/no/such/folder"),
    ]);
    let paths: Vec<_> = found.iter().map(|case| case.dir.clone()).collect();
    assert_eq!(paths, [rejected, deep.clone()]);
    assert_eq!(found[0].name, "a");
    assert_eq!(
        found[1].expected_rows().expect("readable"),
        outputs(&[("Out", "{}")])
    );
    assert!(found[0].expected_rows().expect("none").is_empty());

    let by_job_file = discover(&[deep.join("job.toml")]);
    assert_eq!(by_job_file[0].dir, deep);
    assert_eq!(by_job_file[0].name, "deep");
}

proptest::proptest! {
    #[test]
    fn shuffled_and_nudged_rows_still_match(
        values in proptest::collection::vec((0u8..4, -1e6f64..1e6), 0..40),
        seed: u64,
    ) {
        let row = |(k, v): &(u8, f64)| format!("{{\"k\": \"{k}\", \"v\": {v:?}}}\n");
        let expected: String = values.iter().map(row).collect();
        let mut shuffled: Vec<_> = values.iter().map(|(k, v)| (*k, v * (1.0 + 4e-10))).collect();
        shuffled.sort_by_key(|(k, v)| (v.to_bits() ^ u64::from(*k)).wrapping_mul(seed | 1));
        let actual: String = shuffled.iter().map(row).collect();
        proptest::prop_assert_eq!(any(&expected, &actual), Ok(()));
    }

    #[test]
    fn no_text_makes_the_comparison_panic(a in ".{0,60}", b in "[\\[\\]{}\":,0-9a-z\n ]{0,60}") {
        let _ = any(&a, &b).map_err(|e| e.to_string());
    }
}
