//! Rows, and the equality of values.

use std::fmt;

use highwater_time::Instant;
use serde_json::{Map, Number, Value};

use super::compare::Problem;

/// Relative tolerance of numbers.
const TOLERANCE: f64 = 1e-9;

/// A line that holds a JSON object.
#[derive(Debug)]
pub(super) struct Row {
    /// Counted from 1.
    pub line: usize,
    pub text: String,
    pub value: Value,
}

/// Blank lines are skipped; lines that are not rows become problems.
pub(super) fn parse_rows(text: &str, expected: bool, problems: &mut Vec<Problem>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (i, text) in text
        .lines()
        .enumerate()
        .filter(|(_, text)| !text.trim().is_empty())
    {
        let (line, text) = (i + 1, text.trim().to_owned());
        let why = match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => {
                rows.push(Row { line, text, value });
                continue;
            }
            Ok(_) => "not a JSON object".to_owned(),
            Err(e) => format!("not JSON: {e}"),
        };
        problems.push(Problem::NotARow {
            expected,
            line,
            text,
            why,
        });
    }
    rows
}

/// A column in which two rows differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    /// The path of the value, such as `device.tags[2]`.
    pub column: String,
    /// `None` if the column is not expected.
    pub expected: Option<Value>,
    /// `None` if the column is missing.
    pub actual: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            column,
            expected,
            actual,
        } = self;
        match (expected, actual) {
            (Some(e), Some(a)) => write!(out, "{column}: expected {e}, got {a}"),
            (Some(e), None) => write!(out, "{column}: expected {e}, but the column is missing"),
            (None, Some(a)) => write!(out, "{column}: not expected, got {a}"),
            (None, None) => write!(out, "{column}"),
        }
    }
}

/// All differences of two values; empty if they are equal.
pub(super) fn differences(expected: &Value, actual: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare_at("", expected, actual, &mut found);
    found
}

fn compare_at(path: &str, expected: &Value, actual: &Value, found: &mut Vec<Difference>) {
    match (expected, actual) {
        (Value::Object(e), Value::Object(a)) => compare_objects(path, e, a, found),
        (Value::Array(e), Value::Array(a)) if e.len() == a.len() => {
            for (i, (e, a)) in e.iter().zip(a).enumerate() {
                compare_at(&format!("{path}[{i}]"), e, a, found);
            }
        }
        _ if same_scalar(expected, actual) => {}
        _ => found.push(Difference {
            column: path.to_owned(),
            expected: Some(expected.clone()),
            actual: Some(actual.clone()),
        }),
    }
}

fn compare_objects(
    path: &str,
    expected: &Map<String, Value>,
    actual: &Map<String, Value>,
    found: &mut Vec<Difference>,
) {
    let below = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    for (key, e) in expected {
        let column = below(key);
        match actual.get(key) {
            Some(a) => compare_at(&column, e, a, found),
            None => found.push(Difference {
                column,
                expected: Some(e.clone()),
                actual: None,
            }),
        }
    }
    for (key, a) in actual
        .iter()
        .filter(|(key, _)| !expected.contains_key(*key))
    {
        found.push(Difference {
            column: below(key),
            expected: None,
            actual: Some(a.clone()),
        });
    }
}

fn same_scalar(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Number(e), Value::Number(a)) => e == a || close(number(e), number(a)),
        (Value::String(e), Value::String(a)) => {
            e == a || matches!((instant(e), instant(a)), (Some(e), Some(a)) if e == a)
        }
        _ => expected == actual,
    }
}

pub(super) fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
}

/// serde_json reads no numbers beyond the range of a float.
pub(super) fn number(n: &Number) -> f64 {
    n.as_f64().unwrap_or(f64::NAN)
}

pub(super) fn instant(text: &str) -> Option<Instant> {
    // A bare year or date is ambiguous; a date-time has a time.
    text.contains([':', 'T', 't'])
        .then(|| Instant::parse_iso(text.as_bytes()))?
}
