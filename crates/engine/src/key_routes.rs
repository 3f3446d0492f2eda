//! Splits the items that leave partitions by the value of a key, so that several shared pipelines each have some keys.
//!
//! It is possible where every shared step keeps the rows of different keys apart: then the rows of a key depend on the
//! items with that key alone, and rows of different keys that one pipeline has are in the order in which a single
//! pipeline for all keys would give them, because steps order rows by time and by first occurrence.
//! [`PhysicalPlan::key_routes`] follows the key of every output back to the exits of the partitions.
//!
//! The class of a value follows from its group: 1 and 1.0 are one group, so they have one class.

use highwater_query::plan::{
    AnalyticColumn, AnalyticNode, ApplyColumn, Expr, ExprKind, JoinNode, Node, NodeId, Side, Type,
    Window, WindowNode,
};

use crate::chunk::Chunk;
use crate::column_type::column_type;
use crate::eval::{self, float_as_int, key_value};
use crate::ops::{Groups, Item, PartialPane};
use crate::physical_plan::{Exit, PhysicalPlan, Placement};
use crate::value::ValueRef;

/// The class of a key's text; `None` for NULL, records and arrays, which are all in one class.
pub type KeyClassifier<'a> = dyn Fn(Option<&str>) -> usize + 'a;

/// Where the key is in the items of each exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRoutes {
    /// Per input and exit: a column of its rows, or a key of its panes.
    keys: Vec<Vec<Option<usize>>>,
}

impl KeyRoutes {
    /// The parts of an item for each class. A class without rows has no part; watermarks are for all.
    pub fn split(
        &self,
        input: usize,
        exit: usize,
        item: &Item,
        classes: usize,
        class_of: &KeyClassifier<'_>,
    ) -> Vec<Option<Item>> {
        let key = self.keys.get(input).and_then(|exits| exits.get(exit));
        let key = key.copied().flatten();
        let mut text = String::new();
        let mut class = |value: ValueRef<'_>| class_of(key_text(value, &mut text)).min(classes - 1);
        match (item, key) {
            (Item::Watermark(watermark), _) => {
                let part = || Some(Item::Watermark(*watermark));
                (0..classes).map(|_| part()).collect()
            }
            (Item::Rows(chunk), Some(column)) => {
                split_rows(chunk, classes, |row| class(chunk.columns[column].get(row)))
            }
            (Item::PartialPanes(panes), Some(index)) => {
                split_panes(panes, classes, |groups, slot| {
                    class(key_value(groups.encoded_key(slot), index))
                })
            }
            // Nothing reads it.
            (item, None) => {
                let mut parts = vec![None; classes];
                parts[0] = Some(item.clone());
                parts
            }
        }
    }
}

/// The text that decides the class, the same for all values of a group.
fn key_text<'a>(value: ValueRef<'_>, buffer: &'a mut String) -> Option<&'a str> {
    let value = match value {
        ValueRef::Null | ValueRef::Record(_) | ValueRef::Array(_) => return None,
        ValueRef::Float(float) => float_as_int(float).map_or(value, ValueRef::Int),
        value => value,
    };
    buffer.clear();
    eval::write_text(value, buffer);
    Some(buffer)
}

fn split_rows(
    chunk: &Chunk,
    classes: usize,
    mut class: impl FnMut(usize) -> usize,
) -> Vec<Option<Item>> {
    let of_row: Vec<usize> = (0..chunk.rows()).map(&mut class).collect();
    let part = |class: usize| {
        let mask = of_row.iter().map(|of| *of == class).collect();
        let part = chunk.filter(&mask);
        (part.rows() > 0).then_some(Item::Rows(part))
    };
    (0..classes).map(part).collect()
}

fn split_panes(
    panes: &[PartialPane],
    classes: usize,
    mut class: impl FnMut(&Groups, u32) -> usize,
) -> Vec<Option<Item>> {
    let mut parts: Vec<Vec<PartialPane>> = vec![Vec::new(); classes];
    for pane in panes {
        let mut slots: Vec<Vec<u32>> = vec![Vec::new(); classes];
        for slot in 0..pane.groups.len() as u32 {
            slots[class(&pane.groups, slot)].push(slot);
        }
        for (part, slots) in parts.iter_mut().zip(slots) {
            if !slots.is_empty() {
                part.push(PartialPane {
                    end: pane.end,
                    groups: pane.groups.pick(&slots),
                });
            }
        }
    }
    let part = |panes: Vec<PartialPane>| (!panes.is_empty()).then_some(Item::PartialPanes(panes));
    parts.into_iter().map(part).collect()
}

impl PhysicalPlan {
    /// The routes by the key of each output: `columns` has its column among those of the output. The error says which
    /// step needs the rows of different keys.
    pub fn key_routes(&self, columns: &[usize]) -> Result<KeyRoutes, String> {
        if self.plan().ignore_case {
            return Err("keys that differ only in case are one group".into());
        }
        let mut search = KeySearch {
            physical: self,
            keys: self
                .exits
                .iter()
                .map(|exits| vec![None; exits.len()])
                .collect(),
        };
        for (output, column) in self.plan().outputs.iter().zip(columns) {
            search.follow(output.from, *column)?;
        }
        Ok(KeyRoutes { keys: search.keys })
    }
}

/// Follows keys from outputs to the exits of partitions.
struct KeySearch<'a> {
    physical: &'a PhysicalPlan,
    keys: Vec<Vec<Option<usize>>>,
}

/// The column that an expression is.
fn column_of(expr: &Expr) -> Option<usize> {
    match expr.kind {
        ExprKind::Column(column) => Some(column),
        _ => None,
    }
}

impl KeySearch<'_> {
    fn follow(&mut self, node: NodeId, column: usize) -> Result<(), String> {
        if self.physical.has_lanes(node) {
            return Err(
                "the order of substreams (TIMESTAMP BY .. OVER) depends on all keys".into(),
            );
        }
        if let Placement::Partition(input) = self.physical.placement(node) {
            return self.arrive(input, Exit::Rows(node), column);
        }
        let physical = self.physical;
        match &physical.plan().nodes[node.0] {
            Node::Source { .. } => Err("a source is not keyed".into()),
            Node::Filter { from, .. } => self.follow(*from, column),
            Node::Project { from, items } => match column_of(&items[column].expr) {
                Some(below) => self.follow(*from, below),
                None => {
                    Err("the key of the output is computed after partitions are combined".into())
                }
            },
            Node::Union { from, .. } => from
                .iter()
                .try_for_each(|(below, columns)| self.follow(*below, columns[column])),
            Node::Window(window) => self.follow_window(node, window, column),
            Node::Analytic(analytic) => self.follow_analytic(analytic, column),
            Node::Apply { from, columns, .. } => match columns[column] {
                ApplyColumn::Carried(below) => self.follow(*from, below),
                ApplyColumn::Element => {
                    Err("the key of the output is an element of an array".into())
                }
            },
            Node::Lookup(lookup) => match lookup.columns[column] {
                (Side::Left, below) => self.follow(lookup.from, below),
                (Side::Right, _) => Err("the key of the output is of reference data".into()),
            },
            Node::Join(join) => self.follow_join(join, column),
            Node::Match(_) => Err("MATCH_RECOGNIZE is in one place".into()),
        }
    }

    fn follow_window(
        &mut self,
        node: NodeId,
        window: &WindowNode,
        column: usize,
    ) -> Result<(), String> {
        let Some(key) = window.keys.get(column) else {
            return Err("the key of the output is no key of GROUP BY".into());
        };
        if let Placement::Partition(input) = self.physical.placement(window.from)
            && self.physical.fills_panes(node)
        {
            return self.arrive(input, Exit::Panes(node), column);
        }
        if let Window::Session { over, .. } = &window.window
            && !over.as_ref().is_some_and(|over| over.contains(&column))
        {
            return Err("a session window is over the events of all keys".into());
        }
        match column_of(&key.expr) {
            Some(below) => self.follow(window.from, below),
            None => Err("a key of GROUP BY is computed after partitions are combined".into()),
        }
    }

    /// Rows that match are in one class if their keys are of one type: then equal values are written alike.
    fn follow_join(&mut self, join: &JoinNode, column: usize) -> Result<(), String> {
        let (side, below) = join.columns[column];
        if join.outer && side == Side::Right {
            return Err("the key of the output is NULL where a LEFT JOIN finds no match".into());
        }
        let pairs = join.keys.iter();
        let pairs = pairs.filter_map(|(left, right)| Some((column_of(left)?, column_of(right)?)));
        let mut keyed = pairs.filter(|(left, right)| match side {
            Side::Left => *left == below,
            Side::Right => *right == below,
        });
        let plan = self.physical.plan();
        let is_of_one_type = |(left, right): &(usize, usize)| {
            let found = column_type(plan, join.left, *left);
            let is_plain = matches!(found, Some(Type::Text | Type::Bigint | Type::Bit));
            is_plain && found == column_type(plan, join.right, *right)
        };
        let Some(first) = keyed.next() else {
            return Err("the key of the output is no key of the JOIN".into());
        };
        match std::iter::once(first).chain(keyed).find(is_of_one_type) {
            Some((left, right)) => {
                self.follow(join.left, left)?;
                self.follow(join.right, right)
            }
            None => Err(
                "a JOIN of streams combines rows by equal values, which may be written differently, such as 1 and '01'; \
                 CAST the keys of both sides to one of bigint, bit and nvarchar(max) in a step before"
                    .into(),
            ),
        }
    }

    fn follow_analytic(&mut self, analytic: &AnalyticNode, column: usize) -> Result<(), String> {
        let AnalyticColumn::Carried(below) = analytic.columns[column] else {
            return Err("the key of the output is the value of an analytic function".into());
        };
        let is_keyed = |partition: &[Expr]| {
            let mut columns = partition.iter().filter_map(column_of);
            columns.any(|column| column == below)
        };
        match analytic.calls.iter().all(|call| is_keyed(&call.partition)) {
            true => self.follow(analytic.from, below),
            false => Err(
                "an analytic function is over rows of all keys: PARTITION BY lacks the key of the \
                          output"
                    .into(),
            ),
        }
    }

    /// The key has been found in the items of an exit.
    fn arrive(&mut self, input: usize, exit: Exit, key: usize) -> Result<(), String> {
        let number = self.physical.exit_number(input, exit);
        match self.keys[input][number].replace(key) {
            Some(other) if other != key => {
                Err("two outputs have different columns of the same rows as their keys".into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves X1
    #[test]
    fn values_of_one_group_have_one_text() {
        let mut buffer = String::new();
        let mut text = |value: ValueRef<'_>| key_text(value, &mut buffer).map(str::to_owned);
        let one = Some("1".to_owned());
        for value in [
            ValueRef::Int(1),
            ValueRef::Float(1.0),
            ValueRef::Bit(true),
            ValueRef::Text("1"),
        ] {
            assert_eq!(text(value), one);
        }
        assert_eq!(
            text(ValueRef::Float(1e18)),
            text(ValueRef::Int(1_000_000_000_000_000_000))
        );
        assert_eq!(text(ValueRef::Null), None);
    }
}
