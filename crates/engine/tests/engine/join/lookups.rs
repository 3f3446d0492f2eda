//! Lookups in reference data: every row of the table is tried.

use std::sync::Arc;

use highwater_engine::{Chunk, Column, PhysicalPlan, ReferenceTable, Value};
use highwater_query::plan::{
    CompareOp, Item, LookupNode, Name, Node, NodeId, Read, Reference, ReferenceStep, Side,
};
use highwater_time::Instant;

use crate::by_hand::{column as col, compare, int};
use crate::join::plans::*;
use crate::streams::{self, Random, Row, Run, column, shown};

struct LookupCase {
    node: LookupNode,
    reference: Reference,
    keys: Vec<usize>,
    residual: Residual,
    /// Rows of the table with a smaller number are filtered out.
    least: Option<i64>,
}

fn lookup_case(random: &mut Random) -> LookupCase {
    let keys = match random.below(4) {
        0 => vec![],
        1 => vec![KEY],
        2 => vec![OTHER_KEY],
        _ => vec![KEY, OTHER_KEY],
    };
    let residual = Residual::any(random);
    let least = random.flip().then(|| random.below(4) as i64);
    let mut steps = Vec::new();
    if let Some(least) = least {
        let keep = compare(CompareOp::Ge, col(NUMBER), int(least));
        steps.push(ReferenceStep::Filter(keep));
    }
    // Columns in reverse, so that a step is seen to happen.
    let items = (0..WIDTH).rev().map(|column| Item {
        name: Name::Field(format!("c{column}")),
        expr: col(column),
    });
    steps.push(ReferenceStep::Project(items.collect()));
    let node = LookupNode {
        from: NodeId(0),
        reference: 0,
        columns: vec![
            (Side::Left, ID),
            (Side::Right, WIDTH - 1 - ID),
            (Side::Right, WIDTH - 1 - NUMBER),
            (Side::Left, NUMBER),
        ],
        outer: random.flip(),
        keys: keys
            .iter()
            .map(|&key| (col(key), col(WIDTH - 1 - key)))
            .collect(),
        residual: residual.pred(3, 2),
        span: SPAN,
    };
    let reference = Reference {
        name: "ref".into(),
        reads: input("ref", WIDTH).reads,
        schema: None,
        steps,
        span: SPAN,
    };
    LookupCase {
        node,
        reference,
        keys,
        residual,
        least,
    }
}

impl LookupCase {
    fn expected(&self, rows: &[&Row], snapshots: &[(i64, Vec<Row>)]) -> (Vec<Row>, u64) {
        let (mut found, mut failed) = (Vec::new(), 0);
        for left in rows {
            let seen = snapshots.iter().rev().find(|(from, _)| *from <= left.time);
            let (_, table) = seen.unwrap_or(&snapshots[0]);
            let mut alone = true;
            let result = |right: Option<&Row>| {
                let of = |column: usize| right.map_or(Value::Null, |r| r.values[column].clone());
                let (id, number) = (left.values[ID].clone(), left.values[NUMBER].clone());
                Row {
                    time: left.time,
                    values: vec![id, of(ID), of(NUMBER), number],
                }
            };
            for right in table {
                let meets = |&key: &usize| keys_meet(&left.values[key], &right.values[key]);
                let Value::Int(number) = right.values[NUMBER] else {
                    panic!("numbers are numbers");
                };
                if self.least.is_some_and(|least| number < least) || !self.keys.iter().all(meets) {
                    continue;
                }
                match self
                    .residual
                    .holds(&left.values[NUMBER], &right.values[NUMBER])
                {
                    None => failed += 1,
                    Some(false) => {}
                    Some(true) => {
                        alone = false;
                        found.push(result(Some(right)));
                    }
                }
            }
            if alone && self.node.outer {
                found.push(result(None));
            }
        }
        (found, failed)
    }
}

// proves S3
#[test]
fn lookups_give_what_trying_every_row_of_the_table_gives() {
    for seed in 0..4_000 {
        let mut random = Random::new(seed);
        let case = lookup_case(&mut random);
        let streams = [stream(&mut random, 0)];
        let snapshots: Vec<(i64, Vec<Row>)> = (0..1 + random.below(3))
            .map(|index| {
                let rows = (0..random.below(10)).map(|id| row(&mut random, id as i64, 0));
                (995 + 8 * index as i64, rows.collect())
            })
            .collect();
        let table = ReferenceTable {
            snapshots: snapshots
                .iter()
                .map(|(from, rows)| {
                    let rows: Vec<&Row> = rows.iter().collect();
                    (Instant::from_ticks(*from), wide_chunk(&rows))
                })
                .collect(),
        };
        let mut plan = plan(1, vec![source(0), Node::Lookup(case.node.clone())]);
        plan.references = vec![case.reference.clone()];
        let physical = PhysicalPlan::with_references(Arc::new(plan), &[Arc::new(table)]).unwrap();
        let physical = Arc::new(physical);
        assert!(physical.is_partitioned(NodeId(1)));
        let (expected, failed) = case.expected(&merged(&streams[0]), &snapshots);
        let got = Run::new(&physical, &streams, &mut random).finish();
        assert_eq!(
            shown(&got.rows),
            shown(&expected),
            "seed {seed}, {:?}",
            case.node
        );
        assert_eq!(got.errors, failed, "seed {seed}");
    }
}

/// A chunk with all columns even if there are no rows.
fn wide_chunk(rows: &[&Row]) -> Chunk {
    let columns: Vec<Column> = (0..WIDTH).map(|c| column(rows, c)).collect();
    Chunk::new(rows.iter().map(|row| row.time).collect(), columns)
}

// proves S3
#[test]
fn a_lookup_that_matches_a_great_deal_goes_out_in_pieces() {
    let node = LookupNode {
        from: NodeId(0),
        reference: 0,
        columns: vec![(Side::Left, ID), (Side::Right, 0)],
        outer: true,
        keys: vec![],
        residual: None,
        span: SPAN,
    };
    let mut plan = plan(1, vec![source(0), Node::Lookup(node)]);
    plan.references = vec![Reference {
        name: "ref".into(),
        reads: vec![Read::Path(vec!["a".into()])],
        schema: None,
        steps: vec![],
        span: SPAN,
    }];
    let table = ReferenceTable::fixed(vec![Column::from_ints((0..30_000).collect())], 30_000);
    let physical = PhysicalPlan::with_references(Arc::new(plan), &[Arc::new(table)]).unwrap();
    let physical = Arc::new(physical);
    let mut random = Random::new(5);
    let rows: Vec<Row> = (0..3).map(|id| row(&mut random, id, 10)).collect();
    let chunk = streams::chunk(&rows.iter().collect::<Vec<_>>());
    let mut out = Vec::new();
    let item = highwater_engine::Item::Rows(chunk);
    physical
        .local(0)
        .push(PhysicalPlan::LOCAL_ENTRY, item, &mut out);
    let mut next = 0;
    for (_, item) in &out {
        let highwater_engine::Item::Rows(chunk) = item else {
            panic!("only rows come out");
        };
        assert!(chunk.rows() <= highwater_engine::CHUNK_ROWS + 1);
        for row in 0..chunk.rows() {
            let (left, right) = (chunk.columns[0].get(row), chunk.columns[1].get(row));
            let (id, at) = (next / 30_000, next % 30_000);
            let same = |value: highwater_engine::ValueRef<'_>, number: i64| matches!(value, highwater_engine::ValueRef::Int(found) if found == number);
            assert!(same(left, id) && same(right, at), "result {next}");
            next += 1;
        }
    }
    assert_eq!(next, 90_000);
}
