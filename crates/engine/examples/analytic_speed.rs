//! How long analytic functions take per row: `cargo run --release -p highwater-engine --example analytic_speed`.
//!
//! Rows of 100,000 keys in random order go through a pipeline of a source and one analytic call, chunk by chunk with
//! watermarks between them. A tumbling count over the same rows stands beside them for comparison.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant as Clock;

use highwater_engine::{CHUNK_ROWS, Chunk, ColumnBuilder, Item, PhysicalPlan};
use highwater_query::Span;
use highwater_query::plan::{
    Aggregate, AggregateFunction, Analytic, AnalyticCall, AnalyticColumn, AnalyticNode, Expr,
    ExprKind, Input, Key, Node, NodeId, Output, Plan, Read, Window, WindowNode,
};
use highwater_time::{Duration, Instant, TICKS_PER_SECOND};

const KEYS: u64 = 100_000;
const ROWS_PER_SECOND: i64 = 100_000;
const CHUNKS: usize = 400;

fn main() {
    println!("{KEYS} keys, {CHUNKS} chunks of {CHUNK_ROWS} rows, ns/row:");
    let limit = Duration::from_secs(60);
    let size = limit;
    let window = Window::Tumbling {
        size,
        offset: Duration::ZERO,
    };
    let count = WindowNode {
        from: NodeId(0),
        window,
        keys: vec![Key {
            name: "k".into(),
            expr: column(0),
        }],
        aggregates: vec![aggregate(AggregateFunction::Count, None)],
        by_partition: true,
        span: Span::default(),
    };
    report("COUNT(*) by k, Tumbling(60 s)", Node::Window(count));
    let lag = |of: usize, offset| Analytic::Lag {
        of: column(of),
        offset,
        default: None,
    };
    let over = |function, of| Analytic::Aggregate(aggregate(function, Some(column(of))));
    let last = Analytic::Last {
        of: column(2),
        default: None,
    };
    for (name, function) in [
        ("LAG(bigint)", lag(1, 1)),
        ("LAG(float)", lag(2, 1)),
        ("LAG(text)", lag(3, 1)),
        ("LAG(float, 5)", lag(2, 5)),
        ("LAST(float)", last),
        ("ISFIRST", Analytic::IsFirst),
        ("COUNT(float) OVER", over(AggregateFunction::Count, 2)),
        ("SUM(bigint) OVER", over(AggregateFunction::Sum, 1)),
        ("AVG(float) OVER", over(AggregateFunction::Avg, 2)),
        ("MAX(float) OVER", over(AggregateFunction::Max, 2)),
    ] {
        let call = AnalyticCall {
            function,
            partition: vec![column(0)],
            limit,
            when: None,
            span: Span::default(),
        };
        let columns = (0..3).map(AnalyticColumn::Carried);
        let node = AnalyticNode {
            from: NodeId(0),
            calls: vec![call],
            columns: columns.chain([AnalyticColumn::Call(0)]).collect(),
            by_partition: true,
            span: Span::default(),
        };
        report(name, Node::Analytic(node));
    }
}

fn report(name: &str, node: Node) {
    let chunks: Vec<Chunk> = chunks();
    let physical = PhysicalPlan::new(Arc::new(plan(node))).expect("the plan can run");
    let mut best = f64::MAX;
    for _ in 0..3 {
        let mut local = physical.local(0);
        let mut out = Vec::new();
        let start = Clock::now();
        for chunk in &chunks {
            let last = chunk.times[chunk.rows() - 1];
            local.push(
                PhysicalPlan::LOCAL_ENTRY,
                Item::Rows(chunk.clone()),
                &mut out,
            );
            let watermark = Item::Watermark(Instant::from_ticks(last));
            local.push(PhysicalPlan::LOCAL_ENTRY, watermark, &mut out);
            black_box(&out);
            out.clear();
        }
        let nanos = start.elapsed().as_nanos() as f64;
        best = best.min(nanos / (CHUNKS * CHUNK_ROWS) as f64);
    }
    println!("  {name:<36} {best:8.1}");
}

/// A key, a bigint, a float and a text.
fn chunks() -> Vec<Chunk> {
    let mut seed = 42_u64;
    let mut row = 0;
    let mut chunk = || {
        let mut builders: Vec<_> = (0..4)
            .map(|_| ColumnBuilder::with_capacity(CHUNK_ROWS))
            .collect();
        let mut times = Vec::with_capacity(CHUNK_ROWS);
        for _ in 0..CHUNK_ROWS {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let random = seed >> 33;
            builders[0].push_int((random % KEYS) as i64);
            builders[1].push_int(random as i64);
            builders[2].push_float(random as f64 / 3.0);
            builders[3].push_text(["open", "closed", "ajar"][random as usize % 3]);
            times.push(TICKS_PER_SECOND * row / ROWS_PER_SECOND);
            row += 1;
        }
        let columns = builders.into_iter().map(ColumnBuilder::finish);
        Chunk::new(times.into(), columns.collect())
    };
    (0..CHUNKS).map(|_| chunk()).collect()
}

fn plan(node: Node) -> Plan {
    let input = Input {
        name: "input".into(),
        reads: ["k", "i", "f", "t"]
            .map(|read| Read::Path(vec![read.into()]))
            .into(),
        carried: Vec::new(),
        timestamp: None,
        substream: Vec::new(),
        schema: None,
        span: Span::default(),
    };
    Plan {
        inputs: vec![input],
        nodes: vec![Node::Source { input: 0 }, node],
        outputs: vec![Output {
            name: "output".into(),
            from: NodeId(1),
        }],
        ..Plan::default()
    }
}

fn column(index: usize) -> Expr {
    Expr {
        kind: ExprKind::Column(index),
        span: Span::default(),
    }
}

fn aggregate(function: AggregateFunction, argument: Option<Expr>) -> Aggregate {
    Aggregate {
        function,
        argument,
        order: Vec::new(),
        as_text: false,
        strict_types: false,
        span: Span::default(),
    }
}
