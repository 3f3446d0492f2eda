//! Events from named columns: the common part of CSV, Avro and Parquet.
//!
//! A format decodes its columns; this module checks them against the compatibility level and CREATE TABLE, removes
//! invalid rows, and selects the fields that a query reads. Columns that are neither read nor declared are not decoded,
//! and so cannot make an event bad.

use std::sync::Arc;

use highwater_engine::{Column, ColumnBuilder, Record, Value, ValueRef, eq_ignore_case};
use highwater_query::plan::Type;
use highwater_time::Instant;

use crate::declared::{parse, widen};
use crate::json::Field;
use crate::source::{BadEvent, BadKind, Events, Level, SourceOptions};

/// The requested and declared columns, once the names are known.
#[derive(Debug)]
pub(crate) struct Table {
    names: Vec<Arc<str>>,
    level: Level,
    /// Text is parsed into declared types, not only widened.
    from_text: bool,
    needed: Vec<bool>,
    declared: Option<Vec<DeclaredColumn>>,
    selections: Vec<Selection>,
    pub text_bytes_max: usize,
}

#[derive(Debug)]
struct DeclaredColumn {
    name: Arc<str>,
    kind: Type,
    /// `None`: no such column.
    column: Option<usize>,
}

#[derive(Debug)]
enum Selection {
    /// A column, or a field inside it.
    Path(usize, Vec<String>),
    Time(usize, Vec<String>),
    Whole,
    Nothing,
}

/// An invalid row.
#[derive(Debug)]
pub(crate) struct BadRow {
    pub row: usize,
    pub kind: BadKind,
    pub reason: String,
}

/// The selected fields of the valid rows.
pub(crate) struct SelectedRows {
    pub columns: Vec<Column>,
    /// In order of rows.
    pub bad: Vec<BadRow>,
    /// The valid rows.
    pub good: Vec<u32>,
}

impl Table {
    pub(crate) fn new(names: Vec<String>, from_text: bool, options: &SourceOptions) -> Table {
        let names: Vec<Arc<str>> = names
            .into_iter()
            .map(|name| match options.level {
                Level::V1_0 => name.to_lowercase().into(),
                _ => name.into(),
            })
            .collect();
        let find = |name: &String| find(&names, name);
        let selections: Vec<Selection> = options
            .fields
            .iter()
            .map(|field| match field {
                Field::Whole => Selection::Whole,
                Field::Path(path) | Field::Time(path) => {
                    match (path.first().and_then(find), field) {
                        (Some(column), Field::Time(_)) => {
                            Selection::Time(column, path[1..].to_vec())
                        }
                        (Some(column), _) => Selection::Path(column, path[1..].to_vec()),
                        (None, _) => Selection::Nothing,
                    }
                }
            })
            .collect();
        let declared: Option<Vec<DeclaredColumn>> = options.declared.as_ref().map(|columns| {
            let column = |(name, kind): &(String, Type)| DeclaredColumn {
                name: name.as_str().into(),
                kind: *kind,
                column: find(name),
            };
            columns.iter().map(column).collect()
        });
        let whole = selections
            .iter()
            .any(|selection| matches!(selection, Selection::Whole));
        let mut needed = vec![whole && declared.is_none(); names.len()];
        for selection in &selections {
            if let Selection::Path(column, _) | Selection::Time(column, _) = selection {
                needed[*column] = true;
            }
        }
        for column in declared.iter().flatten().filter_map(|d| d.column) {
            needed[column] = true;
        }
        Table {
            names,
            level: options.level,
            from_text,
            needed,
            declared,
            selections,
            text_bytes_max: options.text_bytes_max(),
        }
    }

    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Whether a column must be decoded; for others any column will do, such as NULLs.
    pub(crate) fn needs(&self, column: usize) -> bool {
        self.needed[column]
    }

    /// Checks the rows of these columns and selects the fields of the valid ones. `bad` holds rows that failed to
    /// decode.
    pub(crate) fn select(
        &self,
        mut columns: Vec<Column>,
        rows: usize,
        mut bad: Vec<BadRow>,
    ) -> SelectedRows {
        for (column, needed) in columns.iter_mut().zip(&self.needed) {
            if *needed {
                self.apply_level(column);
            }
        }
        self.find_non_finite_floats(&columns, &mut bad);
        self.conform(&mut columns, rows, &mut bad);
        bad.sort_by_key(|bad| bad.row);
        bad.dedup_by_key(|bad| bad.row);
        let mut good: Vec<u32> = (0..rows as u32).collect();
        if !bad.is_empty() {
            let mut next = bad.iter().map(|bad| bad.row as u32).peekable();
            good.retain(|row| next.next_if_eq(row).is_none());
            columns = columns.iter().map(|column| column.take(&good)).collect();
        }
        let rows = good.len();
        let columns = self.selections.iter().map(|selection| match selection {
            Selection::Path(column, path) if path.is_empty() => columns[*column].clone(),
            Selection::Time(column, path) if path.is_empty() => as_times(&columns[*column]),
            Selection::Path(column, path) => inside(&columns[*column], path),
            Selection::Time(column, path) => as_times(&inside(&columns[*column], path)),
            Selection::Whole => self.whole(&columns, rows),
            Selection::Nothing => Column::Null(rows),
        });
        SelectedRows {
            columns: columns.collect(),
            bad,
            good,
        }
    }

    /// The events of these columns; `line` numbers a row, and bad events are shown as JSON.
    pub(crate) fn events(
        &self,
        columns: Vec<Column>,
        rows: usize,
        bad: Vec<BadRow>,
        line: impl Fn(usize) -> u64,
    ) -> Events {
        let decoded = columns.clone();
        let selected = self.select(columns, rows, bad);
        let bad = selected.bad.into_iter().map(|bad| BadEvent {
            line: line(bad.row),
            kind: bad.kind,
            reason: bad.reason,
            text: self.shown(&decoded, bad.row),
        });
        let lines = selected.good.iter().map(|row| line(*row as usize));
        Events {
            rows: selected.good.len(),
            lines: lines.collect(),
            columns: selected.columns,
            bad: bad.collect(),
        }
    }

    /// The event as JSON, for displaying a bad one.
    fn shown(&self, columns: &[Column], row: usize) -> String {
        let record = self.record(columns, row, |column| self.needed[column]);
        let mut text = String::new();
        highwater_engine::eval::write_json(Value::Record(record.into()).view(), &mut text);
        crate::source::sample(text.as_bytes(), self.text_bytes_max)
    }

    fn record(&self, columns: &[Column], row: usize, keep: impl Fn(usize) -> bool) -> Record {
        let fields = self.names.iter().enumerate().filter(|(i, _)| keep(*i));
        let fields = fields.map(|(i, name)| (name.clone(), columns[i].get(row).to_value()));
        Record::from_fields(fields.collect())
    }

    fn whole(&self, columns: &[Column], rows: usize) -> Column {
        let records = (0..rows).map(|row| {
            let record = match &self.declared {
                None => self.record(columns, row, |_| true),
                Some(declared) => {
                    let value = |d: &DeclaredColumn| match d.column {
                        Some(column) => columns[column].get(row).to_value(),
                        None => Value::Null,
                    };
                    let fields = declared.iter().map(|d| (d.name.clone(), value(d)));
                    Record::from_fields(fields.collect())
                }
            };
            Value::Record(record.into())
        });
        Column::Dynamic(Arc::new(records.collect()))
    }

    fn apply_level(&self, column: &mut Column) {
        let legacy = match column {
            _ if self.level == Level::V1_2 => return,
            Column::Bit(_) => true,
            Column::Dynamic(_) => true,
            _ => false,
        };
        if legacy {
            let mut builder = ColumnBuilder::with_capacity(column.len());
            for row in 0..column.len() {
                builder.push_owned(self.legacy(column.get(row).to_value()));
            }
            *column = builder.finish();
        }
    }

    fn legacy(&self, value: Value) -> Value {
        match value {
            Value::Bit(bit) => Value::Int(bit.into()),
            Value::Record(record) => {
                let name = |name: &Arc<str>| match self.level {
                    Level::V1_0 => name.to_lowercase().into(),
                    _ => name.clone(),
                };
                let field = |(n, value): (&Arc<str>, &Value)| (name(n), self.legacy(value.clone()));
                let fields = record.iter().map(field);
                Value::Record(Record::from_fields(fields.collect()).into())
            }
            Value::Array(values) => {
                let values = values.iter().cloned().map(|value| self.legacy(value));
                Value::Array(values.collect())
            }
            other => other,
        }
    }

    /// NaN and the infinities are not values of SAQL; level 1.0 accepts them.
    fn find_non_finite_floats(&self, columns: &[Column], bad: &mut Vec<BadRow>) {
        if self.level == Level::V1_0 || self.from_text {
            return;
        }
        let needed = columns.iter().zip(&self.names).zip(&self.needed);
        for ((column, name), _) in needed.filter(|(_, needed)| **needed) {
            let suspect = match column {
                Column::Float(floats) => floats.values().iter().any(|value| !value.is_finite()),
                Column::Dynamic(_) => true,
                _ => false,
            };
            if !suspect {
                continue;
            }
            for row in (0..column.len()).filter(|row| is_non_finite(column.get(*row))) {
                bad.push(BadRow {
                    row,
                    kind: BadKind::InvalidData,
                    reason: format!("{name} holds NaN or infinity, which queries do not support"),
                });
            }
        }
    }

    fn conform(&self, columns: &mut [Column], rows: usize, bad: &mut Vec<BadRow>) {
        for declared in self.declared.iter().flatten() {
            let Some(column) = declared.column else {
                bad.extend((0..rows).map(|row| BadRow {
                    row,
                    kind: BadKind::MissingColumns,
                    reason: format!(
                        "the event lacks {}, which CREATE TABLE declares",
                        declared.name
                    ),
                }));
                continue;
            };
            if !is_plainly(&columns[column], declared.kind) {
                columns[column] = self.conformed(&columns[column], declared, bad);
            }
        }
    }

    fn conformed(
        &self,
        column: &Column,
        declared: &DeclaredColumn,
        bad: &mut Vec<BadRow>,
    ) -> Column {
        let mut builder = ColumnBuilder::with_capacity(column.len());
        for row in 0..column.len() {
            let value = column.get(row);
            let fitted = match value {
                ValueRef::Text(text) if self.from_text => {
                    parse(text, declared.kind, self.level).map(Some)
                }
                value => widen(value, declared.kind, self.level),
            };
            match fitted {
                Ok(Some(value)) => builder.push_owned(value),
                Ok(None) => builder.push(value),
                Err(found) => {
                    builder.push_null();
                    bad.push(BadRow {
                        row,
                        kind: BadKind::TypeConversion,
                        reason: format!(
                            "{} is declared as {}, but the event holds {found}",
                            declared.name,
                            declared.kind.name()
                        ),
                    });
                }
            }
        }
        builder.finish()
    }
}

/// The column of that exact name, or else the only one that is equal ignoring case.
fn find(names: &[Arc<str>], name: &str) -> Option<usize> {
    let exact = names.iter().position(|known| &**known == name);
    exact.or_else(|| {
        let mut alike = (0..names.len()).filter(|i| eq_ignore_case(&names[*i], name));
        let first = alike.next();
        first.filter(|_| alike.next().is_none())
    })
}

fn is_non_finite(value: ValueRef<'_>) -> bool {
    match value {
        ValueRef::Float(value) => !value.is_finite(),
        ValueRef::Record(record) => record.iter().any(|(_, value)| is_non_finite(value.view())),
        ValueRef::Array(values) => values.iter().any(|value| is_non_finite(value.view())),
        _ => false,
    }
}

fn is_plainly(column: &Column, declared: Type) -> bool {
    matches!(
        (column, declared),
        (Column::Null(_), _)
            | (Column::Int(_), Type::Bigint)
            | (Column::Float(_), Type::Float)
            | (Column::Text(_), Type::Text)
            | (Column::Time(_), Type::Datetime)
            | (Column::Bit(_), Type::Bit)
    )
}

fn inside(column: &Column, path: &[String]) -> Column {
    let mut builder = ColumnBuilder::with_capacity(column.len());
    for row in 0..column.len() {
        let mut value = column.get(row);
        for name in path {
            value = match value {
                ValueRef::Record(record) => record.get(name).map_or(ValueRef::Null, Value::view),
                _ => ValueRef::Null,
            };
        }
        builder.push(value);
    }
    builder.finish()
}

/// ISO text becomes a time; anything else stays as it is.
fn as_times(column: &Column) -> Column {
    if !matches!(column, Column::Text(_) | Column::Dynamic(_)) {
        return column.clone();
    }
    let mut builder = ColumnBuilder::with_capacity(column.len());
    for row in 0..column.len() {
        let value = column.get(row);
        let time = match value {
            ValueRef::Text(text) => Instant::parse_iso(text.as_bytes()),
            _ => None,
        };
        builder.push(time.map_or(value, ValueRef::Time));
    }
    builder.finish()
}
