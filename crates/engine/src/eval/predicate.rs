//! Evaluates a condition. Two-valued: a comparison with NULL is false, and NOT makes it true.
//!
//! The right side of AND and OR is evaluated only where the left side does not decide, so a guard such as
//! `d <> 0 AND n / d > 2` protects its right side. Results of rows outside of `rows` are undefined; the caller masks
//! them.

use arrow_array::Array;
use arrow_buffer::BooleanBuffer;
use highwater_query::plan::{CompareOp, Expr, Pred, PredKind};

use crate::chunk::Chunk;
use crate::column::Column;
use crate::value::ValueRef;

use super::compare::same;
use super::compare_kernel::compare;
use super::expr::value_of;
use super::fault::{EvalError, Faults};
use super::like::Pattern;
use super::operand::{Datum, KernelContext};
use super::rows::Rows;
use super::text::write_text;

/// Whether a condition holds for `rows` of a chunk; undefined in other rows.
pub(super) fn holds(pred: &Pred, chunk: &Chunk, rows: &Rows, faults: &mut Faults) -> BooleanBuffer {
    match &pred.kind {
        PredKind::And(left, right) => {
            let left = holds(left, chunk, rows, faults);
            let open = rows.and(&left);
            if open.none() {
                return BooleanBuffer::new_unset(rows.len());
            }
            &left & &holds(right, chunk, &open, faults)
        }
        PredKind::Or(left, right) => {
            let left = holds(left, chunk, rows, faults);
            let open = rows.and_not(&left);
            if open.none() {
                return left;
            }
            &left | &holds(right, chunk, &open, faults)
        }
        PredKind::Not(of) => !&holds(of, chunk, rows, faults),
        PredKind::Compare { op, left, right } => {
            let left = value_of(left, chunk, rows, faults);
            let right = value_of(right, chunk, rows, faults);
            let context = &mut KernelContext::new(pred.span, rows, faults);
            compare(*op, &left, &right, context)
        }
        PredKind::Like {
            of,
            pattern,
            negated,
        } => {
            let of = value_of(of, chunk, rows, faults);
            let pattern = value_of(pattern, chunk, rows, faults);
            let context = &mut KernelContext::new(pred.span, rows, faults);
            like(&of, &pattern, *negated, context)
        }
        PredKind::In { of, list, negated } => {
            let found = in_list(of, list, chunk, rows, faults);
            if *negated {
                found.missing
            } else {
                found.matched
            }
        }
        PredKind::Between {
            of,
            low,
            high,
            negated,
        } => {
            let operands = [of, low, high].map(|expr| value_of(expr, chunk, rows, faults));
            let context = &mut KernelContext::new(pred.span, rows, faults);
            between(&operands, *negated, context)
        }
        PredKind::IsNull { of, negated } => {
            let present = value_of(of, chunk, rows, faults).present(rows.len());
            let present = present.unwrap_or_else(|| BooleanBuffer::new_set(rows.len()));
            if *negated { present } else { !&present }
        }
    }
}

/// Both bounds included. A NULL among the three makes it false, negated or not.
fn between(operands: &[Datum; 3], negated: bool, context: &mut KernelContext<'_>) -> BooleanBuffer {
    let [of, low, high] = operands;
    let rows = operands
        .iter()
        .filter_map(|operand| operand.present(context.rows.len()))
        .fold(context.rows.clone(), |rows, present| rows.and(&present));
    let context = &mut KernelContext::new(context.span, &rows, context.faults);
    let from_low = compare(CompareOp::Ge, of, low, context);
    let within = &from_low & &compare(CompareOp::Le, of, high, context);
    rows.clip(&if negated { !&within } else { within })
}

/// The result of IN: matched, missing, or neither if nothing matched and a NULL is involved.
struct ListMatch {
    matched: BooleanBuffer,
    missing: BooleanBuffer,
}

/// Tries entries in order, each only in rows without a match. They compare like `=`, but values that cannot be compared
/// are no match instead of a failure.
fn in_list(of: &Expr, list: &[Expr], chunk: &Chunk, rows: &Rows, faults: &mut Faults) -> ListMatch {
    let len = rows.len();
    let of = value_of(of, chunk, rows, faults);
    let mut open = match of.present(len) {
        Some(present) => rows.and(&present),
        None => rows.clone(),
    };
    let mut matched = BooleanBuffer::new_unset(len);
    let mut missing = open.clip(&BooleanBuffer::new_set(len));
    for entry in list {
        if open.none() {
            break;
        }
        let entry = value_of(entry, chunk, &open, faults);
        let hits = open.clip(&matches(&of, &entry, &open));
        if let Some(present) = entry.present(len) {
            missing = &missing & &present;
        }
        missing = &missing & &!&hits;
        matched = &matched | &hits;
        open = open.and_not(&hits);
    }
    ListMatch { matched, missing }
}

/// Equal without conversion: a text is never in a list of numbers.
fn matches(of: &Datum, entry: &Datum, rows: &Rows) -> BooleanBuffer {
    // Failures of the typed kernel mean "not equal" and are dropped.
    let mut ignored = Faults::new(rows.len());
    let both_typed = match (of, entry) {
        (of, entry) if of.numbers().is_some() && entry.numbers().is_some() => true,
        (of, entry) if of.texts().is_some() && entry.texts().is_some() => true,
        (of, entry) => of.times().is_some() && entry.times().is_some(),
    };
    let mut context = KernelContext::new(Default::default(), rows, &mut ignored);
    if both_typed {
        return compare(CompareOp::Eq, of, entry, &mut context);
    }
    context.select(|row| {
        let (value, entry) = (of.get(row), entry.get(row));
        Ok(!value.is_null() && !entry.is_null() && same(value, entry))
    })
}

/// A pattern that is the same in all rows is compiled once. False where NULL is involved, negated or not.
fn like(
    of: &Datum,
    pattern: &Datum,
    negated: bool,
    context: &mut KernelContext<'_>,
) -> BooleanBuffer {
    if of.all_null() || pattern.all_null() {
        return BooleanBuffer::new_unset(context.rows.len());
    }
    if let Datum::Scalar(pattern) = pattern {
        return like_fixed(of, pattern.view(), negated, context);
    }
    let mut compiled: Option<(String, Pattern)> = None;
    let (mut wanted, mut subject) = (String::new(), String::new());
    context.select(|row| {
        let (value, pattern) = (of.get(row), pattern.get(row));
        if value.is_null() || pattern.is_null() {
            return Ok(false);
        }
        let value = text_of(value, &mut subject)?;
        let pattern = text_of(pattern, &mut wanted)?;
        let (_, compiled) = match compiled.take() {
            Some(known) if known.0 == pattern => compiled.insert(known),
            _ => compiled.insert((pattern.to_owned(), Pattern::new(pattern))),
        };
        Ok(compiled.matches(value) != negated)
    })
}

fn like_fixed(
    of: &Datum,
    pattern: ValueRef<'_>,
    negated: bool,
    context: &mut KernelContext<'_>,
) -> BooleanBuffer {
    let mut buffer = String::new();
    let pattern = match text_of(pattern, &mut buffer) {
        Ok(pattern) => Pattern::new(pattern),
        Err(reason) => {
            return context.select(|row| match of.get(row) {
                ValueRef::Null => Ok(false),
                _ => Err(reason.clone()),
            });
        }
    };
    if let Datum::Column(Column::Text(texts)) = of {
        return BooleanBuffer::collect_bool(context.rows.len(), |row| {
            context.rows.contains(row)
                && texts.is_valid(row)
                && pattern.matches(texts.value(row)) != negated
        });
    }
    let mut buffer = String::new();
    context.select(|row| match of.get(row) {
        ValueRef::Null => Ok(false),
        value => Ok(pattern.matches(text_of(value, &mut buffer)?) != negated),
    })
}

/// A value as LIKE sees it: anything but a record or array has a text.
fn text_of<'a>(value: ValueRef<'a>, buffer: &'a mut String) -> Result<&'a str, EvalError> {
    match value {
        ValueRef::Text(text) => Ok(text),
        ValueRef::Record(_) | ValueRef::Array(_) => Err(EvalError::Operand {
            op: "LIKE",
            of: value.type_name(),
        }),
        _ => {
            buffer.clear();
            write_text(value, buffer);
            Ok(buffer)
        }
    }
}
