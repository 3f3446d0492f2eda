//! Expressions, a chunk at a time.
//!
//! Values have types and columns do not, so the kernel is chosen per chunk: a column of one type is processed over its
//! Arrow buffer, any other value by value. **The result depends neither on the kernel nor on chunk boundaries**: every
//! typed kernel is a faster implementation of a rule on two values (`compare::holds`, `arithmetic::apply`, `cast::apply`),
//! and property tests compare them.
//!
//! A failing row is recorded in [`Faults`] and the others continue. Literals stay scalars and are never expanded into
//! columns before the end.

mod arithmetic;
mod arithmetic_kernel;
mod case;
mod cast;
mod compare;
mod compare_kernel;
mod expr;
mod fault;
mod fold;
mod functions;
mod key;
mod like;
mod number;
mod operand;
mod predicate;
mod rows;
mod text;

#[cfg(test)]
mod tests;

use arrow_buffer::BooleanBuffer;
use highwater_query::plan::{Expr, Pred};

use crate::chunk::Chunk;
use crate::column::Column;

pub use arithmetic::to_number;
pub use compare::{compare, equal, same};
pub use fault::{EvalError, Fault, Faults, Warning};
pub(crate) use fold::folded;
pub(crate) use key::{decode_key, looks_usual};
pub use key::{encode_key, key_texts};
pub use text::{write_json, write_text};

use rows::Rows;

/// The value of an expression in every row; NULL in rows that failed, now or before.
///
/// Rows that `faults` already holds are not evaluated again.
pub fn evaluate(expr: &Expr, chunk: &Chunk, faults: &mut Faults) -> Column {
    let rows = rows_to_do(chunk, faults);
    let column = expr::value_of(expr, chunk, &rows, faults).into_column(chunk.rows());
    if faults.is_empty() {
        column
    } else {
        operand::null_unless(column, &faults.good())
    }
}

/// Like [`evaluate`], for several expressions.
pub(crate) fn evaluate_all<'e>(
    exprs: impl IntoIterator<Item = &'e Expr>,
    chunk: &Chunk,
    faults: &mut Faults,
) -> Vec<Column> {
    let exprs = exprs.into_iter();
    exprs.map(|expr| evaluate(expr, chunk, faults)).collect()
}

/// Whether a condition holds in every row; false in rows that failed, now or before.
///
/// Rows that `faults` already holds are not evaluated again.
pub fn test(pred: &Pred, chunk: &Chunk, faults: &mut Faults) -> BooleanBuffer {
    let rows = rows_to_do(chunk, faults);
    let holds = predicate::holds(pred, chunk, &rows, faults);
    if faults.is_empty() {
        holds
    } else {
        &holds & &faults.good()
    }
}

fn rows_to_do(chunk: &Chunk, faults: &Faults) -> Rows {
    if faults.is_empty() {
        Rows::all(chunk.rows())
    } else {
        Rows::of(faults.good())
    }
}
