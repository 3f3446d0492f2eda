//! Arithmetic over whole columns of bigints or floats; everything else goes through [`arithmetic`] value by value.
//!
//! A kernel computes every row, NULL or not, and one flag for all failures. Only if the flag is set are the rows
//! checked again, to find the failures that count.

use arrow_buffer::NullBuffer;
use highwater_query::plan::{BinaryOp, UnaryOp};

use crate::column::{Column, ColumnBuilder};
use crate::value::Value;
use crate::work_limit::text_limit;

use super::arithmetic::{self, float_result, int_result, is_bitwise};
use super::fault::EvalError;
use super::operand::{Datum, KernelContext, NumericOperand, Operand};

/// The value of `left op right` in every row.
pub(super) fn binary(
    op: BinaryOp,
    left: &Datum,
    right: &Datum,
    context: &mut KernelContext<'_>,
) -> Datum {
    if left.all_null() || right.all_null() {
        return Datum::NULL;
    }
    if let (Datum::Scalar(a), Datum::Scalar(b)) = (left, right) {
        return once(arithmetic::apply(op, a.view(), b.view()), context);
    }
    match (left.numbers(), right.numbers()) {
        (Some(NumericOperand::Ints(a)), Some(NumericOperand::Ints(b))) => {
            return Ints { op, left, right }.run(a, b, context);
        }
        (Some(a), Some(b)) if !is_bitwise(op) => return floats(op, left, right, (a, b), context),
        _ => {}
    }
    if op == BinaryOp::Add && left.texts().is_some() && right.texts().is_some() {
        return concat(left, right, context);
    }
    context.map(|row| arithmetic::apply(op, left.get(row), right.get(row)))
}

/// The value of `op of` in every row.
pub(super) fn unary(op: UnaryOp, of: &Datum, context: &mut KernelContext<'_>) -> Datum {
    match (op, of) {
        (_, Datum::Scalar(value)) => {
            return once(arithmetic::apply_unary(op, value.view()), context);
        }
        (UnaryOp::Plus, Datum::Column(Column::Int(_) | Column::Float(_))) => return of.clone(),
        (UnaryOp::Minus, Datum::Column(Column::Float(a))) => {
            let values: Vec<f64> = a.values().iter().map(|v| -v).collect();
            let nulls = of.nulls().cloned();
            return Datum::floats(values, nulls);
        }
        (UnaryOp::Minus, Datum::Column(Column::Int(a))) if !a.values().contains(&i64::MIN) => {
            return Datum::ints(a.values().iter().map(|v| -v).collect(), of.nulls().cloned());
        }
        (UnaryOp::BitNot, Datum::Column(Column::Int(a))) => {
            return Datum::ints(a.values().iter().map(|v| !v).collect(), of.nulls().cloned());
        }
        _ => {}
    }
    context.map(|row| arithmetic::apply_unary(op, of.get(row)))
}

/// A scalar result for all rows.
fn once(result: Result<Value, EvalError>, context: &mut KernelContext<'_>) -> Datum {
    result.map(Datum::Scalar).unwrap_or_else(|reason| {
        context.fail_all(reason);
        Datum::NULL
    })
}

/// The original operands, for NULLs and error messages.
struct Ints<'a> {
    op: BinaryOp,
    left: &'a Datum,
    right: &'a Datum,
}

impl Ints<'_> {
    fn run(
        &self,
        a: Operand<'_, i64>,
        b: Operand<'_, i64>,
        context: &mut KernelContext<'_>,
    ) -> Datum {
        let op = self.op;
        // A scalar bit beside bigints acts as a bigint, and two scalars never get here: no case is left to bit.
        let (values, failed) = match op {
            BinaryOp::Add => zip(a, b, i64::overflowing_add),
            BinaryOp::Subtract => zip(a, b, i64::overflowing_sub),
            BinaryOp::Multiply => zip(a, b, i64::overflowing_mul),
            BinaryOp::BitAnd => zip(a, b, |x, y| (x & y, false)),
            BinaryOp::BitOr => zip(a, b, |x, y| (x | y, false)),
            BinaryOp::BitXor => zip(a, b, |x, y| (x ^ y, false)),
            BinaryOp::Divide | BinaryOp::Modulo => zip(a, b, |x, y| {
                let result = int_result(op, x, y);
                (result.unwrap_or_default(), result.is_none())
            }),
        };
        let nulls = NullBuffer::union(self.left.nulls(), self.right.nulls());
        if failed {
            let fails = |row| int_result(op, at(a, row), at(b, row)).is_none();
            report(op, self.left, self.right, nulls.as_ref(), fails, context);
        }
        Datum::ints(values, nulls)
    }
}

fn floats(
    op: BinaryOp,
    left: &Datum,
    right: &Datum,
    sides: (NumericOperand<'_>, NumericOperand<'_>),
    context: &mut KernelContext<'_>,
) -> Datum {
    let (values, failed) = match sides {
        (NumericOperand::Floats(a), NumericOperand::Floats(b)) => float_values(op, a, b),
        (NumericOperand::Floats(a), NumericOperand::Ints(b)) => float_values(op, a, b),
        (NumericOperand::Ints(a), NumericOperand::Floats(b)) => float_values(op, a, b),
        (NumericOperand::Ints(a), NumericOperand::Ints(b)) => float_values(op, a, b),
    };
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    if failed {
        report(
            op,
            left,
            right,
            nulls.as_ref(),
            |row| !values[row].is_finite(),
            context,
        );
    }
    Datum::floats(values, nulls)
}

trait AsFloat: Copy {
    fn as_float(self) -> f64;
}

impl AsFloat for i64 {
    #[inline]
    fn as_float(self) -> f64 {
        self as f64
    }
}

impl AsFloat for f64 {
    #[inline]
    fn as_float(self) -> f64 {
        self
    }
}

fn float_values<A: AsFloat, B: AsFloat>(
    op: BinaryOp,
    a: Operand<'_, A>,
    b: Operand<'_, B>,
) -> (Vec<f64>, bool) {
    // One loop per operator, because a match inside would run for every row.
    macro_rules! run {
        ($op:expr) => {
            zip(a, b, |x, y| {
                let result = float_result($op, x.as_float(), y.as_float());
                (result, !result.is_finite())
            })
        };
    }
    match op {
        BinaryOp::Add => run!(BinaryOp::Add),
        BinaryOp::Subtract => run!(BinaryOp::Subtract),
        BinaryOp::Multiply => run!(BinaryOp::Multiply),
        BinaryOp::Divide => run!(BinaryOp::Divide),
        _ => run!(op),
    }
}

/// All results, and whether any of them failed. Filling an existing vector lets the compiler vectorise.
#[inline]
fn zip<A: Copy, B: Copy, R: Copy + Default>(
    a: Operand<'_, A>,
    b: Operand<'_, B>,
    rule: impl Fn(A, B) -> (R, bool),
) -> (Vec<R>, bool) {
    let mut failed = false;
    let mut note = |result: &mut R, (value, fails): (R, bool)| {
        *result = value;
        failed |= fails;
    };
    let rows = match (a, b) {
        (Operand::Many(values), _) => values.len(),
        (_, Operand::Many(values)) => values.len(),
        (Operand::One(_), Operand::One(_)) => 1,
    };
    let mut results = vec![R::default(); rows];
    let out = results.iter_mut();
    match (a, b) {
        (Operand::Many(a), Operand::Many(b)) => out
            .zip(a.iter().zip(b))
            .for_each(|(r, (&x, &y))| note(r, rule(x, y))),
        (Operand::Many(a), Operand::One(y)) => out.zip(a).for_each(|(r, &x)| note(r, rule(x, y))),
        (Operand::One(x), Operand::Many(b)) => out.zip(b).for_each(|(r, &y)| note(r, rule(x, y))),
        (Operand::One(x), Operand::One(y)) => out.for_each(|r| note(r, rule(x, y))),
    }
    (results, failed)
}

#[inline]
fn at<T: Copy>(side: Operand<'_, T>, row: usize) -> T {
    match side {
        Operand::Many(values) => values[row],
        Operand::One(value) => value,
    }
}

/// Records the failed rows that are selected and not NULL.
#[cold]
fn report(
    op: BinaryOp,
    left: &Datum,
    right: &Datum,
    nulls: Option<&NullBuffer>,
    fails: impl Fn(usize) -> bool,
    context: &mut KernelContext<'_>,
) {
    for row in context.rows.iter() {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) || !fails(row) {
            continue;
        }
        if let Err(reason) = arithmetic::apply(op, left.get(row), right.get(row)) {
            context.fail(row, reason);
        }
    }
}

fn concat(left: &Datum, right: &Datum, context: &mut KernelContext<'_>) -> Datum {
    let (Some(a), Some(b)) = (left.texts(), right.texts()) else {
        return Datum::NULL;
    };
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    let mut builder = ColumnBuilder::with_capacity(context.rows.len());
    let mut both = String::new();
    for row in 0..context.rows.len() {
        if !context.rows.contains(row) || nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            builder.push_null();
            continue;
        }
        both.clear();
        both.push_str(a.at(row));
        both.push_str(b.at(row));
        if let Some(bytes_max) = text_limit().filter(|most| both.len() > *most) {
            let function = "+";
            context.fail(
                row,
                EvalError::TooLong {
                    function,
                    bytes_max,
                },
            );
            builder.push_null();
            continue;
        }
        builder.push_text(&both);
    }
    Datum::Column(builder.finish())
}
