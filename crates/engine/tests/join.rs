//! Joins, lookups and APPLY against a brute-force oracle: every pair is tried, however the streams are cut into chunks,
//! whichever stream comes first, however often watermarks come, and wherever the run is stopped and taken up again.

mod streams;

use std::sync::Arc;

use highwater_engine::{
    Chunk, Column, Physical, PhysicalError, Record, ReferenceTable, Value, eval,
};
use highwater_query::Span;
use highwater_query::plan::{
    ApplyColumn, CompareOp, Each, Expr, ExprKind, Input, Item, JoinNode, Literal, LookupNode, Name,
    Node, NodeId, Output, Plan, Pred, PredKind, Read, Reference, ReferenceStep, Side, TimeBound,
};
use highwater_time::{Duration, Instant};

use streams::{Random, Row, Run, Stream, column, shown};

const SPAN: Span = Span { start: 0, end: 0 };

fn expr(kind: ExprKind) -> Expr {
    Expr { kind, span: SPAN }
}

fn col(index: usize) -> Expr {
    expr(ExprKind::Column(index))
}

fn int(value: i64) -> Expr {
    expr(ExprKind::Literal(Literal::Int(value)))
}

fn compare(op: CompareOp, left: Expr, right: Expr) -> Pred {
    Pred {
        kind: PredKind::Compare { op, left, right },
        span: SPAN,
    }
}

/// `12 % (left - right) = 0`: fails where the two are equal.
fn divides(left: Expr, right: Expr) -> Pred {
    let binary = |op, left, right| {
        expr(ExprKind::Binary {
            op,
            left: Box::new(left),
            right: Box::new(right),
        })
    };
    use highwater_query::plan::BinaryOp::{Modulo, Subtract};
    let distance = binary(Subtract, left, right);
    compare(CompareOp::Eq, binary(Modulo, int(12), distance), int(0))
}

/// What [`divides`] and [`CompareOp::Lt`] say of two values: `None` is a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Residual {
    None,
    Less,
    Divides,
}

impl Residual {
    fn any(random: &mut Random) -> Residual {
        [Residual::None, Residual::Less, Residual::Divides][random.below(3)]
    }

    fn pred(self, left: usize, right: usize) -> Option<Pred> {
        match self {
            Residual::None => None,
            Residual::Less => Some(compare(CompareOp::Lt, col(left), col(right))),
            Residual::Divides => Some(divides(col(left), col(right))),
        }
    }

    fn holds(self, left: &Value, right: &Value) -> Option<bool> {
        let (Value::Int(left), Value::Int(right)) = (left, right) else {
            panic!("residuals are over numbers");
        };
        match self {
            Residual::None => Some(true),
            Residual::Less => Some(left < right),
            Residual::Divides if left == right => None,
            Residual::Divides => Some(12 % (left - right) == 0),
        }
    }
}

fn input(name: &str, columns: usize) -> Input {
    Input {
        name: name.into(),
        reads: (0..columns)
            .map(|c| Read::Path(vec![format!("c{c}")]))
            .collect(),
        carried: Vec::new(),
        timestamp: None,
        substream: Vec::new(),
        schema: None,
        span: SPAN,
    }
}

// Columns of all streams here.
const ID: usize = 0;
const KEY: usize = 1;
const OTHER_KEY: usize = 2;
const NUMBER: usize = 3;
const TIME: usize = 4;
const WIDTH: usize = 5;

fn key(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => Value::Float(1.0),
        2 => Value::text("1"),
        3 => Value::Bit(true),
        _ => Value::Int(random.below(3) as i64),
    }
}

fn row(random: &mut Random, id: i64, time: i64) -> Row {
    let values = vec![
        Value::Int(id),
        key(random),
        match random.below(6) {
            0 => Value::Null,
            _ => Value::text(["a", "b"][random.below(2)]),
        },
        Value::Int(random.below(7) as i64),
        match random.below(6) {
            0 => Value::Null,
            _ => Value::Time(Instant::from_ticks(time - random.below(4) as i64)),
        },
    ];
    Row { time, values }
}

/// Partitions of one input. Mostly small, because small cases meet at the edges.
fn stream(random: &mut Random, first_id: i64) -> Stream {
    let (rows, span) = match random.below(20) {
        0 => (300, 2_000),
        1..=4 => (60, 120),
        _ => (12, 18),
    };
    let mut id = first_id;
    let partitions = 1 + random.below(3);
    (0..partitions)
        .map(|_| {
            let mut times: Vec<i64> = (0..random.below(rows + 1))
                .map(|_| 1_000 + random.below(span) as i64)
                .collect();
            times.sort_unstable();
            times
                .into_iter()
                .map(|time| {
                    id += 1;
                    row(random, id, time)
                })
                .collect()
        })
        .collect()
}

/// All rows of a stream in the order in which partitions are merged.
fn merged(stream: &Stream) -> Vec<&Row> {
    let mut rows: Vec<&Row> = stream.iter().flatten().collect();
    rows.sort_by_key(|row| row.time);
    rows
}

fn keys_meet(left: &Value, right: &Value) -> bool {
    !left.is_null() && !right.is_null() && eval::same(left.view(), right.view())
}

struct JoinCase {
    node: JoinNode,
    keys: Vec<usize>,
    residual: Residual,
}

fn duration(ticks: i64) -> Duration {
    Duration::from_ticks(ticks)
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

fn plan(inputs: usize, nodes: Vec<Node>) -> Plan {
    Plan {
        inputs: (0..inputs)
            .map(|i| input(&format!("in{i}"), WIDTH))
            .collect(),
        references: Vec::new(),
        outputs: vec![Output {
            name: "out".into(),
            from: NodeId(nodes.len() - 1),
        }],
        nodes,
    }
}

fn source(input: usize) -> Node {
    Node::Source { input }
}

// proves T9, T13, S1
#[test]
fn joins_give_what_trying_every_pair_gives() {
    for seed in 0..6_000 {
        let mut random = Random::new(seed);
        let case = join_case(&mut random);
        let streams = [stream(&mut random, 0), stream(&mut random, 1_000)];
        let plan = plan(2, vec![source(0), source(1), Node::Join(case.node.clone())]);
        let physical = Physical::new(Arc::new(plan)).unwrap();
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
        let physical = Physical::new(Arc::new(plan)).unwrap();
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
    let physical = Physical::new(Arc::new(plan)).unwrap();
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
    let physical = Physical::new(Arc::new(plan)).unwrap();
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
        let mut state = highwater_engine::codec::Writer::default();
        shared.pipeline.snapshot(&mut state);
        most = most.max(state.bytes.len());
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
    let refused = Physical::new(Arc::new(plan)).unwrap_err();
    assert_eq!(refused, PhysicalError::SubstreamsMixed);
}

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
        let physical = Physical::with_references(Arc::new(plan), &[Arc::new(table)]).unwrap();
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
    let physical = Physical::with_references(Arc::new(plan), &[Arc::new(table)]).unwrap();
    let mut random = Random::new(5);
    let rows: Vec<Row> = (0..3).map(|id| row(&mut random, id, 10)).collect();
    let chunk = streams::chunk(&rows.iter().collect::<Vec<_>>());
    let mut out = Vec::new();
    let item = highwater_engine::Item::Rows(chunk);
    physical
        .local(0)
        .push(Physical::LOCAL_ENTRY, item, &mut out);
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

fn nested(random: &mut Random) -> Value {
    match random.below(7) {
        0 => Value::Null,
        1 => Value::Int(3),
        2 | 3 => {
            let items = (0..random.below(4)).map(|_| key(random));
            Value::Array(items.collect::<Vec<_>>().into())
        }
        _ => {
            let mut record = Record::default();
            for name in ["x", "y", "z"].into_iter().take(random.below(4)) {
                record.set(name.into(), key(random));
            }
            Value::Record(Arc::new(record))
        }
    }
}

fn apply_expected(rows: &[&Row], each: Each, outer: bool) -> (Vec<Row>, u64) {
    let (mut found, mut failed) = (Vec::new(), 0);
    for row in rows {
        let parts: Vec<(Value, Value)> = match (&row.values[KEY], each) {
            (Value::Null, _) => vec![],
            (Value::Array(items), Each::Element) => items
                .iter()
                .enumerate()
                .map(|(index, item)| (Value::Int(index as i64), item.clone()))
                .collect(),
            (Value::Record(record), Each::Property) => record
                .iter()
                .map(|(name, value)| (Value::Text(name.clone()), value.clone()))
                .collect(),
            _ => {
                failed += 1;
                continue;
            }
        };
        let parts = match parts.is_empty() && outer {
            true => vec![(Value::Null, Value::Null)],
            false => parts,
        };
        let names = match each {
            Each::Element => ["ArrayIndex", "ArrayValue"],
            Each::Property => ["PropertyName", "PropertyValue"],
        };
        for (first, second) in parts {
            let mut record = Record::default();
            record.set(names[0].into(), first);
            record.set(names[1].into(), second);
            found.push(Row {
                time: row.time,
                values: vec![Value::Record(Arc::new(record)), row.values[ID].clone()],
            });
        }
    }
    (found, failed)
}

// proves S1
#[test]
fn apply_gives_a_row_for_each_part() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let mut streams = [stream(&mut random, 0)];
        for row in streams[0].iter_mut().flatten() {
            row.values[KEY] = nested(&mut random);
        }
        let each = [Each::Element, Each::Property][random.below(2)];
        let outer = random.flip();
        let apply = Node::Apply {
            from: NodeId(0),
            of: col(KEY),
            each,
            outer,
            columns: vec![ApplyColumn::Element, ApplyColumn::Carried(ID)],
        };
        let plan = plan(1, vec![source(0), apply]);
        let physical = Physical::new(Arc::new(plan)).unwrap();
        let (expected, failed) = apply_expected(&merged(&streams[0]), each, outer);
        let got = Run::new(&physical, &streams, &mut random).finish();
        assert_eq!(shown(&got.rows), shown(&expected), "seed {seed}");
        assert_eq!(got.errors, failed, "seed {seed}");
    }
}

type Event = Vec<(&'static str, Value)>;

/// Runs a query over events given as (field, value) lists; times are what TIMESTAMP BY says. Events of the reference
/// input `Ref`, if the query has one, become its table.
fn query(text: &str, inputs: &[(&str, Vec<Event>)]) -> Vec<String> {
    use highwater_query::{Catalog, CatalogInput, compile};
    let catalog = Catalog {
        inputs: inputs
            .iter()
            .map(|(name, _)| CatalogInput {
                name: name.to_string(),
                reference: *name == "Ref",
            })
            .collect(),
        ..Catalog::default()
    };
    let compiled = match compile(text, &catalog) {
        Ok(compiled) => compiled,
        Err(errors) => panic!("{}", errors[0].render(text, "query")),
    };
    let plan = Arc::new(compiled.plan);
    let read = |name: &str, reads: &[Read]| -> Vec<Row> {
        let (_, events) = inputs.iter().find(|(known, _)| *known == name).unwrap();
        let value = |event: &Event, read: &Read| match read {
            Read::Path(path) | Read::TimePath(path) => {
                let [field] = &path[..] else {
                    panic!("events here are flat");
                };
                let found = event.iter().find(|(name, _)| name == field);
                found.map_or(Value::Null, |(_, value)| value.clone())
            }
            other => panic!("{other:?} is not read here"),
        };
        let row = |event| Row {
            time: 0,
            values: reads.iter().map(|read| value(event, read)).collect(),
        };
        events.iter().map(row).collect()
    };
    let tables: Vec<Arc<ReferenceTable>> = plan
        .references
        .iter()
        .map(|reference| {
            let rows = read(&reference.name, &reference.reads);
            let table = streams::chunk(&rows.iter().collect::<Vec<_>>());
            Arc::new(ReferenceTable::fixed(table.columns, rows.len()))
        })
        .collect();
    let streams: Vec<Stream> = plan
        .inputs
        .iter()
        .map(|input| {
            let mut rows = read(&input.name, &input.reads);
            let chunk = streams::chunk(&rows.iter().collect::<Vec<_>>());
            let by = input.timestamp.as_ref().unwrap();
            let times = eval::evaluate(by, &chunk, &mut eval::Faults::new(rows.len()));
            for (index, row) in rows.iter_mut().enumerate() {
                match times.get(index) {
                    highwater_engine::ValueRef::Time(time) => row.time = time.ticks(),
                    other => panic!("{other:?} is no time"),
                }
            }
            vec![rows]
        })
        .collect();
    let physical = Physical::with_references(plan.clone(), &tables).unwrap();
    let got = Run::new(&physical, &streams, &mut Random::new(17)).finish();
    assert_eq!(got.errors, 0);
    shown(&got.rows)
}

/// A time some seconds into 2026.
fn second(second: i64) -> Value {
    let start = Instant::from_civil(2026, 1, 1).unwrap();
    Value::Time(Instant::from_ticks(
        start.ticks() + Duration::from_secs(second).ticks(),
    ))
}

/// Leaves the times of rows out.
fn values(rows: Vec<String>) -> Vec<String> {
    let value = |row: String| row.split_once(": ").unwrap().1.to_string();
    rows.into_iter().map(value).collect()
}

// proves S1
#[test]
fn orders_without_payment_are_found_when_the_last_payment_could_have_come() {
    let order = |id, at| vec![("id", Value::Int(id)), ("t", second(at))];
    let rows = query(
        "SELECT o.id, System.Timestamp() AS at FROM Orders o TIMESTAMP BY t
         LEFT JOIN Payments p TIMESTAMP BY t
         ON o.id = p.id AND DATEDIFF(second, o, p) BETWEEN 0 AND 30 WHERE p.id IS NULL",
        &[
            ("Orders", vec![order(1, 0), order(2, 5), order(3, 6)]),
            ("Payments", vec![order(9, 4), order(2, 35), order(3, 37)]),
        ],
    );
    let expected = [
        "1|2026-01-01T00:00:30.0000000Z",
        "3|2026-01-01T00:00:36.0000000Z",
    ];
    assert_eq!(values(rows), expected);
}

// proves S1
#[test]
fn three_streams_keep_the_times_of_their_own() {
    let event = |id, at| vec![("id", Value::Int(id)), ("t", second(at))];
    let rows = query(
        "SELECT a.id AS a, b.id AS b, c.id AS c FROM A a TIMESTAMP BY t
         JOIN B b TIMESTAMP BY t ON DATEDIFF(second, a, b) BETWEEN 0 AND 10
         JOIN C c TIMESTAMP BY t ON DATEDIFF(second, a, c) BETWEEN 0 AND 5
         AND DATEDIFF(second, b, c) BETWEEN -10 AND 0",
        &[
            ("A", vec![event(1, 0), event(2, 20)]),
            ("B", vec![event(3, 4), event(4, 9), event(5, 22)]),
            (
                "C",
                vec![event(6, 2), event(7, 5), event(8, 6), event(9, 21)],
            ),
        ],
    );
    let mut rows = values(rows);
    rows.sort();
    assert_eq!(rows, ["1|3|6", "1|4|6", "1|4|7", "2|5|9"]);
}

// proves S3
#[test]
fn reference_data_adds_to_events_and_never_moves_time() {
    let event = |id, at| vec![("id", Value::Int(id)), ("t", second(at))];
    let known = |id: Value, name| vec![("id", id), ("name", Value::text(name))];
    let rows = query(
        "SELECT e.id, r.name FROM Events e TIMESTAMP BY t LEFT JOIN Ref r ON e.id = r.id",
        &[
            ("Events", vec![event(1, 0), event(2, 1), event(3, 1)]),
            (
                "Ref",
                vec![
                    known(Value::Float(1.0), "one"),
                    known(Value::text("2"), "text"),
                    known(Value::Int(3), "three"),
                    known(Value::Int(3), "drei"),
                ],
            ),
        ],
    );
    assert_eq!(values(rows), ["1|one", "2|NULL", "3|three", "3|drei"]);
}

// proves S1
#[test]
fn elements_of_arrays_become_rows() {
    let array = |items: &[i64]| {
        let items: Vec<Value> = items.iter().map(|&item| Value::Int(item)).collect();
        Value::Array(items.into())
    };
    let event = |id, items, at| vec![("id", Value::Int(id)), ("a", items), ("t", second(at))];
    let rows = query(
        "SELECT e.id, x.ArrayIndex AS i, x.ArrayValue AS v FROM Events e TIMESTAMP BY t
         OUTER APPLY GetArrayElements(e.a) AS x",
        &[(
            "Events",
            vec![event(1, array(&[7, 8]), 0), event(2, array(&[]), 1)],
        )],
    );
    assert_eq!(values(rows), ["1|0|7", "1|1|8", "2|NULL|NULL"]);
}
