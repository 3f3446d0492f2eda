//! Columns of events out of leaf columns: levels say where records and lists begin and end.

use std::sync::Arc;

use highwater_engine::{Column, ColumnBuilder, Record, Value};
use parquet::errors::Result;

use super::leaf::{Leaf, malformed};
use super::leaf_type::ValueResult;
use super::schema::{Node, NodeKind, RepeatedLevels};

/// The rows that every leaf of a root column has decoded, as a column; `bad` is called for rows with values that events
/// cannot hold.
pub(super) fn rows_of(
    node: &Node,
    leaves: &mut [Leaf],
    rows: usize,
    mut bad: impl FnMut(usize, &'static str),
) -> Result<Column> {
    let mut column = ColumnBuilder::with_capacity(rows);
    match (&node.kind, &mut *leaves) {
        (NodeKind::Leaf, [leaf]) => leaf.flat_rows(rows, &mut column, bad)?,
        _ => {
            for row in 0..rows {
                match value(node, leaves)? {
                    Ok(value) => column.push_owned(value),
                    Err(reason) => {
                        column.push_null();
                        bad(row, reason);
                    }
                }
                if leaves
                    .iter()
                    .any(|leaf| !matches!(leaf.repetition(), None | Some(0)))
                {
                    return Err(malformed(
                        "the fields of a record have lists of different lengths",
                    ));
                }
            }
        }
    }
    Ok(column.finish())
}

/// The next value of a node. Of a value that events cannot hold, all is read nevertheless.
fn value(node: &Node, leaves: &mut [Leaf]) -> Result<ValueResult> {
    if let NodeKind::Leaf = node.kind {
        return leaves[node.leaves.start].take();
    }
    if leaves[node.leaves.start].definition()? < node.present {
        skip(node, leaves);
        return Ok(Ok(Value::Null));
    }
    match &node.kind {
        NodeKind::Leaf => leaves[node.leaves.start].take(),
        NodeKind::Record(fields) => {
            let mut record = Vec::with_capacity(fields.len());
            let mut wrong = None;
            for (name, field) in fields {
                match value(field, leaves)? {
                    Ok(value) => record.push((Arc::clone(name), value)),
                    Err(reason) => wrong = wrong.or(Some(reason)),
                }
            }
            let record = || Value::Record(Record::from_fields(record).into());
            Ok(wrong.map_or_else(|| Ok(record()), Err))
        }
        NodeKind::List { items, item } => {
            let mut values = Vec::new();
            let wrong = each_item(node, *items, leaves, |leaves| {
                Ok(value(item, leaves)?.map(|value| values.push(value)))
            })?;
            Ok(wrong.map(|()| Value::Array(values.into())))
        }
        NodeKind::Map {
            entries,
            key,
            value: content,
        } => {
            let mut fields = Vec::new();
            let wrong = each_item(node, *entries, leaves, |leaves| {
                Ok(match (value(key, leaves)?, value(content, leaves)?) {
                    (Ok(Value::Text(key)), Ok(value)) => {
                        fields.push((key, value));
                        Ok(())
                    }
                    (Err(reason), _) | (_, Err(reason)) => Err(reason),
                    _ => Err("a map has a key that is not text"),
                })
            })?;
            Ok(wrong.map(|()| Value::Record(Record::from_fields(fields).into())))
        }
    }
}

/// Calls `read` for each item of a repeated field, and returns the first reason why events cannot hold one.
fn each_item(
    node: &Node,
    levels: RepeatedLevels,
    leaves: &mut [Leaf],
    mut read: impl FnMut(&mut [Leaf]) -> Result<Result<(), &'static str>>,
) -> Result<Result<(), &'static str>> {
    let first = node.leaves.start;
    if leaves[first].definition()? < levels.defined {
        skip(node, leaves);
        return Ok(Ok(()));
    }
    let mut result = Ok(());
    loop {
        result = result.and(read(leaves)?);
        if leaves[first].repetition() != Some(levels.repeated) {
            return Ok(result);
        }
    }
}

/// A NULL or an empty list has one level in each of its leaves.
fn skip(node: &Node, leaves: &mut [Leaf]) {
    leaves[node.leaves.clone()].iter_mut().for_each(Leaf::skip);
}
