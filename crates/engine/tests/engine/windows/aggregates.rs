//! The aggregates that keep more than a number, over every window, against the rules of language.md section 5.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use highwater_engine::{Record, Scripts, Value};
use proptest::prelude::*;

use crate::windows::drive::{Drive, Step, cut, interleave};
use crate::windows::oracle::{Row, keys, number, rows_of, same_key, show};
use crate::windows::query::{Event, Query, events, queries, ticks};

const SHOWN: &str = "\
    STDEV(v) AS d, STDEVP(v) AS dp, VAR(v) AS x, VARP(v) AS xp, \
    PERCENTILE_CONT(0.4) OVER (ORDER BY v) AS pc, \
    PERCENTILE_CONT(0.4) OVER (ORDER BY v DESC) AS pcd, \
    COUNT(DISTINCT j) AS n, \
    PERCENTILE_DISC(0.6) OVER (ORDER BY v) AS pd, \
    PERCENTILE_DISC(0.6) OVER (ORDER BY v DESC) AS pdd, \
    Collect(j) AS list, \
    CollectTop(2, j) OVER (ORDER BY v DESC, t) AS top, \
    TopOne(j) OVER (ORDER BY v) AS first, \
    uda.list(v) AS script, \
    SUM(udf.twice(v)) AS twice";

/// Of the columns after the keys, those that rounding may move.
const FLOATS: usize = 6;

fn scripts() -> Arc<Scripts> {
    static SCRIPTS: OnceLock<Arc<Scripts>> = OnceLock::new();
    let list = "function main() {
        this.init = function () { this.text = ''; };
        this.accumulate = function (value, time) { this.text += value + '@' + time.getTime() + ';'; };
        this.computeResult = function () { return this.text; };
    }";
    let twice = "function main(x) { return x === null ? null : 2 * x; }";
    let make = || {
        let functions = [("list", list), ("twice", twice)];
        let functions = functions.map(|(name, source)| (name.to_string(), source.to_string()));
        Scripts::new(functions).expect("the scripts are whole")
    };
    SCRIPTS.get_or_init(make).clone()
}

fn drive(query: &Query, partitions: usize) -> Drive {
    Drive::of(&query.sql_of(SHOWN, ""), Some(scripts()), partitions)
}

fn run(query: &Query, partitions: usize, steps: &[(usize, Step)]) -> Vec<Row> {
    let mut drive = drive(query, partitions);
    let steps = steps.iter();
    steps.for_each(|(partition, step)| drive.step(*partition, step));
    drive.rows
}

fn row(query: &Query, group: &[&Event]) -> Vec<String> {
    let mut row = keys(query, group);
    let values: Vec<&Value> = group
        .iter()
        .map(|e| &e.v)
        .filter(|v| !v.is_null())
        .collect();
    let numbers: Vec<f64> = values.iter().map(|v| number(v)).collect();
    row.extend(spreads(&numbers).iter().map(|f| show_float(*f)));
    row.push(show_float(interpolated(&numbers, false)));
    row.push(show_float(interpolated(&numbers, true)));
    assert_eq!(row.len(), query.shown_keys() + FLOATS);

    let distinct: BTreeSet<String> = group
        .iter()
        .filter(|e| !e.j.is_null())
        .map(|e| same_key(&e.j))
        .collect();
    row.push(show(&Value::Int(distinct.len() as i64)));
    row.push(show(&discrete(&values, false)));
    row.push(show(&discrete(&values, true)));

    let mut by_time = group.to_vec();
    by_time.sort_by_key(|e| (e.second, e.partition, e.number));
    let list = by_time.iter().map(|e| e.j.clone()).filter(|j| !j.is_null());
    row.push(show(&Value::Array(list.collect())));
    let mut ranked = by_time.clone();
    ranked.sort_by(|a, b| rank(&b.v, &a.v).then(a.second.cmp(&b.second)));
    let top = ranked.iter().take(2).enumerate().map(|(place, event)| {
        let fields = vec![
            ("rank".into(), Value::Int(place as i64 + 1)),
            ("value".into(), event.j.clone()),
        ];
        Value::Record(Arc::new(Record::from_fields(fields)))
    });
    row.push(show(&Value::Array(top.collect())));
    ranked = by_time.clone();
    ranked.sort_by(|a, b| rank(&a.v, &b.v));
    row.push(show(&ranked[0].j));

    let script: String = by_time.iter().map(|e| seen(e)).collect();
    row.push(show(&Value::text(&script)));
    let twice: Vec<f64> = numbers.iter().map(|n| 2.0 * n).collect();
    row.push(show(&match twice.iter().sum::<f64>() + 0.0 {
        _ if twice.is_empty() => Value::Null,
        // The script gives whole numbers back as bigint.
        sum if twice.iter().all(|n| n.trunc() == *n) => Value::Int(sum as i64),
        sum => Value::Float(sum),
    }));
    row
}

/// Sample and population, deviation and variance, in two passes.
fn spreads(numbers: &[f64]) -> [Option<f64>; 4] {
    let n = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / n;
    let squares: f64 = numbers.iter().map(|x| (x - mean) * (x - mean)).sum();
    let sample = (numbers.len() > 1).then(|| squares / (n - 1.0));
    let all = (!numbers.is_empty()).then(|| squares / n);
    [sample.map(f64::sqrt), all.map(f64::sqrt), sample, all]
}

fn interpolated(numbers: &[f64], descending: bool) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    if descending {
        sorted.reverse();
    }
    let rank = 0.4 * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    Some(below + (above - below) * (rank - rank.floor()))
}

fn discrete(values: &[&Value], descending: bool) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| {
        let ordering = number(a).total_cmp(&number(b));
        if descending {
            ordering.reverse()
        } else {
            ordering
        }
    });
    let at = (1..=sorted.len()).find(|rank| *rank as f64 / sorted.len() as f64 >= 0.6);
    at.map_or(Value::Null, |rank| sorted[rank - 1].clone())
}

/// NULL is the smallest.
fn rank(a: &Value, b: &Value) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => number(a).total_cmp(&number(b)),
    }
}

/// How JavaScript writes a value and a time.
fn seen(event: &Event) -> String {
    let millis = highwater_time::Instant::from_ticks(ticks(event.second)).to_unix_millis();
    match &event.v {
        Value::Null => format!("null@{millis};"),
        value => format!("{}@{millis};", number(value) + 0.0),
    }
}

fn show_float(float: Option<f64>) -> String {
    show(&float.map_or(Value::Null, Value::Float))
}

/// Rows with the columns that may be rounded left out, and those columns.
fn split(query: &Query, rows: Vec<Row>) -> (Vec<Row>, Vec<f64>) {
    let mut floats = Vec::new();
    let exact = rows.into_iter().map(|(end, mut row)| {
        let from = query.shown_keys();
        for shown in row.drain(from..from + FLOATS) {
            let digits = shown.trim_start_matches("Float(").trim_end_matches(')');
            floats.push(digits.parse().unwrap_or(f64::NAN));
        }
        (end, row)
    });
    (exact.collect(), floats)
}

/// Rows in an order that rounding does not change.
fn sorted(query: &Query, mut rows: Vec<Row>) -> Vec<Row> {
    let from = query.shown_keys();
    rows.sort_by(|(a_end, a), (b_end, b)| {
        let key = |row: &[String]| (row[..from].to_vec(), row[from + FLOATS..].to_vec());
        a_end.cmp(b_end).then(key(a).cmp(&key(b)))
    });
    rows
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    // proves S1 T9 T10
    #[test]
    fn rows_are_those_of_the_oracle(
        query in queries(), (partitions, events) in events(), cuts in choices(), picks in choices()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let (rows, floats) = split(&query, sorted(&query, run(&query, partitions, &steps)));
        let expected = sorted(&query, rows_of(&query, partitions, &events, &row));
        let (expected, expected_floats) = split(&query, expected);
        prop_assert_eq!(rows, expected, "{}", query.sql_of(SHOWN, ""));
        for (float, expected) in floats.iter().zip(&expected_floats) {
            let near = (float - expected).abs() <= 1e-9 * expected.abs().max(1.0);
            prop_assert!(near || (float.is_nan() && expected.is_nan()), "{} for {}", float, expected);
        }
    }

    // proves T8
    #[test]
    fn cuts_and_speed_change_nothing(
        query in queries(), (partitions, events) in events(), cuts in choices(), others in choices(),
        picks in choices()
    ) {
        let one = run(&query, partitions, &interleave(cut(partitions, &events, &cuts), &[0]));
        let two = run(&query, partitions, &interleave(cut(partitions, &events, &others), &picks));
        prop_assert_eq!(one, two, "{}", query.sql_of(SHOWN, ""));
    }

    // proves T8
    #[test]
    fn snapshot_and_restore_change_nothing(
        query in queries(), (partitions, events) in events(), cuts in choices(),
        picks in choices(), stop in any::<prop::sample::Index>()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let stop = stop.index(steps.len());
        let mut drive = drive(&query, partitions);
        for (number, (partition, step)) in steps.iter().enumerate() {
            if number == stop {
                drive.restart();
            }
            drive.step(*partition, step);
        }
        prop_assert_eq!(drive.rows, run(&query, partitions, &steps), "{}", query.sql_of(SHOWN, ""));
    }

    /// A window with a pushed-down HAVING emits the rows of a filter behind it.
    // proves S1
    #[test]
    fn having_keeps_the_rows_that_it_names(
        query in queries(), (partitions, events) in events(), cuts in choices(), picks in choices()
    ) {
        let steps = interleave(cut(partitions, &events, &cuts), &picks);
        let run = |having: &str| {
            let sql = query.sql_of("COUNT(*) AS n, SUM(v) AS s", having);
            let mut drive = Drive::of(&sql, None, partitions);
            steps.iter().for_each(|(partition, step)| drive.step(*partition, step));
            drive.rows
        };
        let mut expected = run("");
        expected.retain(|(_, row)| row[query.shown_keys()] != "Int(1)");
        prop_assert_eq!(run("HAVING COUNT(*) >= 2"), expected, "{}", query.sql_of("", ""));
    }
}
