//! The values of one event while it is being read.
//!
//! They are held back until the whole line has proved valid, because a bad event must leave nothing
//! behind, and because a repeated key may still replace a value. Texts stay where they are in the
//! line: a cell only points there.

use highwater_engine::{ColumnBuilder, Record, Value, ValueRef};
use highwater_time::Instant;

use super::number::Number;
use super::scan::Text;
use super::shape::{Node, Target};
use super::text::unescape;

/// One cell for each node of the wanted paths.
#[derive(Debug, Default)]
pub(crate) struct Row {
    slots: Vec<Slot>,
    /// The names behind [`Found::Alike`].
    alike: Vec<String>,
    unescaped: String,
    nested: Vec<Value>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    cell: Cell,
    found: Found,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Cell {
    #[default]
    Null,
    Bit(bool),
    Int(i64),
    Float(f64),
    Time(Instant),
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
            slots: vec![Slot::default(); nodes],
            alike: vec![String::new(); nodes],
            ..Row::default()
        }
    }

    #[inline(always)]
    pub fn clear(&mut self) {
        for slot in &mut self.slots {
            slot.clear();
        }
        if !self.unescaped.is_empty() {
            self.unescaped.clear();
        }
        if !self.nested.is_empty() {
            self.nested.clear();
        }
    }

    /// The cell of a node.
    #[inline(always)]
    pub fn cell(&mut self, node: usize) -> &mut Cell {
        &mut self.slots[node].cell
    }

    /// Whether a key that answers `target` exactly is the first to answer it, which is the usual
    /// case.
    #[inline(always)]
    pub fn is_first_exact(&mut self, target: Target) -> bool {
        let slot = &mut self.slots[target.node as usize];
        if target.exact && slot.found == Found::Nothing {
            slot.found = Found::Exact;
            return true;
        }
        false
    }

    /// Whether the value of the key `name` is to be taken for `target`; if so, what an earlier key
    /// gave to the nodes from the target's to `end` is gone.
    #[inline(never)]
    pub fn accept(&mut self, target: Target, name: &str, end: usize) -> bool {
        let node = target.node as usize;
        let found = match self.slots[node].found {
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
        self.slots[node..end].iter_mut().for_each(Slot::clear);
        self.slots[node].found = found;
        found != Found::Ambiguous
    }

    /// Keeps a text of the line, from `start` to its closing quote.
    #[inline(always)]
    pub fn keep_text(&mut self, node: usize, line: &str, start: usize, text: Text) {
        if text.escaped {
            self.keep_unescaped(node, &line[start..text.end]);
        } else {
            self.slots[node].cell = Cell::Text(start, text.end);
        }
    }

    #[inline(never)]
    fn keep_unescaped(&mut self, node: usize, raw: &str) {
        let start = self.unescaped.len();
        unescape(raw, &mut self.unescaped);
        self.slots[node].cell = Cell::Unescaped(start, self.unescaped.len());
    }

    /// Each arm stores its own cell: one made up first would travel through memory.
    #[inline(always)]
    pub fn keep_number(&mut self, node: usize, number: Number) {
        match number {
            Number::Int(value) => self.slots[node].cell = Cell::Int(value),
            Number::Float(value) => self.slots[node].cell = Cell::Float(value),
        }
    }

    pub fn hold(&mut self, value: Value) -> Cell {
        match value {
            Value::Null => Cell::Null,
            Value::Bit(value) => Cell::Bit(value),
            Value::Int(value) => Cell::Int(value),
            Value::Float(value) => Cell::Float(value),
            Value::Time(value) => Cell::Time(value),
            value => {
                self.nested.push(value);
                Cell::Nested(self.nested.len() - 1)
            }
        }
    }

    /// Fills the cells below a node from the record that was built for the node itself.
    pub fn fill_from(&mut self, nodes: &[Node], node: usize, record: &Record) {
        for (name, child) in &nodes[node].children {
            let Some(value) = record.get(name) else {
                continue;
            };
            let cell = self.hold(value.clone());
            self.slots[*child] = Slot {
                cell,
                found: Found::Exact,
            };
            if let Value::Record(inner) = value {
                self.fill_from(nodes, *child, inner);
            }
        }
    }

    /// Appends a cell's value to its column.
    #[inline(always)]
    pub fn push(&self, node: usize, line: &str, column: &mut ColumnBuilder) {
        match self.slots[node].cell {
            Cell::Null => column.push_null(),
            Cell::Bit(value) => column.push_bit(value),
            Cell::Int(value) => column.push_int(value),
            Cell::Float(value) => column.push_float(value),
            Cell::Time(value) => column.push_time(value),
            Cell::Text(start, end) => column.push_text(&line[start..end]),
            Cell::Unescaped(start, end) => column.push_text(&self.unescaped[start..end]),
            Cell::Nested(place) => column.push_owned(self.nested[place].clone()),
        }
    }

    /// Appends a cell's value to its column, as a time if it is text that says one.
    #[inline(always)]
    pub fn push_time(&self, node: usize, line: &str, column: &mut ColumnBuilder) {
        let text = match self.slots[node].cell {
            Cell::Text(start, end) => &line[start..end],
            Cell::Unescaped(start, end) => &self.unescaped[start..end],
            Cell::Nested(place) => match self.nested[place].view() {
                ValueRef::Text(text) => text,
                _ => return self.push(node, line, column),
            },
            _ => return self.push(node, line, column),
        };
        match Instant::parse_iso(text.as_bytes()) {
            Some(time) => column.push_time(time),
            None => self.push(node, line, column),
        }
    }

    /// Whether a key has answered a node, be it with null.
    pub fn is_present(&self, node: usize) -> bool {
        matches!(self.slots[node].found, Found::Exact | Found::Alike)
    }

    /// A cell's value, to be looked at.
    pub fn look<'a>(&'a self, node: usize, line: &'a str) -> ValueRef<'a> {
        match self.slots[node].cell {
            Cell::Null => ValueRef::Null,
            Cell::Bit(value) => ValueRef::Bit(value),
            Cell::Int(value) => ValueRef::Int(value),
            Cell::Float(value) => ValueRef::Float(value),
            Cell::Time(value) => ValueRef::Time(value),
            Cell::Text(start, end) => ValueRef::Text(&line[start..end]),
            Cell::Unescaped(start, end) => ValueRef::Text(&self.unescaped[start..end]),
            Cell::Nested(place) => self.nested[place].view(),
        }
    }
}

impl Slot {
    #[inline(always)]
    fn clear(&mut self) {
        self.cell = Cell::Null;
        self.found = Found::Nothing;
    }
}
