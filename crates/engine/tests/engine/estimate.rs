//! What `estimate` says of a plan, against what a run of it writes down.

use std::sync::Arc;

use highwater_engine::{Chunk, ColumnBuilder, Item, PhysicalPlan, Value, estimate};
use highwater_query::plan::Read;
use highwater_query::{Catalog, compile};
use highwater_time::{Instant, TICKS_PER_SECOND};

/// Within this factor, up or down.
const FACTOR: usize = 4;

const KEYS: usize = 500;

/// The bytes that a run has written down after `events` events of every key, a second apart, and what was estimated.
fn measured(query: &str, events: usize) -> (usize, usize) {
    let compiled = compile(query, &Catalog::streams(["input"])).expect("the query is right");
    let plan = Arc::new(compiled.plan);
    let estimates = estimate(&plan);
    assert!(!estimates.is_empty(), "{query}: nothing is kept");
    let items = estimates.iter().flat_map(|step| &step.items);
    let expected = items.map(|item| item.bytes_of(KEYS, events)).sum();
    let physical = PhysicalPlan::new(plan).expect("the plan can run");
    let (mut local, mut shared) = (physical.local(0), physical.shared(&[1]));
    for second in 0..events {
        let time = Instant::from_ticks((63_000_000_001 + second as i64) * TICKS_PER_SECOND);
        let columns = physical.plan().inputs[0].reads.iter().map(|read| {
            let mut column = ColumnBuilder::default();
            (0..KEYS).for_each(|key| column.push_owned(value(read, key)));
            column.finish()
        });
        let times = vec![time.ticks(); KEYS];
        let chunk = Chunk::new(times.into(), columns.collect());
        for item in [Item::Rows(chunk), Item::Watermark(time)] {
            let (mut exits, mut out) = (Vec::new(), Vec::new());
            local.push(PhysicalPlan::LOCAL_ENTRY, item, &mut exits);
            for (exit, item) in exits {
                let entry = shared.entry(0, exit, 0);
                shared.pipeline.push(entry, item, &mut out);
            }
        }
    }
    let mut state = Vec::new();
    local.snapshot(&mut state);
    shared.pipeline.snapshot(&mut state);
    (state.len(), expected)
}

fn value(read: &Read, key: usize) -> Value {
    match read {
        Read::Path(path) if path[0] == "k" => Value::text(&format!("device-{key:06}")),
        _ => Value::Int(key as i64),
    }
}

#[test]
fn estimates_are_near_what_is_kept() {
    let cases = [
        ("SELECT k, COUNT(*) AS n, SUM(v) AS s FROM input TIMESTAMP BY t GROUP BY k, Tumbling(s, 100)", 5),
        ("SELECT k, AVG(v) AS a, MAX(v) AS m FROM input TIMESTAMP BY t GROUP BY k, Hopping(s, 5, 1)", 30),
        ("SELECT k, COUNT(*) AS n, SUM(v) AS s FROM input TIMESTAMP BY t GROUP BY k, Sliding(s, 10)", 10),
        ("SELECT k, COUNT(*) AS n, MIN(v) AS m FROM input TIMESTAMP BY t
          GROUP BY k, Session(s, 30, 90) OVER (PARTITION BY k)", 5),
        ("SELECT k, Collect(v) AS all_of_them FROM input TIMESTAMP BY t GROUP BY k, Tumbling(s, 100)", 20),
        ("SELECT k, LAG(v, 3) OVER (PARTITION BY k LIMIT DURATION(s, 100)) AS before FROM input TIMESTAMP BY t", 5),
        ("SELECT k, SUM(v) OVER (PARTITION BY k LIMIT DURATION(s, 100)) AS s FROM input TIMESTAMP BY t", 8),
        ("SELECT a.k, a.v AS av, b.v AS bv FROM input a TIMESTAMP BY t JOIN input b TIMESTAMP BY t
          ON a.k = b.k AND DATEDIFF(s, a, b) BETWEEN -60 AND 60", 6),
    ];
    for (query, events) in cases {
        let (measured, expected) = measured(query, events);
        assert!(
            expected < measured * FACTOR && measured < expected * FACTOR,
            "{query}: {measured} bytes measured, {expected} estimated"
        );
    }
}

#[test]
fn the_formula_is_told_in_words() {
    let words = |query: &str| -> Vec<String> {
        let compiled = compile(query, &Catalog::streams(["input"])).expect("the query is right");
        let steps = estimate(&compiled.plan);
        let items = steps.iter().flat_map(|step| &step.items);
        items.map(|item| item.description()).collect()
    };
    let query = "SELECT k, COUNT(*) AS n FROM input TIMESTAMP BY t GROUP BY k, Hopping(s, 10, 2)";
    assert_eq!(
        words(query),
        ["about 48 B per key and open window, 5 open at a time, for 10s"]
    );
    assert!(words("SELECT k FROM input TIMESTAMP BY t WHERE v > 1").is_empty());
}
