//! Compares the rows of a job with the expected rows and describes the differences.
//!
//! Rows are JSON lines. Numbers are equal within one part in a billion, because another engine may add in another
//! order; date-times are equal if they are the same instant; the order of keys does not matter; a missing column
//! differs from NULL. The tolerance makes equality intransitive, so rows in any order are paired by a *matching*; see
//! `matching`.

use std::collections::BTreeMap;
use std::fmt;

use highwater_job::config::Order;

use super::matching;
use super::rows::{Difference, Row, differences, parse_rows};

/// The differences of an output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mismatch {
    /// Number of expected rows.
    pub expected: usize,
    /// Number of actual rows.
    pub actual: usize,
    /// In the order of the expected rows; never empty.
    pub problems: Vec<Problem>,
}

/// The outputs of a case that differ, by name; never empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CaseMismatch {
    pub outputs: BTreeMap<String, Mismatch>,
}

/// One difference of an output. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Problem {
    /// A line of the expected or of the actual rows is not a JSON object.
    NotARow {
        expected: bool,
        line: usize,
        text: String,
        why: String,
    },
    /// An expected row without a similar actual row.
    Missing { line: usize, row: String },
    /// An actual row without a similar expected row.
    Unexpected { line: usize, row: String },
    /// A row with other values.
    Changed {
        expected: (usize, String),
        actual: (usize, String),
        columns: Vec<Difference>,
    },
    /// A row in another position, with strict order.
    Moved { from: usize, to: usize, row: String },
    /// An output with rows, but without a file in `expected/`; these are its first rows.
    UnexpectedOutput { rows: Vec<String> },
    /// A file in `expected/` names an output that the job does not have.
    NoSuchOutput { known: Vec<String> },
}

/// Compares the rows of one output.
pub(super) fn compare(expected: &str, actual: &str, order: Order) -> Result<(), Mismatch> {
    let mut problems = Vec::new();
    let expected = parse_rows(expected, true, &mut problems);
    let actual = parse_rows(actual, false, &mut problems);
    if problems.is_empty() {
        problems = match order {
            Order::Any => unmatched(&expected, &actual),
            Order::Strict => out_of_sequence(&expected, &actual),
        };
    }
    mismatch(expected.len(), actual.len(), problems)
}

/// Compares all outputs of a case. Names are case-insensitive, as in queries. `actual` has an entry for every output of
/// the job, also without rows.
pub(super) fn compare_outputs(
    expected: &BTreeMap<String, String>,
    actual: &BTreeMap<String, String>,
    order: Order,
) -> Result<(), CaseMismatch> {
    let mut mismatches = BTreeMap::new();
    for (name, expected) in expected {
        let compared = match find_output(actual, name) {
            Some(actual) => compare(expected, actual, order),
            None => {
                let known = actual.keys().cloned().collect();
                mismatch(
                    row_count(expected),
                    0,
                    vec![Problem::NoSuchOutput { known }],
                )
            }
        };
        if let Err(mismatch) = compared {
            mismatches.insert(name.clone(), mismatch);
        }
    }
    for (name, actual) in actual {
        let rows = row_count(actual);
        if rows > 0 && find_output(expected, name).is_none() {
            let problems = vec![Problem::UnexpectedOutput {
                rows: first_rows(actual),
            }];
            mismatches.insert(
                name.clone(),
                Mismatch {
                    expected: 0,
                    actual: rows,
                    problems,
                },
            );
        }
    }
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(CaseMismatch {
            outputs: mismatches,
        })
    }
}

fn find_output<'a>(outputs: &'a BTreeMap<String, String>, name: &str) -> Option<&'a String> {
    let same = outputs
        .iter()
        .find(|(other, _)| other.eq_ignore_ascii_case(name));
    outputs.get(name).or(same.map(|(_, text)| text))
}

fn row_count(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

fn first_rows(text: &str) -> Vec<String> {
    let rows = text.lines().map(str::trim).filter(|line| !line.is_empty());
    rows.take(SHOWN_MAX).map(str::to_owned).collect()
}

fn mismatch(expected: usize, actual: usize, problems: Vec<Problem>) -> Result<(), Mismatch> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Mismatch {
            expected,
            actual,
            problems,
        })
    }
}

/// The rows left over after matching, each paired with a similar one if there is one.
fn unmatched(expected: &[Row], actual: &[Row]) -> Vec<Problem> {
    let partners = matching::partners(expected, actual);
    let mut is_matched = vec![false; actual.len()];
    partners
        .iter()
        .flatten()
        .for_each(|partner| is_matched[*partner] = true);
    let missing: Vec<&Row> = expected
        .iter()
        .zip(&partners)
        .filter(|(_, p)| p.is_none())
        .map(|(row, _)| row)
        .collect();
    let extra: Vec<&Row> = actual
        .iter()
        .zip(&is_matched)
        .filter(|(_, is_matched)| !**is_matched)
        .map(|(row, _)| row)
        .collect();
    let similar = matching::nearest_pairs(&missing, &extra);
    let mut problems = Vec::new();
    for (row, pair) in missing.iter().zip(&similar) {
        problems.push(match pair {
            Some(pair) => changed(row, extra[*pair]),
            None => Problem::Missing {
                line: row.line,
                row: row.text.clone(),
            },
        });
    }
    for (i, row) in extra.iter().enumerate() {
        if !similar.contains(&Some(i)) {
            problems.push(Problem::Unexpected {
                line: row.line,
                row: row.text.clone(),
            });
        }
    }
    problems
}

fn changed(expected: &Row, actual: &Row) -> Problem {
    Problem::Changed {
        expected: (expected.line, expected.text.clone()),
        actual: (actual.line, actual.text.clone()),
        columns: differences(&expected.value, &actual.value),
    }
}

/// Wrong rows are reported first; the order is reported only if all rows are right.
fn out_of_sequence(expected: &[Row], actual: &[Row]) -> Vec<Problem> {
    let same = expected.len() == actual.len()
        && expected
            .iter()
            .zip(actual)
            .all(|(e, a)| differences(&e.value, &a.value).is_empty());
    if same {
        return Vec::new();
    }
    let problems = unmatched(expected, actual);
    if !problems.is_empty() {
        return problems;
    }
    let partners = matching::partners(expected, actual);
    let moved = partners
        .iter()
        .enumerate()
        .filter_map(|(from, to)| Some((from, (*to)?)));
    moved
        .filter(|(from, to)| from != to)
        .map(|(from, to)| Problem::Moved {
            from: from + 1,
            to: to + 1,
            row: expected[from].text.clone(),
        })
        .collect()
}

/// Further problems are counted, not shown.
const SHOWN_MAX: usize = 20;

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = |n: usize| {
            if n == 1 {
                "1 row".to_owned()
            } else {
                format!("{n} rows")
            }
        };
        write!(out, "expected {}, got {}", rows(self.expected), self.actual)?;
        for problem in self.problems.iter().take(SHOWN_MAX) {
            write!(out, "\n{problem}")?;
        }
        if self.problems.len() > SHOWN_MAX {
            write!(out, "\n… and {} more", self.problems.len() - SHOWN_MAX)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mismatch {}

impl fmt::Display for CaseMismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, mismatch)) in self.outputs.iter().enumerate() {
            let gap = if i == 0 { "" } else { "\n\n" };
            write!(out, "{gap}output {name}: {mismatch}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CaseMismatch {}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NotARow {
                expected,
                line,
                text,
                why,
            } => {
                let side = if *expected { "expected" } else { "actual" };
                write!(out, "! line {line} of the {side} rows: {why}\n  {text}")
            }
            Problem::Missing { row, .. } => write!(out, "- {row}"),
            Problem::Unexpected { row, .. } => write!(out, "+ {row}"),
            Problem::Changed {
                expected,
                actual,
                columns,
            } => {
                write!(out, "- {}\n+ {}", expected.1, actual.1)?;
                columns
                    .iter()
                    .try_for_each(|column| write!(out, "\n    {column}"))
            }
            Problem::Moved { from, to, row } => {
                write!(out, "~ {row}\n    expected as row {from}, came as row {to}")
            }
            Problem::UnexpectedOutput { rows } => {
                write!(out, "! no file in expected/ names this output")?;
                rows.iter().try_for_each(|row| {
                    write!(
                        out,
                        "
+ {row}"
                    )
                })
            }
            Problem::NoSuchOutput { known } => {
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                };
                write!(out, "! the job has no such output; it has: {known}")
            }
        }
    }
}
