//! CASE and COALESCE: select the value of each row from several branches.
//!
//! **The type of a CASE.** Its numbers take the highest numeric type among the branches: bit, bigint, float, in this
//! order. Values have types, so the type of a branch differs from row to row; but deciding by the values of a chunk
//! would make the result depend on chunk boundaries. So the text of the query alone decides: if some branch yields only
//! floats (a float literal, a CAST to float, arithmetic with either), every number of the other branches becomes a
//! float; likewise a bit becomes a bigint beside a branch that yields bigints or floats. If the text does not determine
//! the type, and for values that are no numbers, a value keeps its own type. COALESCE does not unify types.

use arrow_buffer::{BooleanBuffer, NullBuffer};
use highwater_query::functions::Function;
use highwater_query::plan::{BinaryOp, Expr, ExprKind, Literal, Pred, Type, UnaryOp};

use crate::chunk::Chunk;
use crate::column::{Column, ColumnBuilder};
use crate::value::{Value, ValueRef};

use super::expr::value_of;
use super::fault::Faults;
use super::operand::{Datum, NumericOperand, Operand};
use super::predicate;
use super::rows::Rows;

/// The numeric types, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Bit,
    Bigint,
    Float,
}

/// The value of a CASE. A branch is evaluated only for its rows.
pub(super) fn case(
    branches: &[(Pred, Expr)],
    otherwise: &Expr,
    chunk: &Chunk,
    rows: &Rows,
    faults: &mut Faults,
) -> Datum {
    let rank = case_rank(branches, otherwise);
    let mut values = BranchValues::default();
    let mut open = rows.clone();
    for (condition, expr) in branches {
        if open.none() {
            break;
        }
        let taken = open.clip(&predicate::holds(condition, chunk, &open, faults));
        open = open.and_not(&taken);
        values.add(taken, |rows| {
            promote(value_of(expr, chunk, rows, faults), rank)
        });
    }
    let rest = open.clip(&BooleanBuffer::new_set(rows.len()));
    values.add(rest, |rows| {
        promote(value_of(otherwise, chunk, rows, faults), rank)
    });
    values.finish(rows.len())
}

/// The first argument that is not NULL. An argument is evaluated only for rows without a value so far.
pub(super) fn coalesce(args: &[Expr], chunk: &Chunk, rows: &Rows, faults: &mut Faults) -> Datum {
    let mut values = BranchValues::default();
    let mut open = rows.clone();
    for arg in args {
        if open.none() {
            break;
        }
        let value = value_of(arg, chunk, &open, faults);
        let Some(present) = value.present(rows.len()) else {
            values.add(open.clip(&BooleanBuffer::new_set(rows.len())), |_| value);
            break;
        };
        let taken = open.clip(&present);
        open = open.and_not(&taken);
        values.add(taken, |_| value);
    }
    values.finish(rows.len())
}

/// The values of the branches with their rows, which are disjoint.
#[derive(Default)]
struct BranchValues {
    parts: Vec<(BooleanBuffer, Datum)>,
}

impl BranchValues {
    fn add(&mut self, taken: BooleanBuffer, value: impl FnOnce(&Rows) -> Datum) {
        if taken.count_set_bits() > 0 {
            let value = value(&Rows::of(taken.clone()));
            self.parts.push((taken, value));
        }
    }

    /// Rows of no branch are NULL. A single branch is returned as it is, because other rows are either not selected or
    /// already NULL in it.
    fn finish(self, rows: usize) -> Datum {
        let mut parts = self.parts;
        if parts.len() <= 1 {
            return parts.pop().map_or(Datum::NULL, |(_, value)| value);
        }
        if let Some(merged) = merge_typed(&parts, rows) {
            return merged;
        }
        let mut part_of_row = vec![usize::MAX; rows];
        for (part, (taken, _)) in parts.iter().enumerate() {
            taken.set_indices().for_each(|row| part_of_row[row] = part);
        }
        let mut builder = ColumnBuilder::with_capacity(rows);
        for (row, &part) in part_of_row.iter().enumerate() {
            builder.push(
                parts
                    .get(part)
                    .map_or(ValueRef::Null, |(_, value)| value.get(row)),
            );
        }
        Datum::Column(builder.finish())
    }
}

/// Merges branches of one plain type.
fn merge_typed(parts: &[(BooleanBuffer, Datum)], rows: usize) -> Option<Datum> {
    let nulls = || {
        let mut valid = BooleanBuffer::new_unset(rows);
        for (taken, value) in parts {
            valid = match value.nulls() {
                Some(nulls) => &valid | &(taken & nulls.inner()),
                None => &valid | taken,
            };
        }
        Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0)
    };
    if let Some(ints) = overlay(parts, rows, ints_of) {
        return Some(Datum::ints(ints, nulls()));
    }
    if let Some(times) = overlay(parts, rows, Datum::times) {
        return Some(Datum::ticks(times, nulls()));
    }
    let floats = overlay(parts, rows, floats_of)?;
    Some(Datum::floats(floats, nulls()))
}

/// The values of each branch in its rows, if every branch has values of that type.
fn overlay<T: Copy + Default>(
    parts: &[(BooleanBuffer, Datum)],
    rows: usize,
    side: impl Fn(&Datum) -> Option<Operand<'_, T>>,
) -> Option<Vec<T>> {
    if parts.iter().any(|(_, value)| side(value).is_none()) {
        return None;
    }
    let mut merged = vec![T::default(); rows];
    for (taken, value) in parts {
        match side(value)? {
            Operand::Many(values) => taken
                .set_indices()
                .for_each(|row| merged[row] = values[row]),
            Operand::One(value) => taken.set_indices().for_each(|row| merged[row] = value),
        }
    }
    Some(merged)
}

fn ints_of(value: &Datum) -> Option<Operand<'_, i64>> {
    match value.numbers() {
        // A scalar bit counts as a number elsewhere, but here it must stay a bit.
        Some(NumericOperand::Ints(side)) if !matches!(value, Datum::Scalar(Value::Bit(_))) => {
            Some(side)
        }
        _ => None,
    }
}

fn floats_of(value: &Datum) -> Option<Operand<'_, f64>> {
    match value.numbers() {
        Some(NumericOperand::Floats(side)) => Some(side),
        _ => None,
    }
}

/// Converts numbers below `rank` to it.
fn promote(value: Datum, rank: Option<Rank>) -> Datum {
    let Some(rank) = rank.filter(|&rank| rank > Rank::Bit) else {
        return value;
    };
    match &value {
        Datum::Scalar(scalar) => Datum::Scalar(promote_value(scalar.view(), rank)),
        Datum::Column(Column::Int(a)) if rank == Rank::Float => {
            let floats: Vec<f64> = a.values().iter().map(|&v| v as f64).collect();
            let nulls = value.nulls().cloned();
            Datum::floats(floats, nulls)
        }
        Datum::Column(column @ (Column::Bit(_) | Column::Dynamic(_))) => {
            let mut builder = ColumnBuilder::with_capacity(column.len());
            for row in 0..column.len() {
                builder.push_owned(promote_value(column.get(row), rank));
            }
            Datum::Column(builder.finish())
        }
        Datum::Column(_) => value,
    }
}

fn promote_value(value: ValueRef<'_>, rank: Rank) -> Value {
    match (value, rank) {
        (ValueRef::Bit(b), Rank::Bigint) => Value::Int(b.into()),
        (ValueRef::Bit(b), Rank::Float) => Value::Float(f64::from(u8::from(b))),
        (ValueRef::Int(i), Rank::Float) => Value::Float(i as f64),
        _ => value.to_value(),
    }
}

fn case_rank(branches: &[(Pred, Expr)], otherwise: &Expr) -> Option<Rank> {
    branches
        .iter()
        .map(|(_, expr)| rank_of(expr))
        .max()
        .flatten()
        .max(rank_of(otherwise))
}

/// The lowest rank of the numbers of this expression, by the text of the query.
fn rank_of(expr: &Expr) -> Option<Rank> {
    match &expr.kind {
        ExprKind::Literal(Literal::Int(_)) => Some(Rank::Bigint),
        ExprKind::Literal(Literal::Float(_)) => Some(Rank::Float),
        ExprKind::Literal(_) | ExprKind::Column(_) | ExprKind::Timestamp => None,
        ExprKind::Field { .. } => None,
        ExprKind::Cast { to, .. } => match to {
            Type::Bit => Some(Rank::Bit),
            Type::Bigint => Some(Rank::Bigint),
            Type::Float => Some(Rank::Float),
            _ => None,
        },
        ExprKind::Unary {
            op: UnaryOp::BitNot,
            of,
        } => rank_of(of),
        ExprKind::Unary { of, .. } => rank_of(of).max(Some(Rank::Bigint)),
        ExprKind::Binary { op, left, right } => binary_rank(*op, rank_of(left), rank_of(right)),
        ExprKind::Case {
            branches,
            otherwise,
        } => case_rank(branches, otherwise),
        ExprKind::Fold(of) => rank_of(of),
        ExprKind::Coalesce(args) => args.iter().map(rank_of).min().flatten(),
        ExprKind::Call { function, args, .. } => call_rank(*function, args),
        ExprKind::User { .. } | ExprKind::Record(_) => None,
    }
}

/// By the result type that the function table gives: a number of one type, or the type of the first argument.
fn call_rank(function: Function, args: &[Expr]) -> Option<Rank> {
    match function.result() {
        "bigint" => Some(Rank::Bigint),
        "float" => Some(Rank::Float),
        "type of x" => args.first().and_then(rank_of),
        _ => None,
    }
}

/// Arithmetic yields a bigint at least; only `+` may also join texts, and then no number comes out.
fn binary_rank(op: BinaryOp, left: Option<Rank>, right: Option<Rank>) -> Option<Rank> {
    match op {
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor => left.max(right),
        _ => left.max(right).max(Some(Rank::Bigint)),
    }
}
