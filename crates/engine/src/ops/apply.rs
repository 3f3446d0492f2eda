//! CROSS and OUTER APPLY: one row per element of an array or property of a record.
//!
//! A row without elements (NULL, or an empty array or record) is dropped by CROSS and kept by OUTER, which shows a record
//! whose fields are NULL. A value of another type is a fault of the row.

use std::sync::Arc;

use highwater_query::Span;
use highwater_query::plan::{ApplyColumn, Each, Expr};

use super::fanout::Fanout;
use super::{Context, Item, Operator};
use crate::chunk::{CHUNK_ROWS, Chunk};
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};
use crate::value::{Record, Value, ValueRef};

#[derive(Debug)]
pub(crate) struct Apply {
    of: Expr,
    each: Each,
    outer: bool,
    columns: Vec<ApplyColumn>,
    /// The field names of an element's record.
    names: [Arc<str>; 2],
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
            names: [index.into(), value.into()],
        }
    }

    fn rows(&self, chunk: Chunk, context: &mut Context<'_>) {
        let mut faults = Faults::new(chunk.rows());
        let of = eval::evaluate(&self.of, &chunk, &mut faults);
        let mut fanout = Fanout::of(&chunk);
        let mut pending = PendingRows::default();
        context.errors.add_warnings(&faults, |row| chunk.time(row));
        let mut failed = faults.iter().peekable();
        for row in 0..chunk.rows() {
            if let Some((_, fault)) = failed.next_if(|(failed, _)| *failed == row) {
                let reason = || fault.reason.to_string();
                context.errors.add(chunk.time(row), fault.span, reason);
                continue;
            }
            if pending.rows.len() >= CHUNK_ROWS {
                let rows = pending.finish(&chunk, &self.columns, row, &mut fanout);
                context.out.push(Item::Rows(rows));
            }
            self.row(of.get(row), row as u32, &mut pending, |reason| {
                context.errors.add(chunk.time(row), self.span, reason);
            });
        }
        let rows = pending.finish(&chunk, &self.columns, usize::MAX, &mut fanout);
        context.out.push(Item::Rows(rows));
    }

    fn row(
        &self,
        value: ValueRef<'_>,
        row: u32,
        pending: &mut PendingRows,
        fail: impl FnOnce(Box<dyn FnOnce() -> String>),
    ) {
        let before = pending.rows.len();
        match (self.each, value) {
            (_, ValueRef::Null) => {}
            (Each::Element, ValueRef::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    pending.push(row, self.record(Value::Int(index as i64), item.clone()));
                }
            }
            (Each::Property, ValueRef::Record(record)) => {
                for (name, value) in record.iter() {
                    pending.push(row, self.record(Value::Text(name.clone()), value.clone()));
                }
            }
            (each, other) => {
                let (function, wanted) = match each {
                    Each::Element => ("GetArrayElements", "an array"),
                    Each::Property => ("GetRecordProperties", "a record"),
                };
                let of = other.type_name();
                return fail(Box::new(move || {
                    format!("{function} takes {wanted}, but the value is {of}")
                }));
            }
        }
        if self.outer && pending.rows.len() == before {
            pending.push(row, self.record(Value::Null, Value::Null));
        }
    }

    fn record(&self, first: Value, second: Value) -> Record {
        let [a, b] = &self.names;
        let mut record = Record::with_capacity(2);
        record.set(a.clone(), first);
        record.set(b.clone(), second);
        record
    }
}

/// Results that are not emitted yet.
#[derive(Default)]
struct PendingRows {
    /// The input row of each.
    rows: Vec<u32>,
    elements: ColumnBuilder,
}

impl PendingRows {
    fn push(&mut self, row: u32, element: Record) {
        self.rows.push(row);
        self.elements.push_record(element);
    }

    fn finish(
        &mut self,
        chunk: &Chunk,
        columns: &[ApplyColumn],
        until: usize,
        fanout: &mut Fanout<'_>,
    ) -> Chunk {
        let PendingRows { rows, elements } = std::mem::take(self);
        let elements = elements.finish();
        let columns: Vec<Column> = columns
            .iter()
            .map(|column| match column {
                ApplyColumn::Carried(column) => chunk.columns[*column].take(&rows),
                ApplyColumn::Element => elements.clone(),
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
