//! Parquet files that other programs have written: `data/parquet/make.py` says how, and has the rows from before they
//! were written.

#![allow(
    clippy::disallowed_methods,
    reason = "the test lists the files of its folder"
)]

use std::path::{Path, PathBuf};

use highwater_connect::json::Field;
use highwater_connect::{SourceOptions, open};
use highwater_engine::{ValueRef, eval};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parquet")
}

fn file(name: &str) -> PathBuf {
    folder().join(name)
}

/// The rows of a file, as JSON that was parsed again: `1.0` and `1` are not the same, `1e300` and `1e+300` are.
fn rows(path: &Path) -> Vec<Value> {
    let mut source = open(path, SourceOptions::of(vec![Field::Whole])).unwrap();
    let mut rows = Vec::new();
    while let Some(events) = source.next_batch().unwrap() {
        assert!(
            events.bad.is_empty(),
            "{}: {:?}",
            path.display(),
            events.bad
        );
        for row in 0..events.rows {
            let value: ValueRef = events.columns[0].get(row);
            let mut text = String::new();
            eval::write_json(value, &mut text);
            rows.push(serde_json::from_str(&text).unwrap());
        }
    }
    rows
}

// proves S3
#[test]
fn files_of_other_writers_have_the_rows_that_were_written() {
    let mut tested = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let expected = path.with_extension("jsonl");
        if path.extension().is_none_or(|ending| ending != "parquet") || !expected.exists() {
            continue;
        }
        let expected = std::fs::read_to_string(expected).unwrap();
        let expected: Vec<Value> = expected
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(rows(&path), expected, "{}", path.display());
        tested += 1;
    }
    assert_eq!(tested, 9, "a file without rows to compare");
}

#[test]
fn a_file_of_several_chunks_pages_and_row_groups() {
    let found = rows(&file("long.parquet"));
    assert_eq!(found.len(), 9000);
    for (n, row) in found.into_iter().enumerate() {
        let s = (n % 5 != 0).then(|| format!("v{}", n % 7));
        let l = (n % 3 != 0).then(|| (0..n % 4).collect::<Vec<_>>());
        assert_eq!(row, json!({ "n": n, "s": s, "l": l }));
    }
}

/// Events have no times of day; a query that does not read the column does not fail on it.
// proves S2
#[test]
fn a_type_that_events_cannot_hold_matters_to_queries_that_read_it() {
    let path = file("time-of-day.parquet");
    let only_n = SourceOptions::of(vec![Field::Path(vec!["n".into()])]);
    let events = open(&path, only_n).unwrap().next_batch().unwrap().unwrap();
    assert_eq!(events.rows, 2);
    let whole = SourceOptions::of(vec![Field::Whole]);
    let error = open(&path, whole).unwrap().next_batch().unwrap_err();
    let message = error.to_string();
    assert!(message.contains("`t` is of type INT64 (TIME)"), "{message}");
}
