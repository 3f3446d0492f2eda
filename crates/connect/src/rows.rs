//! The named values of a result row.
//!
//! A row's columns are named fields, records whose fields are spread among them, and hidden columns. Of equal names the
//! leftmost counts.

use highwater_engine::{Chunk, Record, Value, ValueRef};
use highwater_query::plan::Name;

#[derive(Clone, Debug)]
pub struct RowNames {
    names: Vec<Name>,
    /// No name can occur twice.
    distinct: bool,
}

impl RowNames {
    pub fn new(names: Vec<Name>) -> RowNames {
        let spread = names.iter().filter(|name| matches!(name, Name::Spread));
        let spreads = spread.count();
        let fields = names.iter().filter(|name| matches!(name, Name::Field(_)));
        RowNames {
            distinct: spreads == 0 || (spreads == 1 && fields.count() == 0),
            names,
        }
    }

    /// The row's names and values, in order.
    pub fn row<'a>(&'a self, chunk: &'a Chunk, row: usize) -> Vec<(&'a str, ValueRef<'a>)> {
        let mut found: Vec<(&str, ValueRef)> = Vec::with_capacity(self.names.len());
        let mut add = |name: &'a str, value: ValueRef<'a>| {
            if self.distinct || found.iter().all(|(known, _)| *known != name) {
                found.push((name, value));
            }
        };
        for (name, column) in self.names.iter().zip(&chunk.columns) {
            match (name, column.get(row)) {
                (Name::Field(name), value) => add(name, value),
                (Name::Spread, ValueRef::Record(record)) => {
                    record
                        .iter()
                        .for_each(|(name, value)| add(name, value.view()));
                }
                (Name::Spread | Name::Hidden(_), _) => {}
            }
        }
        found
    }

    /// The value of a name; NULL if the row has no such name.
    pub fn value<'a>(&self, chunk: &'a Chunk, row: usize, wanted: &str) -> ValueRef<'a> {
        let mut columns = self.names.iter().zip(&chunk.columns);
        let found = columns.find_map(|(name, column)| match (name, column.get(row)) {
            (Name::Field(name), value) if name == wanted => Some(value),
            (Name::Spread, ValueRef::Record(record)) => {
                record.get_exact(wanted).map(|value| value.view())
            }
            _ => None,
        });
        found.unwrap_or(ValueRef::Null)
    }

    /// Whether a row can have this name.
    pub fn may_have(&self, wanted: &str) -> bool {
        self.names.iter().any(|name| match name {
            Name::Field(name) => name == wanted,
            Name::Spread => true,
            Name::Hidden(_) => false,
        })
    }

    /// The names that every row has, in order, and whether rows may have others.
    pub fn known(&self) -> (impl Iterator<Item = &str>, bool) {
        let fields = self.names.iter().filter_map(|name| match name {
            Name::Field(name) => Some(&name[..]),
            _ => None,
        });
        let open = self.names.iter().any(|name| matches!(name, Name::Spread));
        (fields, open)
    }

    pub fn record(&self, chunk: &Chunk, row: usize) -> Record {
        let fields = self.row(chunk, row).into_iter();
        Record::from_fields(
            fields
                .map(|(name, value)| (name.into(), value.to_value()))
                .collect(),
        )
    }

    /// The rows of a chunk, each as one record.
    pub fn records(&self, chunk: &Chunk) -> Vec<Value> {
        (0..chunk.rows())
            .map(|row| Value::Record(self.record(chunk, row).into()))
            .collect()
    }
}
