//! Evaluates an expression by calling the kernel of each operation.

use highwater_query::Span;
use highwater_query::plan::{Expr, ExprKind, Literal, Name};

use crate::chunk::Chunk;
use crate::column::{Column, ColumnBuilder};
use crate::script::{self, Calls};
use crate::value::{Value, ValueRef};

use super::fault::Faults;
use super::operand::{Datum, KernelContext};
use super::rows::Rows;
use super::{arithmetic_kernel, case, cast, fold, functions};

/// The value of an expression for `rows` of a chunk; undefined in other rows.
pub(super) fn value_of(expr: &Expr, chunk: &Chunk, rows: &Rows, faults: &mut Faults) -> Datum {
    match &expr.kind {
        ExprKind::Column(column) => Datum::Column(chunk.columns[*column].clone()),
        ExprKind::Literal(literal) => Datum::Scalar(literal_value(literal)),
        ExprKind::Timestamp => Datum::Column(Column::from_times(chunk.times.clone())),
        ExprKind::Field { .. } => field(expr, chunk, rows, faults),
        ExprKind::Unary { op, of } => {
            let of = value_of(of, chunk, rows, faults);
            arithmetic_kernel::unary(*op, &of, &mut KernelContext::new(expr.span, rows, faults))
        }
        ExprKind::Binary { op, left, right } => {
            let left = value_of(left, chunk, rows, faults);
            let right = value_of(right, chunk, rows, faults);
            let context = &mut KernelContext::new(expr.span, rows, faults);
            arithmetic_kernel::binary(*op, &left, &right, context)
        }
        ExprKind::Case {
            branches,
            otherwise,
        } => case::case(branches, otherwise, chunk, rows, faults),
        ExprKind::Cast { of, to, lenient } => {
            let of = value_of(of, chunk, rows, faults);
            cast::cast(
                &of,
                *to,
                *lenient,
                &mut KernelContext::new(expr.span, rows, faults),
            )
        }
        ExprKind::Coalesce(args) => case::coalesce(args, chunk, rows, faults),
        ExprKind::Call {
            function,
            part,
            args,
        } => {
            let args: Vec<Datum> = args
                .iter()
                .map(|arg| value_of(arg, chunk, rows, faults))
                .collect();
            let context = &mut KernelContext::new(expr.span, rows, faults);
            functions::call(*function, *part, &args, context)
        }
        ExprKind::Fold(of) => fold::fold_datum(value_of(of, chunk, rows, faults)),
        ExprKind::Record(items) => {
            let names: Vec<&Name> = items.iter().map(|item| &item.name).collect();
            let values: Vec<Datum> = items
                .iter()
                .map(|item| value_of(&item.expr, chunk, rows, faults))
                .collect();
            let context = &mut KernelContext::new(expr.span, rows, faults);
            functions::record(&names, &values, context)
        }
        ExprKind::User { name, args } => user(name, args, expr.span, chunk, rows, faults),
    }
}

/// A JavaScript function, called for each row whose arguments have values.
fn user(
    name: &str,
    args: &[Expr],
    span: Span,
    chunk: &Chunk,
    rows: &Rows,
    faults: &mut Faults,
) -> Datum {
    let args: Vec<Datum> = args
        .iter()
        .map(|arg| value_of(arg, chunk, rows, faults))
        .collect();
    let good = (!faults.is_empty()).then(|| rows.and(&faults.good()));
    let context = &mut KernelContext::new(span, good.as_ref().unwrap_or(rows), faults);
    let called: Vec<usize> = context.rows.iter().collect();
    let mut results = ColumnBuilder::with_capacity(rows.len());
    script::call(Calls {
        name,
        rows: &called,
        arguments: &|row, given| given.extend(args.iter().map(|arg| arg.get(row))),
        time: &|row| chunk.time(row),
        done: &mut |row, outcome| {
            (results.len()..row).for_each(|_| results.push_null());
            match outcome {
                Ok(value) => results.push_owned(value),
                Err(reason) => {
                    results.push_null();
                    context.fail(row, reason);
                }
            }
        },
    });
    (results.len()..rows.len()).for_each(|_| results.push_null());
    Datum::Column(results.finish())
}

fn literal_value(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Int(i) => Value::Int(*i),
        Literal::Float(f) => Value::Float(*f),
        Literal::Text(t) => Value::text(t),
    }
}

/// An expression and the path of fields that leads from it to this one.
fn path_of(expr: &Expr) -> (&Expr, Vec<&str>) {
    let mut path = Vec::new();
    let mut base = expr;
    while let ExprKind::Field { of, name } = &base.kind {
        path.push(name.as_str());
        base = of;
    }
    path.reverse();
    (base, path)
}

/// The column and the path in it, if the expression is one.
pub(super) fn path_in_column(expr: &Expr) -> Option<(usize, Vec<&str>)> {
    match path_of(expr) {
        (base, path) if !path.is_empty() => match base.kind {
            ExprKind::Column(column) => Some((column, path)),
            _ => None,
        },
        _ => None,
    }
}

/// Follows a path of fields in each row, without intermediate columns.
fn field(expr: &Expr, chunk: &Chunk, rows: &Rows, faults: &mut Faults) -> Datum {
    let (base, path) = path_of(expr);
    match value_of(base, chunk, rows, faults) {
        Datum::Scalar(value) => Datum::Scalar(follow(value.view(), &path).to_value()),
        Datum::Column(Column::Lazy(lazy)) => Datum::Column(match lazy.follow(&path) {
            Some(found) => found,
            None => follow_all(&Column::Lazy(lazy), &path, rows),
        }),
        Datum::Column(column @ Column::Dynamic(_)) => {
            Datum::Column(follow_all(&column, &path, rows))
        }
        Datum::Column(_) => Datum::NULL,
    }
}

fn follow_all(column: &Column, path: &[&str], rows: &Rows) -> Column {
    let mut builder = ColumnBuilder::with_capacity(rows.len());
    for row in 0..rows.len() {
        match rows.contains(row) {
            true => builder.push(follow(column.get(row), path)),
            false => builder.push_null(),
        }
    }
    builder.finish()
}

fn follow<'a>(value: ValueRef<'a>, path: &[&str]) -> ValueRef<'a> {
    path.iter().fold(value, |value, name| match value {
        ValueRef::Record(record) => record.get(name).map_or(ValueRef::Null, Value::view),
        _ => ValueRef::Null,
    })
}
