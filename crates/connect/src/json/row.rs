//! The values of one event while it is being read.
//!
//! They are held back until the whole line has proved valid, because a bad event must leave nothing behind, and
//! because a repeated key may still replace a value. Texts stay where they are in the line: a cell only points there.

use highwater_engine::{ColumnBuilder, Record, Value, ValueRef};
use highwater_time::Instant;

use super::shape::{Node, Target};

/// One cell for each node of the wanted paths.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub cells: Vec<Cell>,
    found: Vec<Found>,
    /// The names behind [`Found::Alike`].
    alike: Vec<String>,
    pub unescaped: String,
    pub nested: Vec<Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Cell {
    #[default]
    Null,
    Bit(bool),
    Int(i64),
    Float(f64),
    /// A range of the line.
    Text(usize, usize),
    /// A range of [`Row::unescaped`].
    Unescaped(usize, usize),
    /// A place in [`Row::nested`].
    Nested(usize),
}

/// Which key has answered a wanted name so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Found {
    #[default]
    Nothing,
    Alike,
    /// Two names that differ only in case, neither of them exact: neither is taken.
    Ambiguous,
    Exact,
}

impl Row {
    pub fn new(nodes: usize) -> Row {
        Row {
            cells: vec![Cell::Null; nodes],
            found: vec![Found::Nothing; nodes],
            alike: vec![String::new(); nodes],
            ..Row::default()
        }
    }

    #[inline(always)]
    pub fn clear(&mut self) {
        self.cells.fill(Cell::Null);
        self.found.fill(Found::Nothing);
        if !self.unescaped.is_empty() {
            self.unescaped.clear();
        }
        if !self.nested.is_empty() {
            self.nested.clear();
        }
    }

    /// Whether the value of the key `name` is to be taken for `target`; if so, what an earlier key gave is gone.
    #[inline(always)]
    pub fn accept(&mut self, target: Target, name: &str, end: usize) -> bool {
        if target.exact && self.found[target.node] == Found::Nothing {
            self.found[target.node] = Found::Exact;
            return true;
        }
        self.accept_again(target, name, end)
    }

    #[inline(never)]
    fn accept_again(&mut self, target: Target, name: &str, end: usize) -> bool {
        let node = target.node;
        let found = match self.found[node] {
            _ if target.exact => Found::Exact,
            Found::Exact => return false,
            Found::Nothing => {
                self.alike[node].clear();
                self.alike[node].push_str(name);
                Found::Alike
            }
            Found::Alike if self.alike[node] == name => Found::Alike,
            Found::Alike | Found::Ambiguous => Found::Ambiguous,
        };
        self.found[node] = found;
        self.cells[node..end].fill(Cell::Null);
        self.found[node + 1..end].fill(Found::Nothing);
        found != Found::Ambiguous
    }

    pub fn hold(&mut self, value: Value) -> Cell {
        match value {
            Value::Null => Cell::Null,
            Value::Bit(value) => Cell::Bit(value),
            Value::Int(value) => Cell::Int(value),
            Value::Float(value) => Cell::Float(value),
            value => {
                self.nested.push(value);
                Cell::Nested(self.nested.len() - 1)
            }
        }
    }

    /// Fills the cells below a node from the record that was built for the node itself.
    pub fn fill_from(&mut self, nodes: &[Node], node: usize, record: &Record) {
        for (name, child) in &nodes[node].children {
            let Some(value) = record.get(name) else { continue };
            self.cells[*child] = self.hold(value.clone());
            if let Value::Record(inner) = value {
                self.fill_from(nodes, *child, inner);
            }
        }
    }

    /// Appends a cell's value to its column.
    #[inline(always)]
    pub fn push(&self, node: usize, line: &str, column: &mut ColumnBuilder) {
        match self.cells[node] {
            Cell::Null => column.push_null(),
            Cell::Bit(value) => column.push_bit(value),
            Cell::Int(value) => column.push_int(value),
            Cell::Float(value) => column.push_float(value),
            Cell::Text(start, end) => column.push_text(&line[start..end]),
            Cell::Unescaped(start, end) => column.push_text(&self.unescaped[start..end]),
            Cell::Nested(place) => column.push_owned(self.nested[place].clone()),
        }
    }

    /// Appends a cell's value to its column if it is text that says a time, and NULL otherwise.
    #[inline(always)]
    pub fn push_time(&self, node: usize, line: &str, column: &mut ColumnBuilder) {
        let text = match self.cells[node] {
            Cell::Text(start, end) => &line[start..end],
            Cell::Unescaped(start, end) => &self.unescaped[start..end],
            Cell::Nested(place) => match self.nested[place].view() {
                ValueRef::Text(text) => text,
                _ => "",
            },
            _ => "",
        };
        match Instant::parse_iso(text.as_bytes()) {
            Some(time) => column.push_time(time),
            None => column.push_null(),
        }
    }
}
