//! Plans put together by hand, and the rows that run through them.

use std::sync::Arc;

use highwater_engine::{PhysicalPlan, Value, eval};
use highwater_query::Span;
use highwater_query::plan::{
    CompareOp, Expr, ExprKind, Input, Node, NodeId, Output, Plan, Pred, Read,
};
use highwater_time::{Duration, Instant};

use crate::by_hand::{column as col, compare, expr, int};
use crate::streams::{Random, Row, Stream};

pub(crate) const SPAN: Span = Span { start: 0, end: 0 };

/// `12 % (left - right) = 0`: fails where the two are equal.
pub(crate) fn divides(left: Expr, right: Expr) -> Pred {
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
pub(crate) enum Residual {
    None,
    Less,
    Divides,
}

impl Residual {
    pub(crate) fn any(random: &mut Random) -> Residual {
        [Residual::None, Residual::Less, Residual::Divides][random.below(3)]
    }

    pub(crate) fn pred(self, left: usize, right: usize) -> Option<Pred> {
        match self {
            Residual::None => None,
            Residual::Less => Some(compare(CompareOp::Lt, col(left), col(right))),
            Residual::Divides => Some(divides(col(left), col(right))),
        }
    }

    pub(crate) fn holds(self, left: &Value, right: &Value) -> Option<bool> {
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

pub(crate) fn input(name: &str, columns: usize) -> Input {
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
pub(crate) const ID: usize = 0;
pub(crate) const KEY: usize = 1;
pub(crate) const OTHER_KEY: usize = 2;
pub(crate) const NUMBER: usize = 3;
pub(crate) const TIME: usize = 4;
pub(crate) const WIDTH: usize = 5;

pub(crate) fn key(random: &mut Random) -> Value {
    let day = Instant::parse_iso(b"2026-03-02").expect("a date");
    match random.below(16) {
        0 | 1 => Value::Null,
        2 => Value::Float(1.0),
        3 => Value::text("1"),
        4 => Value::text(["1.0", "one", "TRUE", "2026-03-02T00:00:00Z"][random.below(4)]),
        5 => Value::Bit(true),
        6 => Value::Time(day),
        // Too long to be kept in an index, and one of them equals a number.
        7 => Value::text(
            [
                "a text of more than forty bytes: the first",
                "a text of more than forty bytes: the other",
                "1.0000000000000000000000000000000000000000",
            ][random.below(3)],
        ),
        _ => Value::Int(random.below(3) as i64),
    }
}

pub(crate) fn row(random: &mut Random, id: i64, time: i64) -> Row {
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
pub(crate) fn stream(random: &mut Random, first_id: i64) -> Stream {
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
pub(crate) fn merged(stream: &Stream) -> Vec<&Row> {
    let mut rows: Vec<&Row> = stream.iter().flatten().collect();
    rows.sort_by_key(|row| row.time);
    rows
}

pub(crate) fn keys_meet(left: &Value, right: &Value) -> bool {
    matches!(eval::equal(left.view(), right.view()), Ok(Some(true)))
}

pub(crate) fn duration(ticks: i64) -> Duration {
    Duration::from_ticks(ticks)
}

pub(crate) fn plan(inputs: usize, nodes: Vec<Node>) -> Plan {
    Plan {
        inputs: (0..inputs)
            .map(|i| input(&format!("in{i}"), WIDTH))
            .collect(),
        references: Vec::new(),
        ignore_case: false,
        outputs: vec![Output {
            name: "out".into(),
            from: NodeId(nodes.len() - 1),
        }],
        nodes,
    }
}

pub(crate) fn source(input: usize) -> Node {
    Node::Source { input }
}

pub(crate) fn physical(plan: Plan) -> Arc<PhysicalPlan> {
    Arc::new(PhysicalPlan::new(Arc::new(plan)).expect("the plan can run"))
}
