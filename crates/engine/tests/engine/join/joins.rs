//! Joins of two streams: every pair is tried.

use std::sync::Arc;

use highwater_engine::{PhysicalPlan, PhysicalPlanError, Value};
use highwater_query::plan::{ExprKind, JoinNode, Node, NodeId, Side, TimeBound};
use highwater_time::Instant;

use crate::by_hand::{column as col, expr, int};
use crate::join::plans::*;
use crate::streams::{self, Random, Row, Run, Stream, shown};

struct JoinCase {
    node: JoinNode,
    keys: Vec<usize>,
    residual: Residual,
}

fn join_case(random: &mut Random) -> JoinCase {
    let (low, high) = match random.below(6) {
        0 => {
            let at = random.between(-5, 5);
            (at, at)
        }
        1 => (0, random.between(0, 12)),
        2 => (random.between(-12, 0), 0),
        3 => (random.between(-40, 0), random.between(0, 40)),
        _ => {
            let low = random.between(-8, 8);
            (low, low + random.between(-1, 9))
        }
    };
    let mut bounds = vec![TimeBound {
        left_column: None,
        low: Some(duration(low)),
        high: Some(duration(high)),
    }];
    if random.below(3) == 0 {
        bounds.push(TimeBound {
            left_column: random.flip().then_some(TIME),
            low: random.flip().then(|| duration(random.between(-4, 2))),
            high: random.flip().then(|| duration(random.between(0, 6))),
        });
    }
    let keys = match random.below(4) {
        0 => vec![],
        1 => vec![KEY],
        2 => vec![OTHER_KEY],
        _ => vec![KEY, OTHER_KEY],
    };
    let residual = Residual::any(random);
    let node = JoinNode {
        left: NodeId(0),
        right: NodeId(1),
        columns: vec![
            (Side::Left, ID),
            (Side::Right, ID),
            (Side::Right, NUMBER),
            (Side::Left, NUMBER),
            (Side::Left, KEY),
            (Side::Left, OTHER_KEY),
        ],
        outer: random.flip(),
        low: duration(low),
        high: duration(high),
        bounds,
        keys: keys.iter().map(|&key| (col(key), col(key))).collect(),
        residual: residual.pred(3, 2),
        by_partition: false,
        span: SPAN,
    };
    JoinCase {
        node,
        keys,
        residual,
    }
}

impl JoinCase {
    fn in_bounds(&self, left: &Row, right: &Row) -> bool {
        let distance = right.time - left.time;
        let (low, high) = (self.node.low.ticks(), self.node.high.ticks());
        low <= distance
            && distance <= high
            && self.node.bounds.iter().all(|bound| {
                let from = match bound.left_column {
                    None => left.time,
                    Some(column) => match &left.values[column] {
                        Value::Time(time) => time.ticks(),
                        _ => return false,
                    },
                };
                let distance = right.time - from;
                bound.low.is_none_or(|low| low.ticks() <= distance)
                    && bound.high.is_none_or(|high| distance <= high.ticks())
            })
    }

    /// The last time at which a partner could come, if ever.
    fn last_partner(&self, left: &Row) -> i64 {
        let bounds = self.node.bounds.iter().map(|bound| {
            let from = match bound.left_column.map(|column| &left.values[column]) {
                None => left.time,
                Some(Value::Time(time)) => time.ticks(),
                Some(_) => return i64::MIN,
            };
            bound.high.map_or(i64::MAX, |high| from + high.ticks())
        });
        let last = left.time + self.node.high.ticks();
        bounds.fold(last, i64::min)
    }

    /// The results in order, and how many pairs failed.
    fn expected(&self, left: &[&Row], right: &[&Row]) -> (Vec<Row>, u64) {
        let (mut found, mut failed) = (Vec::new(), 0);
        for (l, left) in left.iter().enumerate() {
            let mut alone = true;
            for (r, right) in right.iter().enumerate() {
                let meets = |&key: &usize| keys_meet(&left.values[key], &right.values[key]);
                if !self.keys.iter().all(meets) || !self.in_bounds(left, right) {
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
                        let time = left.time.max(right.time);
                        found.push(((time, l, r), self.result(time, left, Some(right))));
                    }
                }
            }
            if alone && self.node.outer {
                let time = left.time.max(self.last_partner(left));
                found.push(((time, l, 0), self.result(time, left, None)));
            }
        }
        found.sort_by_key(|(order, _)| *order);
        (found.into_iter().map(|(_, row)| row).collect(), failed)
    }

    fn result(&self, time: i64, left: &Row, right: Option<&Row>) -> Row {
        let values = self.node.columns.iter().map(|&(side, column)| match side {
            Side::Left => left.values[column].clone(),
            Side::Right => right.map_or(Value::Null, |right| right.values[column].clone()),
        });
        Row {
            time,
            values: values.collect(),
        }
    }
}
// proves T9, T13, S1
#[test]
fn joins_give_what_trying_every_pair_gives() {
    for seed in 0..6_000 {
        let mut random = Random::new(seed);
        let case = join_case(&mut random);
        let streams = [stream(&mut random, 0), stream(&mut random, 1_000)];
        let plan = plan(2, vec![source(0), source(1), Node::Join(case.node.clone())]);
        let physical = physical(plan);
        let (expected, failed) = case.expected(&merged(&streams[0]), &merged(&streams[1]));
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

// proves T9
#[test]
fn a_stream_joined_to_itself_in_each_partition_keeps_partitions_apart() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let mut case = join_case(&mut random);
        case.node.by_partition = true;
        case.node.right = NodeId(0);
        let streams = [stream(&mut random, 0)];
        let plan = plan(1, vec![source(0), Node::Join(case.node.clone())]);
        let physical = physical(plan);
        assert!(physical.is_partitioned(NodeId(1)));
        let (mut expected, mut failed) = (Vec::new(), 0);
        for partition in &streams[0] {
            let rows: Vec<&Row> = partition.iter().collect();
            let (rows, faults) = case.expected(&rows, &rows);
            expected.extend(rows);
            failed += faults;
        }
        expected.sort_by_key(|row| row.time);
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

// proves S1
#[test]
fn rows_whose_key_fails_are_counted_and_left_out() {
    let failing = expr(ExprKind::Binary {
        op: highwater_query::plan::BinaryOp::Divide,
        left: Box::new(int(6)),
        right: Box::new(col(NUMBER)),
    });
    let node = JoinNode {
        keys: vec![(failing.clone(), failing)],
        outer: true,
        ..join_case(&mut Random::new(1)).node
    };
    let rows = |number: i64, id: i64| Row {
        time: 1_000,
        values: vec![
            Value::Int(id),
            Value::Null,
            Value::Null,
            Value::Int(number),
            Value::Null,
        ],
    };
    let node = JoinNode {
        low: duration(0),
        high: duration(5),
        bounds: vec![],
        residual: None,
        columns: vec![(Side::Left, ID), (Side::Right, ID)],
        ..node
    };
    let streams: [Stream; 2] = [
        vec![vec![rows(0, 1), rows(2, 2), rows(3, 3)]],
        vec![vec![rows(2, 4), rows(0, 5), rows(0, 6)]],
    ];
    let plan = plan(2, vec![source(0), source(1), Node::Join(node)]);
    let physical = physical(plan);
    let got = Run::new(&physical, &streams, &mut Random::new(7)).finish();
    assert_eq!(got.errors, 3);
    let ids: Vec<String> = shown(&got.rows);
    assert_eq!(ids, ["1000: 2|4", "1005: 3|NULL"]);
}

// proves T13
#[test]
fn what_a_join_keeps_is_bounded_by_its_bounds_in_time() {
    let case = JoinCase {
        node: JoinNode {
            low: duration(-20),
            high: duration(50),
            bounds: vec![],
            keys: vec![(col(KEY), col(KEY))],
            residual: None,
            outer: true,
            ..join_case(&mut Random::new(3)).node
        },
        keys: vec![KEY],
        residual: Residual::None,
    };
    let plan = plan(2, vec![source(0), source(1), Node::Join(case.node)]);
    let physical = physical(plan);
    let mut random = Random::new(11);
    let mut shared = physical.shared(&[1, 1]);
    let mut most = 0;
    for time in 0..5_000 {
        for input in 0..2 {
            let one = [row(&mut random, time, time)];
            let chunk = streams::chunk(&one.iter().collect::<Vec<_>>());
            let entry = shared.entry(input, 0, 0);
            let mut out = Vec::new();
            let mark = Instant::from_ticks(time);
            let rows = highwater_engine::Item::Rows(chunk);
            shared.pipeline.push(entry, rows, &mut out);
            let mark = highwater_engine::Item::Watermark(mark);
            shared.pipeline.push(entry, mark, &mut out);
        }
        let mut state = Vec::new();
        shared.pipeline.snapshot(&mut state);
        most = most.max(state.len());
    }
    assert!(most < 72 * 150, "{most} bytes for 72 rows");
}

// proves T9
#[test]
fn substreams_meet_only_substreams() {
    let mut plan = plan(
        2,
        vec![
            source(0),
            source(1),
            Node::Join(join_case(&mut Random::new(1)).node),
        ],
    );
    plan.inputs[0].substream = vec![col(KEY)];
    let refused = PhysicalPlan::new(Arc::new(plan)).unwrap_err();
    assert_eq!(refused, PhysicalPlanError::SubstreamsMixed);
}
