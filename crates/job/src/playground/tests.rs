//! The sources of rows, against the contents of the rows: events carry their number in a field that queries
//! collect.

use std::sync::Arc;

use highwater_engine::WorkLimit;
use highwater_time::{Duration, Instant, TimePolicy};
use serde_json::Value as Json;

use super::*;

const START: i64 = 1_772_452_800_000;

/// Event `n` of an input: key, second and partition are scattered by multiplication.
fn events(count: usize, partitions: usize) -> Vec<PlaygroundEvent> {
    let event = |n: usize| {
        let second = n * 7 % (3 * count);
        let key = ["a", "b", "c"][n * 5 % 7 % 3];
        let text = format!(
            "{{\"n\":{n},\"k\":\"{key}\",\"t\":\"{}\",\"list\":[1,2]}}",
            Instant::from_unix_millis(START + 1_000 * second as i64)
        );
        PlaygroundEvent {
            value: text.into_bytes(),
            arrival: Instant::from_unix_millis(START + 1_000 * n as i64),
            partition: n % partitions,
        }
    };
    (0..count).map(event).collect()
}

fn input(name: &str, count: usize, partitions: usize) -> PlaygroundInput {
    PlaygroundInput {
        name: name.to_owned(),
        is_reference: false,
        events: events(count, partitions),
    }
}

fn run_query(query: &str, inputs: Vec<PlaygroundInput>) -> PlaygroundResult {
    let hour = Duration::from_millis(3_600_000);
    let playground = Playground {
        query: query.to_owned(),
        time: TimePolicy {
            late_arrival: hour,
            out_of_order: hour,
            early_arrival: None,
            ..TimePolicy::default()
        },
        inputs,
    };
    let result = run_playground(&playground, &Arc::new(WorkLimit::new(64 << 20)));
    assert!(result.problem.is_none(), "{query}: {:?}", result.problem);
    assert!(
        result.diagnostics.is_empty(),
        "{query}: {:?}",
        result.diagnostics
    );
    assert_eq!(
        result.outputs[0].sources.len(),
        result.outputs[0].rows.len()
    );
    assert!(!result.outputs[0].rows.is_empty(), "{query} gives no rows");
    result
}

/// The numbers in the fields of a row, lists included.
fn numbers(row: &Json, found: &mut BTreeSet<usize>) {
    match row {
        Json::Number(number) => found.extend(number.as_u64().map(|number| number as usize)),
        Json::Array(values) => values.iter().for_each(|value| numbers(value, found)),
        Json::Object(fields) => fields.values().for_each(|value| numbers(value, found)),
        _ => {}
    }
}

// proves T18
#[test]
fn the_sources_of_a_row_are_the_events_that_it_was_made_of() {
    let from = "FROM a TIMESTAMP BY t";
    let queries = [
        format!("SELECT n {from} WHERE n % 3 = 0"),
        format!("SELECT k, Collect(n) AS ns {from} GROUP BY k, TumblingWindow(second, 20)"),
        format!(
            "SELECT Collect(n) AS ns {from} GROUP BY HoppingWindow(second, 30, 10) HAVING COUNT(*) > 3"
        ),
        format!("SELECT k, Collect(n) AS ns {from} GROUP BY k, SlidingWindow(second, 15)"),
        format!("SELECT k, Collect(n) AS ns {from} GROUP BY k, SessionWindow(second, 5, 60)"),
        format!("SELECT Collect(n) AS ns {from} GROUP BY SessionWindow(second, 2, 60)"),
        format!("SELECT Collect(n) AS ns {from} GROUP BY System.Timestamp()"),
        format!("SELECT n {from} CROSS APPLY GetArrayElements(a.list) AS e"),
        format!("SELECT n, LAG(n) OVER (PARTITION BY k LIMIT DURATION(hour, 1)) AS before {from}"),
        format!(
            "SELECT n, Collect(n) OVER (PARTITION BY k LIMIT DURATION(second, 9)) AS ns {from}"
        ),
        format!("SELECT n {from} WHERE n < 5 UNION SELECT n {from} WHERE n > 20"),
        format!(
            "WITH w AS (SELECT k, Collect(n) AS ns {from} GROUP BY k, TumblingWindow(second, 10)) \
             SELECT Collect(ns) AS ns FROM w GROUP BY TumblingWindow(minute, 1)"
        ),
        "SELECT l.n AS l, r.n AS r FROM a l TIMESTAMP BY t JOIN a r TIMESTAMP BY t \
         ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 1 AND 6"
            .to_owned(),
        "SELECT l.n AS l, r.n AS r FROM a l TIMESTAMP BY t LEFT JOIN a r TIMESTAMP BY t \
         ON l.k = r.k AND r.n > 10 AND DATEDIFF(second, l, r) BETWEEN 1 AND 3"
            .to_owned(),
        format!(
            "SELECT * {from} MATCH_RECOGNIZE (LIMIT DURATION(minute, 1) PARTITION BY k \
             MEASURES First(up.n) AS first, Last(down.n) AS last AFTER MATCH SKIP TO NEXT ROW \
             PATTERN (up down) DEFINE up AS up.n > 2, down AS down.n > 3) AS m"
        ),
    ];
    for query in &queries {
        for partitions in [1, 3] {
            let result = run_query(query, vec![input("a", 40, partitions)]);
            let output = &result.outputs[0];
            for (row, sources) in output.rows.iter().zip(&output.sources) {
                let mut expected = BTreeSet::new();
                numbers(&serde_json::from_str(row).unwrap(), &mut expected);
                let sources = sources.as_ref().expect("the sources are known");
                let events: BTreeSet<usize> = sources.events.iter().map(|of| of.1).collect();
                assert_eq!(events, expected, "{query}, {partitions} partitions: {row}");
                assert!(sources.events.iter().all(|of| of.0 == 0));
                assert_eq!(sources.count, expected.len());
            }
        }
    }
}

#[test]
fn sources_of_several_inputs_and_outputs_are_told_apart() {
    let query = "SELECT a.n AS l, b.n AS r INTO x FROM a TIMESTAMP BY t JOIN b TIMESTAMP BY t \
            ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 5 \
        SELECT n AS m INTO y FROM b TIMESTAMP BY t WHERE n = 3 \
        SELECT n AS o INTO y FROM a TIMESTAMP BY t WHERE n = 4";
    let result = run_query(query, vec![input("a", 20, 1), input("b", 30, 1)]);
    let [x, y] = &result.outputs[..] else {
        panic!("{} outputs", result.outputs.len());
    };
    for (row, sources) in x.rows.iter().zip(&x.sources) {
        let row: Json = serde_json::from_str(row).unwrap();
        let number = |name: &str| row[name].as_u64().unwrap() as usize;
        let sources = sources.as_ref().unwrap();
        assert_eq!(sources.events, [(0, number("l")), (1, number("r"))]);
    }
    let mut named: Vec<_> = y.sources.iter().flatten().map(|of| of.events[0]).collect();
    named.sort_unstable();
    assert_eq!(named, [(0, 4), (1, 3)]);
}

/// The runs of events of a key that begin with one and end before the next with an even number, found without the
/// engine.
fn runs_to_an_even_number(events: &[(usize, String, String)]) -> BTreeSet<BTreeSet<usize>> {
    let mut runs = BTreeSet::new();
    for (first, (_, key, _)) in events.iter().enumerate() {
        let of_key = events[first..].iter().filter(|event| event.1 == *key);
        let numbers: Vec<usize> = of_key.map(|event| event.0).collect();
        if let Some(end) = numbers.iter().position(|number| number % 2 == 0) {
            runs.insert(numbers[..=end].iter().copied().collect());
        }
    }
    runs
}

// proves T18
#[test]
fn the_sources_of_a_match_are_all_its_events_also_those_that_no_variable_names() {
    let pattern = "SELECT * FROM a TIMESTAMP BY t MATCH_RECOGNIZE (LIMIT DURATION(hour, 1) PARTITION BY k \
        MEASURES Last(even.n) AS last AFTER MATCH SKIP TO NEXT ROW PATTERN (odd* even) \
        DEFINE odd AS odd.n % 2 = 1, even AS even.n % 2 = 0) AS m";
    let any = pattern.replace("PATTERN (odd* even)", "PATTERN (. even)");
    let any = any.replace("odd AS odd.n % 2 = 1, ", "");
    let mut ordered: Vec<(usize, String, String)> = Vec::new();
    for event in &events(40, 1) {
        let value: Json = serde_json::from_slice(&event.value).unwrap();
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        let number = value["n"].as_u64().unwrap() as usize;
        ordered.push((number, text("k"), text("t")));
    }
    ordered.sort_by(|a, b| a.2.cmp(&b.2));
    let sources = |query: &str| -> BTreeSet<BTreeSet<usize>> {
        let result = run_query(query, vec![input("a", 40, 1)]);
        let sources = result.outputs[0].sources.iter();
        sources
            .map(|of| {
                let of = of.as_ref().expect("the sources are known");
                of.events.iter().map(|event| event.1).collect()
            })
            .collect()
    };
    let runs = runs_to_an_even_number(&ordered);
    assert!(runs.iter().any(|run| run.len() > 2), "{runs:?}");
    assert_eq!(sources(pattern), runs);
    for pair in sources(&any) {
        assert_eq!(pair.len(), 2, "the event of the dot and the one after it");
    }
}

#[test]
fn the_sources_of_very_many_rows_are_not_looked_for() {
    let hops = "SELECT COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY HoppingWindow(second, 900, 1)";
    let pattern = "SELECT * FROM a TIMESTAMP BY t MATCH_RECOGNIZE (LIMIT DURATION(minute, 1) PARTITION BY k \
        MEASURES First(up.n) AS first AFTER MATCH SKIP TO NEXT ROW PATTERN (up) DEFINE up AS up.n > 2) AS m";
    for (query, count) in [(hops, 200), (pattern, PATTERN_EVENTS_MAX + 1)] {
        let playground = Playground {
            query: query.to_owned(),
            time: TimePolicy::default(),
            inputs: vec![input("a", count, 1)],
        };
        let result = run_playground(&playground, &Arc::new(WorkLimit::new(64 << 20)));
        assert!(result.outputs[0].count > 0, "{query}");
        assert!(result.outputs[0].sources.is_empty(), "{query}");
    }
}
