//! Expressions, a chunk at a time.
//!
//! Values have types and columns do not, so the kernel is chosen per chunk: a column of one type is processed over its
//! Arrow buffer, any other value by value. **The result depends neither on the kernel nor on chunk boundaries**: every
//! typed kernel is a faster implementation of a rule on two values (`compare::holds`, `arithmetic::apply`,
//! `cast::apply`), and property tests compare them.
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
mod join_key;
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
use crate::work_limit::limit_text;

pub use arithmetic::to_number;
pub use compare::{compare, equal, rank, read_text, same};
pub use fault::{EvalError, Fault, Faults, Warning};
pub(crate) use fold::folded;
pub(crate) use join_key::{append_class, encode_join_key, keys_equal, same_class};
pub(crate) use key::{decode_key, key_value, looks_usual};
pub use key::{encode_key, key_texts};
pub(crate) use number::float_as_int;
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

/// Follows the paths of fields that these expressions are, in one pass over each column of records that are still text.
pub(crate) fn prepare<'e>(exprs: impl Iterator<Item = &'e Expr>, chunk: &Chunk) {
    let is_lazy = |column: &Column| matches!(column, Column::Lazy(_));
    if !chunk.columns.iter().any(is_lazy) {
        return;
    }
    let mut paths: Vec<(usize, Vec<&str>)> = exprs.filter_map(expr::path_in_column).collect();
    paths.sort_unstable();
    paths.dedup();
    for paths in paths.chunk_by(|a, b| a.0 == b.0) {
        if let Column::Lazy(lazy) = &chunk.columns[paths[0].0] {
            let paths: Vec<&[&str]> = paths.iter().map(|(_, path)| &path[..]).collect();
            lazy.prepare(&paths);
        }
    }
}

/// Like [`evaluate`], for several expressions.
pub(crate) fn evaluate_all<'e>(
    exprs: impl IntoIterator<Item = &'e Expr, IntoIter: Clone>,
    chunk: &Chunk,
    faults: &mut Faults,
) -> Vec<Column> {
    let exprs = exprs.into_iter();
    prepare(exprs.clone(), chunk);
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

/// As [`test()`], for an untrusted condition and untrusted rows: functions make short texts only. The caller gives few
/// rows at a time.
pub fn test_limited(pred: &Pred, chunk: &Chunk, faults: &mut Faults) -> BooleanBuffer {
    let _limited = limit_text();
    test(pred, chunk, faults)
}

fn rows_to_do(chunk: &Chunk, faults: &Faults) -> Rows {
    if faults.is_empty() {
        Rows::all(chunk.rows())
    } else {
        Rows::of(faults.good())
    }
}
