//! The value of an expression: a column, or one scalar for all rows.
//!
//! Typed kernels read both through [`Operand`], so that `Toll > 10` reads the ten from a register.

use std::sync::Arc;

use arrow_array::{Array, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use highwater_query::Span;

use crate::column::{Column, ColumnBuilder};
use crate::value::{Value, ValueRef};

use super::fault::{EvalError, Faults};
use super::rows::Rows;

#[derive(Clone, Debug)]
pub(super) enum Datum {
    Column(Column),
    Scalar(Value),
}

/// One operand of a typed kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand<'a, T> {
    Many(&'a [T]),
    One(T),
}

/// An operand that is a number in every row.
#[derive(Clone, Copy, Debug)]
pub(super) enum NumericOperand<'a> {
    Ints(Operand<'a, i64>),
    Floats(Operand<'a, f64>),
}

/// The rows of a kernel call, its position in the query, and the sink for failures.
pub(super) struct KernelContext<'a> {
    pub span: Span,
    pub rows: &'a Rows,
    pub faults: &'a mut Faults,
}

impl<'a> KernelContext<'a> {
    pub(super) fn new(span: Span, rows: &'a Rows, faults: &'a mut Faults) -> KernelContext<'a> {
        KernelContext { span, rows, faults }
    }
}

impl KernelContext<'_> {
    pub(super) fn fail(&mut self, row: usize, reason: EvalError) {
        self.faults.add(row, self.span, reason);
    }

    #[cfg(feature = "geo")]
    pub(super) fn warn(&mut self, row: usize, text: &'static str) {
        self.faults.warn(row, self.span, text);
    }

    pub(super) fn fail_all(&mut self, reason: EvalError) {
        for row in self.rows.iter() {
            self.faults.add(row, self.span, reason.clone());
        }
    }

    /// Applies a rule to each row, recording failures.
    pub(super) fn map(&mut self, mut rule: impl FnMut(usize) -> Result<Value, EvalError>) -> Datum {
        let mut builder = ColumnBuilder::with_capacity(self.rows.len());
        for row in 0..self.rows.len() {
            if !self.rows.contains(row) {
                builder.push_null();
                continue;
            }
            match rule(row) {
                Ok(value) => builder.push_owned(value),
                Err(reason) => {
                    builder.push_null();
                    self.fail(row, reason);
                }
            }
        }
        Datum::Column(builder.finish())
    }

    /// Applies a condition to each row, recording failures.
    pub(super) fn select(
        &mut self,
        mut rule: impl FnMut(usize) -> Result<bool, EvalError>,
    ) -> BooleanBuffer {
        BooleanBuffer::collect_bool(self.rows.len(), |row| {
            self.rows.contains(row)
                && rule(row).unwrap_or_else(|reason| {
                    self.faults.add(row, self.span, reason);
                    false
                })
        })
    }
}

impl Datum {
    pub(super) const NULL: Datum = Datum::Scalar(Value::Null);

    pub(super) fn ints(values: Vec<i64>, nulls: Option<NullBuffer>) -> Datum {
        Datum::Column(Column::Int(Int64Array::new(values.into(), nulls)))
    }

    pub(super) fn floats(values: Vec<f64>, nulls: Option<NullBuffer>) -> Datum {
        Datum::Column(Column::Float(Float64Array::new(values.into(), nulls)))
    }

    /// Times in ticks.
    pub(super) fn ticks(values: Vec<i64>, nulls: Option<NullBuffer>) -> Datum {
        Datum::Column(Column::Time(Int64Array::new(values.into(), nulls)))
    }

    pub(super) fn get(&self, row: usize) -> ValueRef<'_> {
        match self {
            Datum::Column(column) => column.get(row),
            Datum::Scalar(value) => value.view(),
        }
    }

    pub(super) fn into_column(self, rows: usize) -> Column {
        match self {
            Datum::Column(column) => column,
            Datum::Scalar(Value::Null) => Column::Null(rows),
            Datum::Scalar(value) => Column::repeat(value.view(), rows),
        }
    }

    /// Whether every row is NULL by the representation alone.
    pub(super) fn all_null(&self) -> bool {
        matches!(
            self,
            Datum::Column(Column::Null(_)) | Datum::Scalar(Value::Null)
        )
    }

    /// The rows that are not NULL; `None` for all.
    pub(super) fn present(&self, rows: usize) -> Option<BooleanBuffer> {
        match self {
            Datum::Scalar(Value::Null) => Some(BooleanBuffer::new_unset(rows)),
            Datum::Scalar(_) => None,
            Datum::Column(Column::Null(_)) => Some(BooleanBuffer::new_unset(rows)),
            Datum::Column(Column::Dynamic(values)) => {
                Some(BooleanBuffer::collect_bool(rows, |row| {
                    !values[row].is_null()
                }))
            }
            Datum::Column(Column::Lazy(lazy)) => lazy.present(),
            Datum::Column(_) => self.nulls().map(|nulls| nulls.inner().clone()),
        }
    }

    /// The NULLs of a typed column.
    pub(super) fn nulls(&self) -> Option<&NullBuffer> {
        let nulls = match self {
            Datum::Column(Column::Bit(a)) => a.nulls(),
            Datum::Column(Column::Int(a) | Column::Time(a)) => a.nulls(),
            Datum::Column(Column::Float(a)) => a.nulls(),
            Datum::Column(Column::Text(a)) => a.nulls(),
            _ => None,
        };
        nulls.filter(|nulls| nulls.null_count() > 0)
    }

    pub(super) fn numbers(&self) -> Option<NumericOperand<'_>> {
        match self {
            Datum::Column(Column::Int(a)) => Some(NumericOperand::Ints(Operand::Many(a.values()))),
            Datum::Column(Column::Float(a)) => {
                Some(NumericOperand::Floats(Operand::Many(a.values())))
            }
            Datum::Scalar(Value::Int(i)) => Some(NumericOperand::Ints(Operand::One(*i))),
            Datum::Scalar(Value::Bit(b)) => Some(NumericOperand::Ints(Operand::One((*b).into()))),
            Datum::Scalar(Value::Float(f)) => Some(NumericOperand::Floats(Operand::One(*f))),
            _ => None,
        }
    }

    pub(super) fn times(&self) -> Option<Operand<'_, i64>> {
        match self {
            Datum::Column(Column::Time(a)) => Some(Operand::Many(a.values())),
            Datum::Scalar(Value::Time(t)) => Some(Operand::One(t.ticks())),
            _ => None,
        }
    }

    /// The text of a row, for operands that are text in every row that is not NULL.
    pub(super) fn texts(&self) -> Option<TextOperand<'_>> {
        match self {
            Datum::Column(Column::Text(a)) => Some(TextOperand::Many(a)),
            Datum::Scalar(Value::Text(t)) => Some(TextOperand::One(t)),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum TextOperand<'a> {
    Many(&'a StringArray),
    One(&'a str),
}

impl<'a> TextOperand<'a> {
    #[inline]
    pub(super) fn at(self, row: usize) -> &'a str {
        match self {
            TextOperand::Many(array) => array.value(row),
            TextOperand::One(text) => text,
        }
    }
}

/// The column with NULL in every row that `good` does not select.
pub(super) fn null_unless(column: Column, good: &BooleanBuffer) -> Column {
    let both = |nulls: Option<&NullBuffer>| {
        let good = NullBuffer::new(good.clone());
        NullBuffer::union(nulls, Some(&good))
    };
    match column {
        Column::Null(rows) => Column::Null(rows),
        Column::Bit(a) => {
            let nulls = both(a.nulls());
            Column::Bit(BooleanArray::new(a.values().clone(), nulls))
        }
        Column::Int(a) => Column::Int(with_nulls(&a, both(a.nulls()))),
        Column::Time(a) => Column::Time(with_nulls(&a, both(a.nulls()))),
        Column::Float(a) => Column::Float(Float64Array::new(a.values().clone(), both(a.nulls()))),
        Column::Text(a) => {
            let nulls = both(a.nulls());
            Column::Text(StringArray::new(
                a.offsets().clone(),
                a.values().clone(),
                nulls,
            ))
        }
        Column::Dynamic(values) => {
            let kept = values
                .iter()
                .enumerate()
                .map(|(row, value)| match good.value(row) {
                    true => value.clone(),
                    false => Value::Null,
                });
            Column::Dynamic(Arc::new(kept.collect()))
        }
        Column::Lazy(lazy) => {
            let mut kept = ColumnBuilder::with_capacity(lazy.len());
            for row in 0..lazy.len() {
                match good.value(row) {
                    true => lazy.push_to(row, &mut kept),
                    false => kept.push_null(),
                }
            }
            kept.finish()
        }
    }
}

fn with_nulls(array: &Int64Array, nulls: Option<NullBuffer>) -> Int64Array {
    Int64Array::new(array.values().clone(), nulls)
}
