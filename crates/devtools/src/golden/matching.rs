//! Pairs expected with actual rows in any order.
//!
//! Equality with a tolerance is not transitive, so sorting both sides and comparing in step can fail although a
//! matching exists. Instead rows are grouped into buckets by everything but their numbers, and augmenting paths find a
//! maximum matching within a bucket. Exactly equal rows, nearly always all of them, are paired first by a hash look-up.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use serde_json::Value;

use super::rows::{Row, close, differences, instant, number};

/// Limits on the candidates of a row and on the length of a path. Only adversarial inputs reach them.
const NEIGHBOURS_MAX: usize = 64;
const PATH_MAX: usize = 256;
/// With more comparisons than this, missing rows are not paired with similar ones.
const PAIRS_MAX: usize = 250_000;

/// The actual row of each expected row, if there is one.
pub(super) fn partners(expected: &[Row], actual: &[Row]) -> Vec<Option<usize>> {
    let mut partners = vec![None; expected.len()];
    for bucket in buckets(expected, actual).into_values() {
        match_bucket(bucket, &mut partners);
    }
    partners
}

/// Rows that are equal except for their numbers.
#[derive(Default)]
struct Bucket {
    expected: Vec<(usize, Vec<f64>)>,
    actual: Vec<(usize, Vec<f64>)>,
}

fn buckets(expected: &[Row], actual: &[Row]) -> BTreeMap<String, Bucket> {
    let mut buckets: BTreeMap<String, Bucket> = BTreeMap::new();
    for (i, row) in expected.iter().enumerate() {
        let (shape, numbers) = split(&row.value);
        buckets
            .entry(shape)
            .or_default()
            .expected
            .push((i, numbers));
    }
    for (i, row) in actual.iter().enumerate() {
        let (shape, numbers) = split(&row.value);
        buckets.entry(shape).or_default().actual.push((i, numbers));
    }
    buckets
}

/// The shape of a value without its numbers, the same for equal values, and the numbers in order.
fn split(value: &Value) -> (String, Vec<f64>) {
    let (mut shape, mut numbers) = (String::new(), Vec::new());
    write_shape(value, &mut shape, &mut numbers);
    (shape, numbers)
}

fn write_shape(value: &Value, shape: &mut String, numbers: &mut Vec<f64>) {
    match value {
        Value::Number(n) => {
            shape.push('#');
            numbers.push(number(n));
        }
        Value::String(text) => {
            // Writing to a string cannot fail.
            let _ = match instant(text) {
                Some(at) => write!(shape, "@{}", at.ticks()),
                None => write!(shape, "{text:?}"),
            };
        }
        Value::Array(items) => {
            shape.push('[');
            for item in items {
                write_shape(item, shape, numbers);
                shape.push(',');
            }
            shape.push(']');
        }
        Value::Object(map) => {
            let sorted: BTreeMap<_, _> = map.iter().collect();
            shape.push('{');
            for (key, value) in sorted {
                let _ = write!(shape, "{key:?}:");
                write_shape(value, shape, numbers);
                shape.push(',');
            }
            shape.push('}');
        }
        Value::Null | Value::Bool(_) => {
            let _ = write!(shape, "{value}");
        }
    }
}

fn match_bucket(bucket: Bucket, partners: &mut [Option<usize>]) {
    let Bucket {
        mut expected,
        mut actual,
    } = bucket;
    pair_exact(&mut expected, &mut actual, partners);
    if expected.is_empty() || actual.is_empty() {
        return;
    }
    actual.sort_by(|a, b| a.1[0].total_cmp(&b.1[0]).then(a.0.cmp(&b.0)));
    let near = expected
        .iter()
        .map(|(_, numbers)| neighbours(numbers, &actual))
        .collect();
    let (taken_by, visited_by) = (vec![None; actual.len()], vec![None; actual.len()]);
    let mut matching = Matching {
        near,
        taken_by,
        visited_by,
    };
    for i in 0..expected.len() {
        matching.augment(i, i, 0);
    }
    for (a, e) in matching.taken_by.iter().enumerate() {
        if let Some(e) = e {
            partners[expected[*e].0] = Some(actual[a].0);
        }
    }
}

/// Pairs rows with equal numbers, in order, and removes them.
fn pair_exact(
    expected: &mut Vec<(usize, Vec<f64>)>,
    actual: &mut Vec<(usize, Vec<f64>)>,
    partners: &mut [Option<usize>],
) {
    // Adding 0 turns -0 into 0.
    let bits = |numbers: &[f64]| {
        numbers
            .iter()
            .map(|n| (n + 0.0).to_bits())
            .collect::<Vec<_>>()
    };
    let mut unpaired: HashMap<Vec<u64>, Vec<usize>> = HashMap::new();
    for (i, numbers) in actual.iter().rev() {
        unpaired.entry(bits(numbers)).or_default().push(*i);
    }
    expected.retain(|(i, numbers)| {
        partners[*i] = unpaired.get_mut(&bits(numbers)).and_then(Vec::pop);
        partners[*i].is_none()
    });
    let left: std::collections::HashSet<usize> = unpaired.into_values().flatten().collect();
    actual.retain(|(i, _)| left.contains(i));
}

/// The rows that are close in every number. `actual` is sorted by the first number.
fn neighbours(numbers: &[f64], actual: &[(usize, Vec<f64>)]) -> Vec<usize> {
    let below = |other: f64| other < numbers[0] && !close(other, numbers[0]);
    let start = actual.partition_point(|(_, other)| below(other[0]));
    let candidates = actual.iter().enumerate().skip(start);
    candidates
        .take_while(|(_, (_, other))| close(other[0], numbers[0]))
        .filter(|(_, (_, other))| other.iter().zip(numbers).all(|(a, b)| close(*a, *b)))
        .map(|(i, _)| i)
        .take(NEIGHBOURS_MAX)
        .collect()
}

struct Matching {
    /// The candidates of each expected row.
    near: Vec<Vec<usize>>,
    taken_by: Vec<Option<usize>>,
    /// The last search that visited an actual row, so that none visits it twice.
    visited_by: Vec<Option<usize>>,
}

impl Matching {
    /// Pairs `i` along an augmenting path, which may pair other rows anew.
    fn augment(&mut self, i: usize, search: usize, depth: usize) -> bool {
        for n in 0..self.near[i].len() {
            let a = self.near[i][n];
            if self.visited_by[a].replace(search) == Some(search) {
                continue;
            }
            let free = match self.taken_by[a] {
                None => true,
                Some(holder) => depth < PATH_MAX && self.augment(holder, search, depth + 1),
            };
            if free {
                self.taken_by[a] = Some(i);
                return true;
            }
        }
        false
    }
}

/// The most similar extra row of each missing row, with at least half of its columns equal.
pub(super) fn nearest_pairs(missing: &[&Row], extra: &[&Row]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; missing.len()];
    if missing.len() * extra.len() > PAIRS_MAX {
        return pairs;
    }
    let mut candidates = Vec::new();
    for (m, expected) in missing.iter().enumerate() {
        for (e, actual) in extra.iter().enumerate() {
            let wrong = differences(&expected.value, &actual.value).len();
            let columns = expected.value.as_object().map_or(0, serde_json::Map::len);
            if wrong * 2 <= columns {
                candidates.push((wrong, m, e));
            }
        }
    }
    candidates.sort_unstable();
    let mut used = vec![false; extra.len()];
    for (_, m, e) in candidates {
        if pairs[m].is_none() && !used[e] {
            pairs[m] = Some(e);
            used[e] = true;
        }
    }
    pairs
}
