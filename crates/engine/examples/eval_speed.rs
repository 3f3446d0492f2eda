//! How long expressions take per row: `cargo run --release -p highwater-engine --example eval_speed`.
//!
//! Columns and row counts are those of a usual chunk, so everything stays in the cache as it would behind a source.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::Instant;

use highwater_engine::eval::{Faults, evaluate, test};
use highwater_engine::{CHUNK_ROWS, Chunk, Column, ColumnBuilder, ValueRef};
use highwater_query::Span;
use highwater_query::plan::{BinaryOp, CompareOp, Expr, ExprKind, Literal, Pred, PredKind, Type};

const ROUNDS: usize = 5_000;

fn main() {
    let typed = chunk();
    let columns = typed.columns.iter().map(Column::to_dynamic).collect();
    let dynamic = typed.with_columns(columns);
    for (kind, chunk, rounds) in [
        ("typed", &typed, ROUNDS),
        ("dynamic", &dynamic, ROUNDS / 20),
    ] {
        println!("{kind} columns, {CHUNK_ROWS} rows a chunk, ns/row:");
        let filter = and(
            compare(CompareOp::Eq, column(0), int(2)),
            compare(CompareOp::Gt, column(1), int(10)),
        );
        report("VehicleType = 2 AND Toll > 10", rounds, || {
            pred(&filter, chunk)
        });
        let sum = binary(
            BinaryOp::Add,
            column(0),
            binary(BinaryOp::Multiply, column(2), int(2)),
        );
        report("a + b * 2 (bigint)", rounds, || expr(&sum, chunk));
        let sum = binary(
            BinaryOp::Add,
            column(1),
            binary(BinaryOp::Multiply, column(1), int(2)),
        );
        report("a + b * 2 (float)", rounds, || expr(&sum, chunk));
        let state = compare(CompareOp::Eq, column(3), text("WA"));
        report("State = 'WA'", rounds, || pred(&state, chunk));
        let like = Pred {
            kind: PredKind::Like {
                of: column(3),
                pattern: text("W%"),
                negated: false,
            },
            span: Span::default(),
        };
        report("State LIKE 'W%'", rounds, || pred(&like, chunk));
        let case = Expr {
            kind: ExprKind::Case {
                branches: vec![(filter.clone(), column(1))],
                otherwise: Box::new(float(0.0)),
            },
            span: Span::default(),
        };
        report("CASE WHEN .. THEN Toll ELSE 0.0 END", rounds / 5, || {
            expr(&case, chunk)
        });
        let cast = Expr {
            kind: ExprKind::Cast {
                of: Box::new(column(2)),
                to: Type::Text,
                lenient: false,
            },
            span: Span::default(),
        };
        report("CAST(b AS nvarchar(max))", rounds / 5, || {
            expr(&cast, chunk)
        });
    }
}

fn report(name: &str, rounds: usize, mut run: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        (0..rounds / 5).for_each(|_| run());
        let nanos = start.elapsed().as_nanos() as f64;
        best = best.min(nanos / (rounds / 5 * CHUNK_ROWS) as f64);
    }
    println!("  {name:<36} {best:8.2}");
}

fn pred(pred: &Pred, chunk: &Chunk) {
    let mut faults = Faults::new(chunk.rows());
    black_box(test(black_box(pred), chunk, &mut faults));
    assert!(faults.is_empty());
}

fn expr(expr: &Expr, chunk: &Chunk) {
    let mut faults = Faults::new(chunk.rows());
    black_box(evaluate(black_box(expr), chunk, &mut faults));
    assert!(faults.is_empty());
}

/// VehicleType, Toll, a second bigint, State.
fn chunk() -> Chunk {
    let mut builders: Vec<_> = (0..4)
        .map(|_| ColumnBuilder::with_capacity(CHUNK_ROWS))
        .collect();
    let mut seed = 42_u64;
    for _ in 0..CHUNK_ROWS {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let random = (seed >> 33) as i64;
        builders[0].push_int(random % 3);
        builders[1].push_float((random % 40) as f64 / 2.0);
        builders[2].push_int(random);
        builders[3].push(ValueRef::Text(
            ["WA", "OR", "CA", "TX"][random as usize % 4],
        ));
    }
    let times = (0..CHUNK_ROWS as i64).collect();
    Chunk::new(
        times,
        builders.into_iter().map(ColumnBuilder::finish).collect(),
    )
}

fn column(index: usize) -> Expr {
    Expr {
        kind: ExprKind::Column(index),
        span: Span::default(),
    }
}

fn int(value: i64) -> Expr {
    Expr {
        kind: ExprKind::Literal(Literal::Int(value)),
        span: Span::default(),
    }
}

fn float(value: f64) -> Expr {
    Expr {
        kind: ExprKind::Literal(Literal::Float(value)),
        span: Span::default(),
    }
}

fn text(value: &str) -> Expr {
    Expr {
        kind: ExprKind::Literal(Literal::Text(value.into())),
        span: Span::default(),
    }
}

fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    let kind = ExprKind::Binary {
        op,
        left: Box::new(left),
        right: Box::new(right),
    };
    Expr {
        kind,
        span: Span::default(),
    }
}

fn compare(op: CompareOp, left: Expr, right: Expr) -> Pred {
    Pred {
        kind: PredKind::Compare { op, left, right },
        span: Span::default(),
    }
}

fn and(left: Pred, right: Pred) -> Pred {
    Pred {
        kind: PredKind::And(Box::new(left), Box::new(right)),
        span: Span::default(),
    }
}
