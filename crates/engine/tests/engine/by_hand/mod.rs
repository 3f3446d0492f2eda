//! Plans put together by hand and run an item at a time.

use std::sync::Arc;

use highwater_engine::{
    Chunk, ChunkLanes, ColumnBuilder, DataErrors, Item, PhysicalPlan, Value, ValueRef,
};
use highwater_query::Span;
use highwater_query::plan::{
    CompareOp, Expr, ExprKind, Input, Literal, Node, NodeId, Output, Plan, Pred, PredKind, Read,
};
use highwater_time::{Instant, LaneWatermark, TICKS_PER_SECOND};

use crate::running::Running;

pub(crate) fn expr(kind: ExprKind) -> Expr {
    Expr {
        kind,
        span: Span::default(),
    }
}

pub(crate) fn column(index: usize) -> Expr {
    expr(ExprKind::Column(index))
}

pub(crate) fn int(value: i64) -> Expr {
    expr(ExprKind::Literal(Literal::Int(value)))
}

pub(crate) fn compare(op: CompareOp, left: Expr, right: Expr) -> Pred {
    Pred {
        kind: PredKind::Compare { op, left, right },
        span: Span::default(),
    }
}

/// A plan of one input and one node over it.
pub(crate) fn plan(reads: &[&str], node: Node) -> Plan {
    let input = Input {
        name: "input".into(),
        reads: reads
            .iter()
            .map(|read| Read::Path(vec![(*read).into()]))
            .collect(),
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

/// The first second of every test; no multiple of any limit.
pub(crate) const EPOCH: i64 = 63_000_000_001;

pub(crate) fn ticks(second: i64) -> i64 {
    (EPOCH + second) * TICKS_PER_SECOND
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub second: i64,
    pub lane: Option<u32>,
    pub values: Vec<Value>,
}

/// A result: its second, its lane, its values as text with their types.
pub(crate) type Shown = (i64, Option<u32>, Vec<String>);

pub(crate) fn show(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Record(record) => {
            let fields = record.iter();
            let fields = fields.map(|(name, value)| format!("{name}: {}", show(value.view())));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        ValueRef::Array(items) => {
            let items = items.iter().map(|item| show(item.view()));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

pub(crate) struct Drive {
    running: Running,
    pub rows: Vec<Shown>,
    pub watermarks: usize,
}

impl Drive {
    pub(crate) fn new(plan: Plan, partitions: usize) -> Drive {
        let physical = PhysicalPlan::new(Arc::new(plan)).expect("the plan can run");
        Drive {
            running: Running::new(Arc::new(physical), &[partitions]),
            rows: Vec::new(),
            watermarks: 0,
        }
    }

    pub(crate) fn rows(&mut self, partition: usize, rows: &[Row], watermarks: Vec<LaneWatermark>) {
        let width = self.running.plan().inputs[0].reads.len();
        let columns = (0..width).map(|column| {
            let mut builder = ColumnBuilder::default();
            rows.iter()
                .for_each(|row| builder.push_owned(row.values[column].clone()));
            builder.finish()
        });
        let times: Vec<i64> = rows.iter().map(|row| ticks(row.second)).collect();
        let mut chunk = Chunk::new(times.into(), columns.collect());
        let lanes: Option<Vec<u32>> = rows.iter().map(|row| row.lane).collect();
        if let Some(of_row) = lanes.filter(|lanes| !lanes.is_empty()) {
            chunk.lanes = Some(ChunkLanes {
                of_row,
                watermarks,
                names: Vec::new(),
            });
        }
        self.push(partition, Item::Rows(chunk));
    }

    pub(crate) fn watermark(&mut self, partition: usize, watermark: Instant) {
        self.push(partition, Item::Watermark(watermark));
    }

    fn push(&mut self, partition: usize, item: Item) {
        for item in self.running.push(0, partition, item) {
            if let Item::Rows(chunk) = item {
                self.take(&chunk);
            }
        }
    }

    fn take(&mut self, chunk: &Chunk) {
        self.watermarks += chunk
            .lanes
            .as_ref()
            .map_or(0, |lanes| lanes.watermarks.len());
        for row in 0..chunk.rows() {
            let second = chunk.times[row] / TICKS_PER_SECOND - EPOCH;
            assert_eq!(ticks(second), chunk.times[row]);
            let values = chunk.columns.iter().map(|column| show(column.get(row)));
            let lane = chunk.lanes.as_ref().map(|lanes| lanes.of_row[row]);
            self.rows.push((second, lane, values.collect()));
        }
    }

    pub(crate) fn errors(&self) -> DataErrors {
        self.running.errors()
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        self.running.snapshot()
    }

    pub(crate) fn restart(&mut self) {
        self.running.restart();
    }
}

/// Runs rows through a plan, cut into chunks with watermarks between them as `cuts` says, with a restart in between.
/// Watermarks are those of the next row (or of the floor of what follows, where there are lanes), or none.
pub(crate) fn run(plan: &Plan, rows: &[Row], cuts: &[u8]) -> Drive {
    let mut drive = Drive::new(plan.clone(), 1);
    let mut cuts = cuts.iter().copied().cycle();
    let mut next = move |below: usize| usize::from(cuts.next().unwrap_or(0)) % below;
    let restart = next(8);
    let (mut from, mut step) = (0, 0);
    while from < rows.len() {
        if step == restart {
            drive.restart();
        }
        let to = from + 1 + next(rows.len() - from);
        let floor = |at: usize| rows[at..].iter().map(|row| row.second).min();
        let mut watermarks = Vec::new();
        if rows[from].lane.is_some() {
            for at in from..=to {
                if let (1, Some(floor)) = (next(2), floor(at)) {
                    watermarks.push(LaneWatermark {
                        before_row: at - from,
                        lane: None,
                        watermark: Instant::from_ticks(ticks(floor)),
                    });
                }
            }
        }
        drive.rows(0, &rows[from..to], watermarks);
        if let (1, Some(floor)) = (next(2), floor(to)) {
            drive.watermark(0, Instant::from_ticks(ticks(floor)));
        }
        (from, step) = (to, step + 1);
    }
    drive.watermark(0, Instant::AFTER_ALL);
    drive
}

pub(crate) fn compiled(sql: &str) -> Plan {
    let catalog = highwater_query::Catalog::streams(["input"]);
    let compiled = highwater_query::compile(sql, &catalog);
    compiled
        .unwrap_or_else(|errors| panic!("{sql}: {errors:?}"))
        .plan
}

/// A row with the columns that a plan reads; fields that are not given are NULL.
pub(crate) fn row_for(plan: &Plan, second: i64, fields: &[(&str, Value)]) -> Row {
    let value = |read: &Read| {
        let (Read::Path(path) | Read::TimePath(path)) = read else {
            return Value::Null;
        };
        let named = fields.iter().find(|(name, _)| *name == path[0]);
        named.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    Row {
        second,
        lane: None,
        values: plan.inputs[0].reads.iter().map(value).collect(),
    }
}
