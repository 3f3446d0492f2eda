//! Expressions and chunks by hand.

use std::sync::Arc;

use highwater_query::Span;
use highwater_query::plan::{
    BinaryOp, CompareOp, Expr, ExprKind, Literal, Pred, PredKind, Type, UnaryOp,
};
use highwater_time::Instant;

use crate::chunk::Chunk;
use crate::column::{Column, ColumnBuilder};
use crate::value::{Record, Value};

pub(crate) fn expr(kind: ExprKind) -> Expr {
    Expr {
        kind,
        span: Span::default(),
    }
}

pub(crate) fn pred(kind: PredKind) -> Pred {
    Pred {
        kind,
        span: Span::default(),
    }
}

pub(crate) fn col(index: usize) -> Expr {
    expr(ExprKind::Column(index))
}

pub(crate) fn null() -> Expr {
    expr(ExprKind::Literal(Literal::Null))
}

pub(crate) fn int(value: i64) -> Expr {
    expr(ExprKind::Literal(Literal::Int(value)))
}

pub(crate) fn float(value: f64) -> Expr {
    expr(ExprKind::Literal(Literal::Float(value)))
}

pub(crate) fn text(value: &str) -> Expr {
    expr(ExprKind::Literal(Literal::Text(value.into())))
}

pub(crate) fn unary(op: UnaryOp, of: Expr) -> Expr {
    expr(ExprKind::Unary {
        op,
        of: Box::new(of),
    })
}

pub(crate) fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    expr(ExprKind::Binary {
        op,
        left: Box::new(left),
        right: Box::new(right),
    })
}

pub(crate) fn cast(of: Expr, to: Type) -> Expr {
    expr(ExprKind::Cast {
        of: Box::new(of),
        to,
        lenient: false,
    })
}

pub(crate) fn try_cast(of: Expr, to: Type) -> Expr {
    expr(ExprKind::Cast {
        of: Box::new(of),
        to,
        lenient: true,
    })
}

pub(crate) fn field(of: Expr, name: &str) -> Expr {
    expr(ExprKind::Field {
        of: Box::new(of),
        name: name.into(),
    })
}

pub(crate) fn case(branches: Vec<(Pred, Expr)>, otherwise: Expr) -> Expr {
    expr(ExprKind::Case {
        branches,
        otherwise: Box::new(otherwise),
    })
}

pub(crate) fn compare(op: CompareOp, left: Expr, right: Expr) -> Pred {
    pred(PredKind::Compare { op, left, right })
}

pub(crate) fn not(of: Pred) -> Pred {
    pred(PredKind::Not(Box::new(of)))
}

pub(crate) fn and(left: Pred, right: Pred) -> Pred {
    pred(PredKind::And(Box::new(left), Box::new(right)))
}

pub(crate) fn or(left: Pred, right: Pred) -> Pred {
    pred(PredKind::Or(Box::new(left), Box::new(right)))
}

pub(crate) fn is_null(of: Expr, negated: bool) -> Pred {
    pred(PredKind::IsNull { of, negated })
}

pub(crate) fn between(of: Expr, low: Expr, high: Expr, negated: bool) -> Pred {
    pred(PredKind::Between {
        of,
        low,
        high,
        negated,
    })
}

pub(crate) fn in_list(of: Expr, list: Vec<Expr>, negated: bool) -> Pred {
    pred(PredKind::In { of, list, negated })
}

pub(crate) fn like(of: Expr, pattern: Expr, negated: bool) -> Pred {
    pred(PredKind::Like {
        of,
        pattern,
        negated,
    })
}

pub(crate) fn record(fields: &[(&str, Value)]) -> Value {
    let mut record = Record::with_capacity(fields.len());
    fields
        .iter()
        .for_each(|(name, value)| record.set((*name).into(), value.clone()));
    Value::Record(Arc::new(record))
}

pub(crate) fn array(items: &[Value]) -> Value {
    Value::Array(items.into())
}

pub(crate) fn time(text: &str) -> Value {
    Value::Time(Instant::parse_iso(text.as_bytes()).expect("test times are valid"))
}

pub(crate) fn column(values: &[Value]) -> Column {
    let mut builder = ColumnBuilder::with_capacity(values.len());
    values.iter().for_each(|value| builder.push(value.view()));
    builder.finish()
}

/// One row of these values, at 2024-01-01 plus one tick.
pub(crate) fn row(values: &[Value]) -> Chunk {
    let columns = values
        .iter()
        .map(|value| column(std::slice::from_ref(value)))
        .collect();
    let Value::Time(at) = time("2024-01-01T00:00:00.0000001Z") else {
        unreachable!()
    };
    Chunk::new(vec![at.ticks()].into(), columns)
}

/// A value with its type, for comparing results to the last bit.
pub(crate) fn exact(value: &Value) -> String {
    format!("{value:?}")
}
