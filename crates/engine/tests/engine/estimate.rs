//! The figures of `estimate` against the snapshot of a run.

use std::sync::Arc;

use highwater_engine::{Chunk, ColumnBuilder, Item, PhysicalPlan, Value, estimate};
use highwater_query::plan::Read;
use highwater_query::{Catalog, compile};
use highwater_time::{Instant, TICKS_PER_SECOND};

/// Within this factor, up or down.
const FACTOR: usize = 4;

const KEYS: usize = 500;

/// The state of a run after `events` events of every key, a second apart.
struct StateSizes {
    /// The size of the snapshot.
    measured: usize,
    /// By the estimate of the plan.
    planned: usize,
    /// By the estimate of the operators.
    running: usize,
}

fn state_sizes(query: &str, events: usize) -> StateSizes {
    let compiled = compile(query, &Catalog::streams(["input"])).expect("the query is right");
    let plan = Arc::new(compiled.plan);
    let estimates = estimate(&plan);
    let items = estimates.iter().flat_map(|step| &step.items);
    let planned = items.map(|item| item.bytes_of(KEYS, events)).sum();
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
    StateSizes {
        measured: state.len(),
        planned,
        running: local.state_bytes() + shared.pipeline.state_bytes(),
    }
}

fn value(read: &Read, key: usize) -> Value {
    match read {
        Read::Path(path) if path[0] == "k" => Value::text(&format!("device-{key:06}")),
        _ => Value::Int(key as i64),
    }
}

const CASES: [(&str, usize); 8] = [
    (
        "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM input TIMESTAMP BY t GROUP BY k, Tumbling(s, 100)",
        5,
    ),
    (
        "SELECT k, AVG(v) AS a, MAX(v) AS m FROM input TIMESTAMP BY t GROUP BY k, Hopping(s, 5, 1)",
        30,
    ),
    (
        "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM input TIMESTAMP BY t GROUP BY k, Sliding(s, 10)",
        10,
    ),
    (
        "SELECT k, COUNT(*) AS n, MIN(v) AS m FROM input TIMESTAMP BY t
      GROUP BY k, Session(s, 30, 90) OVER (PARTITION BY k)",
        5,
    ),
    (
        "SELECT k, Collect(v) AS all_of_them FROM input TIMESTAMP BY t GROUP BY k, Tumbling(s, 100)",
        20,
    ),
    (
        "SELECT k, LAG(v, 3) OVER (PARTITION BY k LIMIT DURATION(s, 100)) AS before FROM input TIMESTAMP BY t",
        5,
    ),
    (
        "SELECT k, SUM(v) OVER (PARTITION BY k LIMIT DURATION(s, 100)) AS s FROM input TIMESTAMP BY t",
        8,
    ),
    (
        "SELECT a.k, a.v AS av, b.v AS bv FROM input a TIMESTAMP BY t JOIN input b TIMESTAMP BY t
      ON a.k = b.k AND DATEDIFF(s, a, b) BETWEEN -60 AND 60",
        6,
    ),
];

fn is_near(a: usize, b: usize) -> bool {
    a < b * FACTOR && b < a * FACTOR
}

#[test]
fn estimates_are_near_what_is_kept() {
    for (query, events) in CASES {
        let StateSizes {
            measured, planned, ..
        } = state_sizes(query, events);
        assert!(
            is_near(planned, measured),
            "{query}: {measured} bytes measured, {planned} estimated"
        );
    }
}

// proves G2
#[test]
fn the_estimate_of_a_running_operator_grows_with_its_snapshot() {
    let more = [
        ("SELECT * FROM input TIMESTAMP BY t MATCH_RECOGNIZE (LIMIT DURATION(s, 100) PARTITION BY k
          MEASURES LAST(A.v) AS v AFTER MATCH SKIP TO NEXT ROW PATTERN (A+ B)
          DEFINE A AS A.v >= 0, B AS B.v < 0) AS m", 6),
        ("SELECT k, COUNT(DISTINCT v) AS d, TopOne() OVER (ORDER BY v) AS top FROM input TIMESTAMP BY t
          GROUP BY k, Session(s, 30, 90)", 6),
        ("SELECT k, PERCENTILE_CONT(0.5) OVER (ORDER BY v) AS p FROM input TIMESTAMP BY t
          GROUP BY k, Hopping(s, 50, 10)", 12),
        ("SELECT k, AnomalyDetection_SpikeAndDip(v, 95, 100, 'spikesanddips')
          OVER (PARTITION BY k LIMIT DURATION(s, 100)) AS s FROM input TIMESTAMP BY t", 20),
    ];
    for (query, events) in CASES.into_iter().chain(more) {
        let few = state_sizes(query, events / 2);
        let StateSizes {
            measured, running, ..
        } = state_sizes(query, events);
        assert!(
            is_near(running, measured),
            "{query}: {measured} bytes measured, {running} estimated"
        );
        let (growth, estimated) = (measured - few.measured, running - few.running);
        // In memory an event takes more than in a snapshot; the estimate is scaled by the last snapshot.
        assert!(
            growth < 1000 || is_near(growth, estimated / 2),
            "{query}: {growth} bytes more measured, {estimated} estimated"
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
