//! Compares the rows of a job with the expected rows and says how they differ.
//!
//! Rows are JSON lines. Numbers are equal within one part in a billion, because a sum may be folded
//! by another engine in another order; two date-times are equal if they are the same instant,
//! however they are written; the order of keys in an object means nothing. A missing column is not
//! a NULL. This tolerance makes equality intransitive, so rows that may come in any order have to be
//! *matched*, which `matching` does.

use std::collections::BTreeMap;
use std::fmt;

use highwater_job::config::Order;

use super::matching;
use super::rows::{Difference, Row, differences, parse_rows};

/// Rows that were to come and rows that came, where these are not the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mismatch {
    /// How many rows were expected.
    pub expected: usize,
    /// How many rows came.
    pub actual: usize,
    /// In the order of the expected rows; never empty.
    pub problems: Vec<Problem>,
}

/// The outputs of a case that are not as expected, by name; never empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CaseMismatch {
    pub outputs: BTreeMap<String, Mismatch>,
}

/// One thing that is wrong with an output. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Problem {
    /// A line of the expected or of the actual rows is not a JSON object.
    NotARow {
        expected: bool,
        line: usize,
        text: String,
        why: String,
    },
    /// Expected, but nothing like it came.
    Missing { line: usize, row: String },
    /// It came, but nothing like it was expected.
    Unexpected { line: usize, row: String },
    /// It came with other values.
    Changed {
        expected: (usize, String),
        actual: (usize, String),
        columns: Vec<Difference>,
    },
    /// It came in another place, where the order counts.
    Moved { from: usize, to: usize, row: String },
    /// A whole output came that no file in `expected/` names; these are its first rows.
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

/// Compares all outputs of a case, by name in any case of letters, as in queries. `actual` has an
/// entry for every output that the job has, even if no row came.
pub(super) fn compare_outputs(
    expected: &BTreeMap<String, String>,
    actual: &BTreeMap<String, String>,
    order: Order,
) -> Result<(), CaseMismatch> {
    let mut mismatches = BTreeMap::new();
    for (name, expected) in expected {
        let compared = match named(actual, name) {
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
        if rows > 0 && named(expected, name).is_none() {
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

fn named<'a>(outputs: &'a BTreeMap<String, String>, name: &str) -> Option<&'a String> {
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

/// What is left when every row that can be matched is.
fn unmatched(expected: &[Row], actual: &[Row]) -> Vec<Problem> {
    let partners = matching::partners(expected, actual);
    let mut came = vec![false; actual.len()];
    partners
        .iter()
        .flatten()
        .for_each(|partner| came[*partner] = true);
    let missing: Vec<&Row> = expected
        .iter()
        .zip(&partners)
        .filter(|(_, p)| p.is_none())
        .map(|(row, _)| row)
        .collect();
    let extra: Vec<&Row> = actual
        .iter()
        .zip(&came)
        .filter(|(_, came)| !**came)
        .map(|(row, _)| row)
        .collect();
    let likeness = matching::nearest_pairs(&missing, &extra);
    let mut problems = Vec::new();
    for (row, like) in missing.iter().zip(&likeness) {
        problems.push(match like {
            Some(like) => changed(row, extra[*like]),
            None => Problem::Missing {
                line: row.line,
                row: row.text.clone(),
            },
        });
    }
    for (i, row) in extra.iter().enumerate() {
        if !likeness.contains(&Some(i)) {
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

/// Rows that are wrong are told first. Only when all are right is their order worth a word.
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
            from,
            to,
            row: expected[from].text.clone(),
        })
        .map(one_based)
        .collect()
}

fn one_based(problem: Problem) -> Problem {
    match problem {
        Problem::Moved { from, to, row } => Problem::Moved {
            from: from + 1,
            to: to + 1,
            row,
        },
        other => other,
    }
}

/// More than this many problems are counted, not shown.
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
