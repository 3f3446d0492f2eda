//! What an expression evaluates to on the way: a column, or one value that stands for all rows.
//!
//! Kernels look at both through [`Side`], so that `Toll > 10` reads the ten from a register.

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
pub(super) enum Side<'a, T> {
    Many(&'a [T]),
    One(T),
}

/// An operand that is a number in every row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers<'a> {
    Ints(Side<'a, i64>),
    Floats(Side<'a, f64>),
}

/// Where a kernel stands in the query, for which rows it runs, and where it reports failures.
pub(super) struct Site<'a> {
    pub span: Span,
    pub rows: &'a Rows,
    pub faults: &'a mut Faults,
}

impl Site<'_> {
    pub fn fail(&mut self, row: usize, reason: EvalError) {
        self.faults.add(row, self.span, reason);
    }

    pub fn remark(&mut self, row: usize, text: &'static str) {
        self.faults.remark(row, self.span, text);
    }

    pub fn fail_all(&mut self, reason: EvalError) {
        for row in self.rows.iter() {
            self.faults.add(row, self.span, reason.clone());
        }
    }

    /// Runs a rule value by value over the rows of this site, noting failures.
    pub fn map(&mut self, mut rule: impl FnMut(usize) -> Result<Value, EvalError>) -> Datum {
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

    /// Runs a condition value by value over the rows of this site, noting failures.
    pub fn select(
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
    pub const NULL: Datum = Datum::Scalar(Value::Null);

    pub fn get(&self, row: usize) -> ValueRef<'_> {
        match self {
            Datum::Column(column) => column.get(row),
            Datum::Scalar(value) => value.view(),
        }
    }

    pub fn into_column(self, rows: usize) -> Column {
        match self {
            Datum::Column(column) => column,
            Datum::Scalar(Value::Null) => Column::Null(rows),
            Datum::Scalar(value) => Column::repeat(value.view(), rows),
        }
    }

    /// Whether it is known without looking at rows that every one is NULL.
    pub fn all_null(&self) -> bool {
        matches!(
            self,
            Datum::Column(Column::Null(_)) | Datum::Scalar(Value::Null)
        )
    }

    /// The rows that are not NULL; `None` means all.
    pub fn present(&self, rows: usize) -> Option<BooleanBuffer> {
        match self {
            Datum::Scalar(Value::Null) => Some(BooleanBuffer::new_unset(rows)),
            Datum::Scalar(_) => None,
            Datum::Column(Column::Null(_)) => Some(BooleanBuffer::new_unset(rows)),
            Datum::Column(Column::Dynamic(values)) => {
                Some(BooleanBuffer::collect_bool(rows, |row| {
                    !values[row].is_null()
                }))
            }
            Datum::Column(_) => self.nulls().map(|nulls| nulls.inner().clone()),
        }
    }

    /// The NULLs of a typed column.
    pub fn nulls(&self) -> Option<&NullBuffer> {
        let nulls = match self {
            Datum::Column(Column::Bit(a)) => a.nulls(),
            Datum::Column(Column::Int(a) | Column::Time(a)) => a.nulls(),
            Datum::Column(Column::Float(a)) => a.nulls(),
            Datum::Column(Column::Text(a)) => a.nulls(),
            _ => None,
        };
        nulls.filter(|nulls| nulls.null_count() > 0)
    }

    pub fn numbers(&self) -> Option<Numbers<'_>> {
        match self {
            Datum::Column(Column::Int(a)) => Some(Numbers::Ints(Side::Many(a.values()))),
            Datum::Column(Column::Float(a)) => Some(Numbers::Floats(Side::Many(a.values()))),
            Datum::Scalar(Value::Int(i)) => Some(Numbers::Ints(Side::One(*i))),
            Datum::Scalar(Value::Bit(b)) => Some(Numbers::Ints(Side::One((*b).into()))),
            Datum::Scalar(Value::Float(f)) => Some(Numbers::Floats(Side::One(*f))),
            _ => None,
        }
    }

    pub fn times(&self) -> Option<Side<'_, i64>> {
        match self {
            Datum::Column(Column::Time(a)) => Some(Side::Many(a.values())),
            Datum::Scalar(Value::Time(t)) => Some(Side::One(t.ticks())),
            _ => None,
        }
    }

    /// The text of a row, for operands that are text in every row that is not NULL.
    pub fn texts(&self) -> Option<Texts<'_>> {
        match self {
            Datum::Column(Column::Text(a)) => Some(Texts::Many(a)),
            Datum::Scalar(Value::Text(t)) => Some(Texts::One(t)),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Texts<'a> {
    Many(&'a StringArray),
    One(&'a str),
}

impl<'a> Texts<'a> {
    #[inline]
    pub fn at(self, row: usize) -> &'a str {
        match self {
            Texts::Many(array) => array.value(row),
            Texts::One(text) => text,
        }
    }
}

/// The column with NULL in every row that `good` does not select.
pub(super) fn keep(column: Column, good: &BooleanBuffer) -> Column {
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
    }
}

fn with_nulls(array: &Int64Array, nulls: Option<NullBuffer>) -> Int64Array {
    Int64Array::new(array.values().clone(), nulls)
}
