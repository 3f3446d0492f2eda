//! CROSS and OUTER APPLY: one row per element of an array or property of a record.
//!
//! A row without elements (NULL, or an empty array or record) is dropped by CROSS and kept by OUTER, which shows a
//! record whose fields are NULL. A value of another type is a fault of the row.

use std::sync::Arc;

use highwater_query::Span;
use highwater_query::plan::{ApplyColumn, Each, Expr};

use super::fanout::Fanout;
use super::{Context, Item, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk};
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};
use crate::lazy::{LazyColumn, NestedPieces};
use crate::value::{Value, ValueRef};

/// The size of an element's record without its values.
const ELEMENT_BYTES: usize = 2 * (size_of::<Arc<str>>() + size_of::<Value>());

/// Results are emitted at the latest when they have this size.
const PENDING_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct Apply {
    of: Expr,
    each: Each,
    outer: bool,
    columns: Vec<ApplyColumn>,
    /// The field names of an element's record.
    names: Arc<[Arc<str>]>,
    span: Span,
}

impl Apply {
    pub(crate) fn new(of: Expr, each: Each, outer: bool, columns: Vec<ApplyColumn>) -> Apply {
        let [index, value] = match each {
            Each::Element => ["ArrayIndex", "ArrayValue"],
            Each::Property => ["PropertyName", "PropertyValue"],
        };
        Apply {
            span: of.span,
            of,
            each,
            outer,
            columns,
            names: [index.into(), value.into()].into(),
        }
    }

    fn rows(&self, chunk: Chunk, context: &mut Context<'_>) {
        let mut faults = Faults::new(chunk.rows());
        let of = eval::evaluate(&self.of, &chunk, &mut faults);
        let mut fanout = Fanout::of(&chunk);
        let mut pending = PendingRows::new(&of);
        context.errors.add_warnings(&faults, |row| chunk.time(row));
        let mut failed = faults.iter().peekable();
        for row in 0..chunk.rows() {
            if let Some((_, fault)) = failed.next_if(|(failed, _)| *failed == row) {
                let reason = || fault.reason.to_string();
                context.errors.add(chunk.time(row), fault.span, reason);
                continue;
            }
            if pending.rows.len() >= CHUNK_ROWS || pending.bytes >= PENDING_BYTES_MAX {
                let rows = pending.finish(&chunk, self, row, &mut fanout);
                context.out.push(Item::Rows(rows));
            }
            let before = pending.rows.len();
            self.row(row, &mut pending, |reason| {
                context.errors.add(chunk.time(row), self.span, reason);
            });
            let bytes = (pending.rows.len() - before) * self.bytes(&chunk, row);
            pending.bytes += bytes;
            let step = match self.outer {
                true => "OUTER APPLY",
                false => "CROSS APPLY",
            };
            if !context.budget.charge(bytes, step, Some(self.span)) {
                return;
            }
        }
        let rows = pending.finish(&chunk, self, usize::MAX, &mut fanout);
        context.out.push(Item::Rows(rows));
    }

    /// About the size of one result of a row.
    fn bytes(&self, chunk: &Chunk, row: usize) -> usize {
        let columns = self.columns.iter().map(|column| match column {
            ApplyColumn::Carried(column) => chunk.columns[*column].value_bytes(row),
            ApplyColumn::Element => ELEMENT_BYTES,
        });
        size_of::<i64>() + columns.sum::<usize>()
    }

    fn row(&self, row: usize, pending: &mut PendingRows<'_>, fail: impl FnOnce(Reason)) {
        let before = pending.rows.len();
        let elements = match (self.each, pending.of) {
            (Each::Element, Column::Lazy(lazy)) => pending.values.add_elements(lazy, row),
            _ => None,
        };
        match elements {
            Some(elements) => {
                for index in 0..elements {
                    pending.rows.push(row as u32);
                    pending.names.push_int(index as i64);
                }
            }
            None => {
                if let Err(reason) = self.values(row, pending) {
                    return fail(reason);
                }
            }
        }
        if self.outer && pending.rows.len() == before {
            pending.push(row as u32, ValueRef::Null, &Value::Null);
        }
    }

    fn values(&self, row: usize, pending: &mut PendingRows<'_>) -> Result<(), Reason> {
        let (value, row) = (pending.of.value(row), row as u32);
        match (self.each, value.view()) {
            (_, ValueRef::Null) => {}
            (Each::Element, ValueRef::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    pending.push(row, ValueRef::Int(index as i64), item);
                }
            }
            (Each::Property, ValueRef::Record(record)) => {
                for (name, value) in record.iter() {
                    pending.push(row, ValueRef::Text(name), value);
                }
            }
            (each, other) => {
                let (function, wanted) = match each {
                    Each::Element => ("GetArrayElements", "an array"),
                    Each::Property => ("GetRecordProperties", "a record"),
                };
                let of = other.type_name();
                return Err(Box::new(move || {
                    format!("{function} takes {wanted}, but the value is {of}")
                }));
            }
        }
        Ok(())
    }
}

/// Writes why a row fails.
type Reason = Box<dyn FnOnce() -> String>;

/// Results that are not emitted yet.
struct PendingRows<'a> {
    /// The operand of the operator.
    of: &'a Column,
    /// The input row of each.
    rows: Vec<u32>,
    /// About their size.
    bytes: usize,
    /// Index or property name of each.
    names: ColumnBuilder,
    values: ElementValues,
}

/// The values of results.
enum ElementValues {
    /// Records and arrays that are still text.
    Pieces(NestedPieces),
    Built(ColumnBuilder),
}

impl ElementValues {
    /// Adds the elements of an array that is still text, and returns their number.
    fn add_elements(&mut self, of: &LazyColumn, row: usize) -> Option<usize> {
        if let ElementValues::Pieces(pieces) = self
            && let Some(elements) = of.pieces(row, pieces)
        {
            return Some(elements);
        }
        let (text, reader) = of.text(row)?;
        reader.elements(text, self.built(of))
    }

    /// The builder of values, which holds the pieces so far from now on.
    fn built(&mut self, of: &LazyColumn) -> &mut ColumnBuilder {
        if let ElementValues::Pieces(pieces) = self {
            let mut values = ColumnBuilder::default();
            of.push_pieces(pieces, &mut values);
            *self = ElementValues::Built(values);
        }
        match self {
            ElementValues::Built(values) => values,
            ElementValues::Pieces(_) => unreachable!("the pieces were just built"),
        }
    }

    fn push(&mut self, of: &Column, value: &Value) {
        match (&mut *self, of) {
            (ElementValues::Built(values), _) => values.push(value.view()),
            (ElementValues::Pieces(_), Column::Lazy(lazy)) => self.built(lazy).push(value.view()),
            // There are no pieces of values that are not text.
            (ElementValues::Pieces(_), _) => {
                let mut values = ColumnBuilder::default();
                values.push(value.view());
                *self = ElementValues::Built(values);
            }
        }
    }

    fn finish(self, of: &Column) -> Column {
        match (self, of) {
            (ElementValues::Built(values), _) => values.finish(),
            (ElementValues::Pieces(pieces), Column::Lazy(lazy)) => lazy.cut(pieces),
            (ElementValues::Pieces(_), _) => Column::Null(0),
        }
    }
}

impl<'a> PendingRows<'a> {
    fn new(of: &'a Column) -> PendingRows<'a> {
        let rows = of.len().min(CHUNK_ROWS);
        PendingRows {
            of,
            rows: Vec::with_capacity(rows),
            bytes: 0,
            names: ColumnBuilder::with_capacity(rows),
            values: ElementValues::Pieces(NestedPieces::with_capacity(rows)),
        }
    }

    fn push(&mut self, row: u32, name: ValueRef<'_>, value: &Value) {
        self.rows.push(row);
        self.names.push(name);
        self.values.push(self.of, value);
    }

    fn finish(
        &mut self,
        chunk: &Chunk,
        apply: &Apply,
        until: usize,
        fanout: &mut Fanout<'_>,
    ) -> Chunk {
        let PendingRows {
            of,
            rows,
            names,
            values,
            ..
        } = std::mem::replace(self, PendingRows::new(self.of));
        let parts = vec![names.finish(), values.finish(of)];
        let elements = LazyColumn::records(apply.names.clone(), parts, rows.len());
        let columns: Vec<Column> = (apply.columns)
            .iter()
            .map(|column| match column {
                ApplyColumn::Carried(column) => chunk.columns[*column].take(&rows),
                ApplyColumn::Element => Column::Lazy(elements.clone()),
            })
            .collect();
        fanout.piece(&rows, until, columns)
    }
}

impl Operator for Apply {
    fn push(&mut self, _port: usize, item: Item, context: &mut Context<'_>) {
        match item {
            Item::Rows(chunk) => self.rows(chunk, context),
            other => context.out.push(other),
        }
    }
}
