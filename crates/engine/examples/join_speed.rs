//! How long a join takes per event: `cargo run --release -p highwater-engine --example join_speed`.
//!
//! Cars enter toll booths and leave within 20 minutes; entries are joined to the exits of the next 15 minutes by plate
//! and booth. About half a million entries wait at any time, so this measures memory more than arithmetic.
#![allow(clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::Instant as Clock;

use highwater_engine::{CHUNK_ROWS, Chunk, Column, ColumnBuilder, Item, PhysicalPlan, ValueRef};
use highwater_query::Span;
use highwater_query::plan::{
    Expr, ExprKind, Input, JoinNode, Node, NodeId, Output, Plan, Read, Side,
};
use highwater_time::{Duration, Instant};

const ENTRIES: u64 = 3_000_000;

fn main() {
    let entries = stream(|number| (number, number));
    let mut exits: Vec<(u64, u64)> = (0..ENTRIES)
        .filter(|number| mix(*number ^ 77) % 10 < 7)
        .map(|number| (number + 36_000 + mix(number) % 684_000, number))
        .collect();
    exits.sort_unstable();
    let exits = stream_of(exits);
    let events: usize = entries.iter().chain(&exits).map(Chunk::rows).sum();
    let physical = PhysicalPlan::new(Arc::new(plan())).expect("the plan can run");
    for round in 0..3 {
        let mut shared = physical.shared(&[1, 1]);
        let (mut results, mut out) = (0, Vec::new());
        let started = Clock::now();
        let mut next = [0, 0];
        loop {
            let time = |input: usize| {
                let chunk = [&entries, &exits][input].get(next[input]);
                chunk.map_or(i64::MAX, |chunk| chunk.times[0])
            };
            let input = usize::from(time(1) < time(0));
            if time(input) == i64::MAX {
                break;
            }
            let chunk = [&entries, &exits][input][next[input]].clone();
            next[input] += 1;
            let reached = Instant::from_ticks(chunk.times[chunk.rows() - 1]);
            let entry = shared.entry(input, 0, 0);
            for item in [Item::Rows(chunk), Item::Watermark(reached)] {
                shared.pipeline.push(entry, item, &mut out);
            }
            results += rows(&mut out);
        }
        for input in 0..2 {
            let end = Item::Watermark(Instant::AFTER_ALL);
            let entry = shared.entry(input, 0, 0);
            shared.pipeline.push(entry, end, &mut out);
        }
        results += rows(&mut out);
        let nanos = started.elapsed().as_nanos() as f64 / events as f64;
        println!("round {round}: {events} events, {results} results, {nanos:.0} ns/event");
    }
}

fn rows(out: &mut Vec<(usize, Item)>) -> usize {
    let rows = out.drain(..).map(|(_, item)| match item {
        Item::Rows(chunk) => chunk.rows(),
        _ => 0,
    });
    rows.sum()
}

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn stream(event: impl Fn(u64) -> (u64, u64)) -> Vec<Chunk> {
    stream_of((0..ENTRIES).map(event).collect())
}

/// Events of (time in units of 1/600 s, car).
fn stream_of(events: Vec<(u64, u64)>) -> Vec<Chunk> {
    let chunk = |events: &[(u64, u64)]| {
        let mut plates = ColumnBuilder::with_capacity(events.len());
        let mut times = ColumnBuilder::with_capacity(events.len());
        for (time, car) in events {
            let plate = mix(*car) % 1_000_000;
            plates.push(ValueRef::Text(&format!(
                "B{:03} {:04}",
                plate / 10_000,
                plate % 10_000
            )));
            times.push(ValueRef::Text(&format!("2026-01-01T{time:08}Z")));
        }
        let booths = events.iter().map(|(_, car)| (mix(*car ^ 5) % 100) as i64);
        let columns = vec![
            Column::from_ints(booths.collect()),
            plates.finish(),
            times.finish(),
        ];
        let ticks = events.iter().map(|(time, _)| *time as i64 * 16_667);
        Chunk::new(ticks.collect(), columns)
    };
    events.chunks(CHUNK_ROWS).map(chunk).collect()
}

fn plan() -> Plan {
    let span = Span::default();
    let column = |column| Expr {
        kind: ExprKind::Column(column),
        span,
    };
    let input = |name: &str| Input {
        name: name.into(),
        reads: vec![Read::Whole; 3],
        carried: Vec::new(),
        timestamp: None,
        substream: Vec::new(),
        schema: None,
        span,
    };
    let join = JoinNode {
        left: NodeId(0),
        right: NodeId(1),
        columns: vec![
            (Side::Left, 0),
            (Side::Left, 1),
            (Side::Left, 2),
            (Side::Right, 2),
        ],
        outer: false,
        low: Duration::ZERO,
        high: Duration::from_minutes(15),
        bounds: Vec::new(),
        keys: vec![(column(1), column(1)), (column(0), column(0))],
        residual: None,
        by_partition: false,
        span,
    };
    Plan {
        inputs: vec![input("Entry"), input("Exit")],
        nodes: vec![
            Node::Source { input: 0 },
            Node::Source { input: 1 },
            Node::Join(join),
        ],
        outputs: vec![Output {
            name: "out".into(),
            from: NodeId(2),
        }],
        ..Plan::default()
    }
}
