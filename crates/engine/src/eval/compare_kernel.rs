//! Comparisons over whole columns of one type; everything else goes through [`compare`](super::compare) value by value.
//!
//! Results are packed 64 to a word, and NULLs are masked by one AND per word. A bigint column beside a float literal
//! (or the reverse) is converted to a comparison within one type first, so that it is exact and as fast.

use std::cmp::Ordering;

use arrow_array::{Array, StringArray};
use arrow_buffer::{BooleanBuffer, Buffer};
use highwater_query::plan::CompareOp;

use crate::column::Column;
use crate::value::{Value, ValueRef};

use super::compare::{accepts, holds};
use super::number::{TWO_POW_63, compare_int_float, float_as_int, int_as_float};
use super::operand::{Datum, KernelContext, NumericOperand, Operand, TextOperand};

const WORD: usize = 64;

/// Whether `left op right` holds in every row; false where NULL is involved.
pub(super) fn compare(
    op: CompareOp,
    left: &Datum,
    right: &Datum,
    context: &mut KernelContext<'_>,
) -> BooleanBuffer {
    let rows = context.rows.len();
    if left.all_null() || right.all_null() {
        return BooleanBuffer::new_unset(rows);
    }
    if let (Datum::Scalar(a), Datum::Scalar(b)) = (left, right) {
        let result = holds(op, a.view(), b.view());
        return all(
            rows,
            result.unwrap_or_else(|reason| {
                context.fail_all(reason);
                false
            }),
        );
    }
    match typed(op, left, right, rows) {
        Some(result) => without_nulls(without_nulls(result, left), right),
        None => context.select(|row| holds(op, left.get(row), right.get(row))),
    }
}

fn without_nulls(result: BooleanBuffer, operand: &Datum) -> BooleanBuffer {
    match operand.nulls() {
        Some(nulls) => &result & nulls.inner(),
        None => result,
    }
}

fn all(rows: usize, value: bool) -> BooleanBuffer {
    if value {
        BooleanBuffer::new_set(rows)
    } else {
        BooleanBuffer::new_unset(rows)
    }
}

/// The result in every row that is not NULL, if one loop can compute it.
fn typed(op: CompareOp, left: &Datum, right: &Datum, rows: usize) -> Option<BooleanBuffer> {
    if let (Some(a), Some(b)) = (left.numbers(), right.numbers()) {
        return numbers(op, a, b, rows);
    }
    if let (Some(a), Some(b)) = (left.times(), right.times()) {
        return sides(op, a, b);
    }
    if let (Some(a), Some(b)) = (left.texts(), right.texts()) {
        return Some(texts(op, a, b, rows));
    }
    match (left, right) {
        (Datum::Column(Column::Bit(a)), Datum::Scalar(value)) => bits(op, a.values(), value),
        (Datum::Scalar(value), Datum::Column(Column::Bit(a))) => {
            bits(mirrored(op), a.values(), value)
        }
        _ => None,
    }
}

/// The operator that holds for `b, a` when `op` holds for `a, b`.
fn mirrored(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Eq => CompareOp::Eq,
        CompareOp::Ne => CompareOp::Ne,
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
    }
}

fn numbers(
    op: CompareOp,
    left: NumericOperand<'_>,
    right: NumericOperand<'_>,
    rows: usize,
) -> Option<BooleanBuffer> {
    match (left, right) {
        (NumericOperand::Ints(a), NumericOperand::Ints(b)) => sides(op, a, b),
        (NumericOperand::Floats(a), NumericOperand::Floats(b)) => sides(op, a, b),
        (NumericOperand::Ints(a), NumericOperand::Floats(b)) => ints_floats(op, a, b, rows),
        (NumericOperand::Floats(a), NumericOperand::Ints(b)) => {
            ints_floats(mirrored(op), b, a, rows)
        }
    }
}

fn ints_floats(
    op: CompareOp,
    ints: Operand<'_, i64>,
    floats: Operand<'_, f64>,
    rows: usize,
) -> Option<BooleanBuffer> {
    let exact = |a: i64, b: f64| accepts(op, compare_int_float(a, b));
    match (ints, floats) {
        (Operand::Many(a), Operand::Many(b)) => Some(pack_pairs(a, b, exact)),
        (Operand::Many(a), Operand::One(float)) => match int_bound(op, float) {
            Bound::At(op, bound) => sides(op, Operand::Many(a), Operand::One(bound)),
            Bound::Always(answer) => Some(all(rows, answer)),
        },
        (Operand::One(int), Operand::Many(b)) => match int_as_float(int) {
            Some(float) => sides(op, Operand::One(float), Operand::Many(b)),
            None => Some(pack(b, |b| exact(int, b))),
        },
        (Operand::One(_), Operand::One(_)) => None,
    }
}

/// The bigint comparison that is equivalent to one with a float.
enum Bound {
    At(CompareOp, i64),
    Always(bool),
}

fn int_bound(op: CompareOp, float: f64) -> Bound {
    if let Some(int) = float_as_int(float) {
        return Bound::At(op, int);
    }
    let beyond = match () {
        () if float >= TWO_POW_63 => Ordering::Less,
        () if float < -TWO_POW_63 => Ordering::Greater,
        () => Ordering::Equal,
    };
    match (op, beyond) {
        (CompareOp::Eq, _) => Bound::Always(false),
        (CompareOp::Ne, _) => Bound::Always(true),
        (CompareOp::Lt | CompareOp::Le, Ordering::Equal) => {
            Bound::At(CompareOp::Le, float.floor() as i64)
        }
        (CompareOp::Gt | CompareOp::Ge, Ordering::Equal) => {
            Bound::At(CompareOp::Gt, float.floor() as i64)
        }
        (CompareOp::Lt | CompareOp::Le, ordering) => Bound::Always(ordering.is_lt()),
        (CompareOp::Gt | CompareOp::Ge, ordering) => Bound::Always(ordering.is_gt()),
    }
}

/// Two operands of one type, at least one of them a column.
fn sides<T: Copy + PartialOrd>(
    op: CompareOp,
    left: Operand<'_, T>,
    right: Operand<'_, T>,
) -> Option<BooleanBuffer> {
    match (left, right) {
        (Operand::Many(a), Operand::Many(b)) => Some(match op {
            CompareOp::Eq => pack_pairs(a, b, |a, b| a == b),
            CompareOp::Ne => pack_pairs(a, b, |a, b| a != b),
            CompareOp::Lt => pack_pairs(a, b, |a, b| a < b),
            CompareOp::Le => pack_pairs(a, b, |a, b| a <= b),
            CompareOp::Gt => pack_pairs(a, b, |a, b| a > b),
            CompareOp::Ge => pack_pairs(a, b, |a, b| a >= b),
        }),
        (Operand::Many(a), Operand::One(b)) => Some(match op {
            CompareOp::Eq => pack(a, |a| a == b),
            CompareOp::Ne => pack(a, |a| a != b),
            CompareOp::Lt => pack(a, |a| a < b),
            CompareOp::Le => pack(a, |a| a <= b),
            CompareOp::Gt => pack(a, |a| a > b),
            CompareOp::Ge => pack(a, |a| a >= b),
        }),
        (Operand::One(_), Operand::Many(_)) => sides(mirrored(op), right, left),
        (Operand::One(_), Operand::One(_)) => None,
    }
}

fn texts(op: CompareOp, a: TextOperand<'_>, b: TextOperand<'_>, rows: usize) -> BooleanBuffer {
    match (op, a, b) {
        (CompareOp::Eq, TextOperand::Many(texts), TextOperand::One(text)) => {
            return equal_text(texts, text);
        }
        (CompareOp::Eq, TextOperand::One(text), TextOperand::Many(texts)) => {
            return equal_text(texts, text);
        }
        _ => {}
    }
    let collect = |rule: fn(&str, &str) -> bool| {
        BooleanBuffer::collect_bool(rows, |row| rule(a.at(row), b.at(row)))
    };
    match op {
        CompareOp::Eq => BooleanBuffer::collect_bool(rows, |row| a.at(row) == b.at(row)),
        CompareOp::Ne => BooleanBuffer::collect_bool(rows, |row| a.at(row) != b.at(row)),
        CompareOp::Lt => collect(|a, b| a < b),
        CompareOp::Le => collect(|a, b| a <= b),
        CompareOp::Gt => collect(|a, b| a > b),
        CompareOp::Ge => collect(|a, b| a >= b),
    }
}

fn equal_text(texts: &StringArray, text: &str) -> BooleanBuffer {
    let (offsets, bytes, text) = (texts.value_offsets(), texts.value_data(), text.as_bytes());
    let mut answers = offsets.iter().zip(&offsets[1..]).map(|(&start, &end)| {
        (end - start) as usize == text.len() && &bytes[start as usize..end as usize] == text
    });
    let words = (0..texts.len().div_ceil(WORD)).map(|_| word(answers.by_ref().take(WORD)));
    BooleanBuffer::new(
        Buffer::from_vec(words.collect::<Vec<u64>>()),
        0,
        texts.len(),
    )
}

/// A bit has only two values, so each is compared once. `None` if either fails.
fn bits(op: CompareOp, column: &BooleanBuffer, value: &Value) -> Option<BooleanBuffer> {
    let if_set = holds(op, ValueRef::Bit(true), value.view()).ok()?;
    let if_clear = holds(op, ValueRef::Bit(false), value.view()).ok()?;
    Some(match (if_set, if_clear) {
        (true, false) => column.clone(),
        (false, true) => !column,
        (answer, _) => all(column.len(), answer),
    })
}

#[inline]
fn pack<T: Copy>(values: &[T], rule: impl Fn(T) -> bool) -> BooleanBuffer {
    let words = values
        .chunks(WORD)
        .map(|chunk| word(chunk.iter().map(|&value| rule(value))));
    BooleanBuffer::new(
        Buffer::from_vec(words.collect::<Vec<u64>>()),
        0,
        values.len(),
    )
}

#[inline]
fn pack_pairs<A: Copy, B: Copy>(a: &[A], b: &[B], rule: impl Fn(A, B) -> bool) -> BooleanBuffer {
    let words = a
        .chunks(WORD)
        .zip(b.chunks(WORD))
        .map(|(a, b)| word(a.iter().zip(b).map(|(&a, &b)| rule(a, b))));
    BooleanBuffer::new(Buffer::from_vec(words.collect::<Vec<u64>>()), 0, a.len())
}

#[inline]
fn word(answers: impl Iterator<Item = bool>) -> u64 {
    answers
        .enumerate()
        .fold(0, |word, (at, answer)| word | u64::from(answer) << at)
}
