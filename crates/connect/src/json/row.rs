//! The values of one event while it is read.
//!
//! They are buffered until the whole line has proved valid, because a bad event must leave nothing behind, and because
//! a repeated key may still replace a value. Texts stay in the line: a cell only points there.

use highwater_engine::{ColumnBuilder, ReadNested, Record, Value, ValueRef};
use highwater_time::Instant;

use super::number::Number;
use super::scan::Text;
use super::shape::{Node, Target};
use super::text::unescape;

/// One cell per node of the requested paths.
#[derive(Debug, Default)]
pub(crate) struct Row {
    slots: Vec<Slot>,
    /// The names behind [`KeyMatch::Alike`].
    alike: Vec<String>,
    unescaped: String,
    nested: Vec<Value>,
    /// Set if records and arrays stay text.
    pub reader: Option<&'static dyn ReadNested>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    cell: Cell,
    matched: KeyMatch,
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
    /// An index into [`Row::nested`].
    Nested(usize),
    /// A record or array: a range of the line that [`Row::reader`] reads.
    Raw(usize, usize),
}

/// The key that matched a requested name so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KeyMatch {
    #[default]
    Nothing,
    Alike,
    /// Two names that differ only in case, neither of them exact: neither counts.
    Ambiguous,
    Exact,
}

impl Row {
    pub(super) fn new(nodes: usize, reader: Option<&'static dyn ReadNested>) -> Row {
        Row {
            reader,
            slots: vec![Slot::default(); nodes],
            alike: vec![String::new(); nodes],
            ..Row::default()
        }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
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
    pub(super) fn cell(&mut self, node: usize) -> &mut Cell {
        &mut self.slots[node].cell
    }

    /// Whether a key that matches `target` exactly is the first to match it, which is the usual case.
    #[inline(always)]
    pub(super) fn is_first_exact(&mut self, target: Target) -> bool {
        let slot = &mut self.slots[target.node as usize];
        if target.exact && slot.matched == KeyMatch::Nothing {
            slot.matched = KeyMatch::Exact;
            return true;
        }
        false
    }

    /// Whether to take the value of the key `name` for `target`; if so, clears the values that an earlier key gave to
    /// the nodes from the target's to `end`.
    #[inline(never)]
    pub(super) fn accept(&mut self, target: Target, name: &str, end: usize) -> bool {
        let node = target.node as usize;
        let found = match self.slots[node].matched {
            _ if target.exact => KeyMatch::Exact,
            KeyMatch::Exact => return false,
            KeyMatch::Nothing => {
                self.alike[node].clear();
                self.alike[node].push_str(name);
                KeyMatch::Alike
            }
            KeyMatch::Alike if self.alike[node] == name => KeyMatch::Alike,
            KeyMatch::Alike | KeyMatch::Ambiguous => KeyMatch::Ambiguous,
        };
        self.slots[node..end].iter_mut().for_each(Slot::clear);
        self.slots[node].matched = found;
        found != KeyMatch::Ambiguous
    }

    /// Keeps a text of the line, from `start` to its closing quote.
    #[inline(always)]
    pub(super) fn keep_text(&mut self, node: usize, line: &str, start: usize, text: Text) {
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

    /// Each arm stores its own cell: one built first would travel through memory.
    #[inline(always)]
    pub(super) fn keep_number(&mut self, node: usize, number: Number) {
        match number {
            Number::Int(value) => self.slots[node].cell = Cell::Int(value),
            Number::Float(value) => self.slots[node].cell = Cell::Float(value),
        }
    }

    pub(super) fn hold(&mut self, value: Value) -> Cell {
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

    /// Fills the cells below a node from the record built for the node.
    pub(super) fn fill_from(&mut self, nodes: &[Node], node: usize, record: &Record) {
        for (name, child) in &nodes[node].children {
            let Some(value) = record.get(name) else {
                continue;
            };
            let cell = self.hold(value.clone());
            self.slots[*child] = Slot {
                cell,
                matched: KeyMatch::Exact,
            };
            if let Value::Record(inner) = value {
                self.fill_from(nodes, *child, inner);
            }
        }
    }

    /// Appends a cell's value to its column.
    #[inline(always)]
    pub(super) fn push(&self, node: usize, line: &str, column: &mut ColumnBuilder) {
        match self.slots[node].cell {
            Cell::Null => column.push_null(),
            Cell::Bit(value) => column.push_bit(value),
            Cell::Int(value) => column.push_int(value),
            Cell::Float(value) => column.push_float(value),
            Cell::Time(value) => column.push_time(value),
            Cell::Text(start, end) => column.push_text(&line[start..end]),
            Cell::Unescaped(start, end) => column.push_text(&self.unescaped[start..end]),
            Cell::Nested(place) => column.push_owned(self.nested[place].clone()),
            Cell::Raw(start, end) => match self.reader {
                Some(reader) => column.push_nested(&line[start..end], reader),
                None => unreachable!("without a reader, values are built"),
            },
        }
    }

    /// Appends a cell's value to its column, as a time if it is the text of one.
    #[inline(always)]
    pub(super) fn push_time(&self, node: usize, line: &str, column: &mut ColumnBuilder) {
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

    /// Whether a key matched a node, even with null.
    pub(super) fn is_present(&self, node: usize) -> bool {
        matches!(self.slots[node].matched, KeyMatch::Exact | KeyMatch::Alike)
    }

    /// A view of a cell's value.
    pub(super) fn look<'a>(&'a self, node: usize, line: &'a str) -> ValueRef<'a> {
        match self.slots[node].cell {
            Cell::Null => ValueRef::Null,
            Cell::Bit(value) => ValueRef::Bit(value),
            Cell::Int(value) => ValueRef::Int(value),
            Cell::Float(value) => ValueRef::Float(value),
            Cell::Time(value) => ValueRef::Time(value),
            Cell::Text(start, end) => ValueRef::Text(&line[start..end]),
            Cell::Unescaped(start, end) => ValueRef::Text(&self.unescaped[start..end]),
            Cell::Nested(place) => self.nested[place].view(),
            Cell::Raw(..) => unreachable!("values are built where they are compared with types"),
        }
    }
}

impl Slot {
    #[inline(always)]
    fn clear(&mut self) {
        self.cell = Cell::Null;
        self.matched = KeyMatch::Nothing;
    }
}
