//! Records and arrays that are put together only when a step looks at them.
//!
//! A record costs an allocation for itself, one for its fields and one for each text among them, and most steps only
//! carry records or look at a few fields. So a source may leave them as text ([`ReadNested`]), and an operator that
//! makes them of columns leaves them as columns. Taking rows, following a path and keeping a single row need nothing
//! more; everything else sees the values of the whole column, which are made once.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use arrow_array::StringArray;
use arrow_buffer::{BooleanBuffer, NullBuffer};

use crate::column::{Column, ColumnBuilder};
use crate::lazy_texts::{LazyTexts, NestedTexts};
use crate::value::{Record, Value, eq_ignore_case};

/// Reads records and arrays that are still text. A text is valid, and is the whole of a record or an array.
pub trait ReadNested: Debug + Send + Sync {
    fn read_one(&self, text: &str) -> Value;

    /// Whether the text is a record; otherwise it is an array.
    fn is_record(&self, text: &str) -> bool;

    /// For each path of names, the values there inside of each text, found as [`Record::get`] finds them; NULL where
    /// there is no text.
    fn follow(&self, texts: NestedTexts<'_>, paths: &[&[&str]]) -> Vec<Column>;

    /// Appends where the elements of an array start and end in the text, and returns their number; `None`, with nothing
    /// appended, if some are neither records nor arrays, or the text is a record.
    fn pieces(&self, text: &str, out: &mut NestedPieces) -> Option<usize>;

    /// Appends the elements of an array and returns their number; `None` if the text is a record.
    fn elements(&self, text: &str, out: &mut ColumnBuilder) -> Option<usize>;

    /// The text of an array of records of `rank`, from 1, and `value`.
    fn ranked(&self, values: &mut dyn Iterator<Item = &str>) -> String;
}

/// Pieces of a text.
#[derive(Debug)]
pub struct NestedPieces {
    starts: Vec<i32>,
    ends: Vec<i32>,
    /// Where the text of the next pieces starts.
    base: i32,
}

impl NestedPieces {
    /// Allocates for that many pieces.
    pub fn with_capacity(pieces: usize) -> NestedPieces {
        NestedPieces {
            starts: Vec::with_capacity(pieces),
            ends: Vec::with_capacity(pieces),
            base: 0,
        }
    }

    #[inline]
    pub fn push(&mut self, start: usize, end: usize) {
        self.starts.push(self.base + start as i32);
        self.ends.push(self.base + end as i32);
    }

    /// Removes the last pieces.
    pub fn remove_last(&mut self, count: usize) {
        let left = self.starts.len() - count;
        self.starts.truncate(left);
        self.ends.truncate(left);
    }
}

/// A column of records, arrays and NULLs. Clones share the values once they are made.
#[derive(Clone, Debug)]
pub struct LazyColumn(Arc<Lazy>);

#[derive(Debug)]
struct Lazy {
    parts: Parts,
    values: OnceLock<Vec<Value>>,
    followed: OnceLock<FollowedPaths>,
}

/// Paths that were followed together, and their values.
type FollowedPaths = Vec<(Vec<String>, Column)>;

#[derive(Debug)]
enum Parts {
    Texts(LazyTexts, &'static dyn ReadNested),
    Columns {
        /// Of the fields of records; `None` for arrays.
        names: Option<Arc<[Arc<str>]>>,
        columns: Vec<Column>,
        /// The rows that are not NULL; `None` for all.
        present: Option<BooleanBuffer>,
        rows: usize,
    },
}

/// One value of a column, kept for longer than the column.
#[derive(Clone, Debug)]
pub(crate) enum HeldValue {
    Value(Value),
    Text(Arc<str>, &'static dyn ReadNested),
}

impl HeldValue {
    pub(crate) fn to_value(&self) -> Value {
        match self {
            HeldValue::Value(value) => value.clone(),
            HeldValue::Text(text, reader) => reader.read_one(text),
        }
    }

    pub(crate) fn text(&self) -> Option<(&str, &'static dyn ReadNested)> {
        match self {
            HeldValue::Text(text, reader) => Some((text, *reader)),
            HeldValue::Value(_) => None,
        }
    }

    /// About the size of the text.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text().map_or(0, |(text, _)| text.len())
    }
}

/// Whether two texts are read alike.
pub(crate) fn same_reader(a: &'static dyn ReadNested, b: &'static dyn ReadNested) -> bool {
    std::ptr::addr_eq(a, b)
}

impl LazyColumn {
    fn new(parts: Parts) -> LazyColumn {
        LazyColumn(Arc::new(Lazy {
            parts,
            values: OnceLock::new(),
            followed: OnceLock::new(),
        }))
    }

    pub(crate) fn texts(texts: StringArray, reader: &'static dyn ReadNested) -> LazyColumn {
        LazyColumn::new(Parts::Texts(LazyTexts::of(texts), reader))
    }

    /// Records with these fields in every row.
    pub(crate) fn records(names: Arc<[Arc<str>]>, columns: Vec<Column>, rows: usize) -> LazyColumn {
        LazyColumn::new(Parts::Columns {
            names: Some(names),
            columns,
            present: None,
            rows,
        })
    }

    /// Arrays of one value of each column; NULL in rows that are not `present`.
    pub(crate) fn arrays(
        columns: Vec<Column>,
        present: Option<BooleanBuffer>,
        rows: usize,
    ) -> LazyColumn {
        LazyColumn::new(Parts::Columns {
            names: None,
            columns,
            present,
            rows,
        })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0.parts {
            Parts::Texts(texts, _) => texts.len(),
            Parts::Columns { rows, .. } => *rows,
        }
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        match &self.0.parts {
            Parts::Texts(texts, _) => texts.is_null(row),
            Parts::Columns { present, .. } => present.as_ref().is_some_and(|p| !p.value(row)),
        }
    }

    /// Whether every row is known to be a record without reading it.
    pub(crate) fn is_records(&self) -> bool {
        match &self.0.parts {
            Parts::Texts(texts, reader) => {
                let mut rows = 0..texts.len();
                !texts.has_nulls() && rows.all(|row| reader.is_record(texts.value(row)))
            }
            Parts::Columns { names, present, .. } => names.is_some() && present.is_none(),
        }
    }

    /// The values of all rows.
    pub(crate) fn values(&self) -> &[Value] {
        let make = || (0..self.len()).map(|row| self.make(row)).collect();
        self.0.values.get_or_init(make)
    }

    /// The value of one row, without making the others.
    pub(crate) fn value(&self, row: usize) -> Value {
        match self.0.values.get() {
            Some(values) => values[row].clone(),
            None => self.make(row),
        }
    }

    fn make(&self, row: usize) -> Value {
        if self.is_null(row) {
            return Value::Null;
        }
        match &self.0.parts {
            Parts::Texts(texts, reader) => reader.read_one(texts.value(row)),
            Parts::Columns { names, columns, .. } => {
                let values = columns.iter().map(|column| column.value(row));
                match names {
                    None => Value::Array(values.collect()),
                    Some(names) => {
                        let fields = names.iter().cloned().zip(values);
                        Value::Record(Arc::new(Record::from_fields(fields.collect())))
                    }
                }
            }
        }
    }

    /// The text of a row, if it is still one.
    #[inline]
    pub fn text(&self, row: usize) -> Option<(&str, &'static dyn ReadNested)> {
        match &self.0.parts {
            Parts::Texts(texts, reader) if !texts.is_null(row) => Some((texts.value(row), *reader)),
            _ => None,
        }
    }

    /// Appends where the elements of an array that is still text start and end; see [`ReadNested::pieces`].
    pub(crate) fn pieces(&self, row: usize, out: &mut NestedPieces) -> Option<usize> {
        let (text, reader) = self.text(row)?;
        if let Parts::Texts(texts, _) = &self.0.parts {
            out.base = texts.start(row);
        }
        reader.pieces(text, out)
    }

    /// Appends the pieces of these texts to a column.
    pub(crate) fn push_pieces(&self, pieces: &NestedPieces, out: &mut ColumnBuilder) {
        if let Parts::Texts(texts, reader) = &self.0.parts {
            let all = texts.all().all();
            for (start, end) in pieces.starts.iter().zip(&pieces.ends) {
                out.push_nested(&all[*start as usize..*end as usize], *reader);
            }
        }
    }

    /// The pieces of these texts as a column.
    pub(crate) fn cut(&self, pieces: NestedPieces) -> Column {
        let Parts::Texts(texts, reader) = &self.0.parts else {
            return Column::Null(pieces.starts.len());
        };
        let pieces = texts.pieces(pieces.starts, pieces.ends);
        Column::Lazy(LazyColumn::new(Parts::Texts(pieces, *reader)))
    }

    pub(crate) fn hold(&self, row: usize) -> HeldValue {
        match (self.0.values.get(), self.text(row)) {
            (None, Some((text, reader))) => HeldValue::Text(text.into(), reader),
            _ => HeldValue::Value(self.value(row)),
        }
    }

    /// The columns of arrays, and the rows that are not NULL.
    pub(crate) fn array_columns(&self) -> Option<(&[Column], Option<&BooleanBuffer>)> {
        match &self.0.parts {
            Parts::Columns {
                names: None,
                columns,
                present,
                ..
            } => Some((columns, present.as_ref())),
            _ => None,
        }
    }

    /// Follows several paths in one pass over the texts, for [`LazyColumn::follow`] to find.
    pub(crate) fn prepare(&self, paths: &[&[&str]]) {
        match &self.0.parts {
            Parts::Texts(texts, reader) => {
                if paths.len() > 1 && self.0.values.get().is_none() {
                    self.0.followed.get_or_init(|| {
                        let found = reader.follow(texts.all(), paths);
                        let owned = |path: &&[&str]| path.iter().map(|&name| name.into()).collect();
                        paths.iter().map(owned).zip(found).collect()
                    });
                }
            }
            Parts::Columns {
                names: Some(names),
                columns,
                ..
            } => {
                for (field, column) in columns.iter().enumerate() {
                    if let Column::Lazy(inner) = column {
                        let inside = |path: &&[&str]| position(names, path[0]) == Some(field);
                        let paths = paths.iter().filter(|path| path.len() > 1 && inside(path));
                        let paths: Vec<&[&str]> = paths.map(|path| &path[1..]).collect();
                        inner.prepare(&paths);
                    }
                }
            }
            Parts::Columns { names: None, .. } => {}
        }
    }

    /// The values at a path of names; `None` if the values of the rows must be looked at for it.
    pub(crate) fn follow(&self, path: &[&str]) -> Option<Column> {
        let (name, rest) = path.split_first()?;
        match &self.0.parts {
            Parts::Texts(texts, reader) => {
                let known = self.0.followed.get().into_iter().flatten();
                let mut known = known.filter(|(known, _)| known == path);
                match (known.next(), self.0.values.get()) {
                    (Some((_, found)), _) => Some(found.clone()),
                    (None, None) => reader.follow(texts.all(), &[path]).pop(),
                    (None, Some(_)) => None,
                }
            }
            Parts::Columns {
                names: Some(names),
                columns,
                present: None,
                rows,
            } => {
                let Some(field) = position(names, name) else {
                    return Some(Column::Null(*rows));
                };
                match (&columns[field], rest) {
                    (column, []) => Some(column.clone()),
                    (Column::Lazy(inner), rest) => inner.follow(rest),
                    (Column::Dynamic(_), _) => None,
                    _ => Some(Column::Null(*rows)),
                }
            }
            Parts::Columns { .. } => None,
        }
    }

    pub(crate) fn slice(&self, start: usize, len: usize) -> Column {
        if let Some(values) = self.0.values.get() {
            return Column::Dynamic(Arc::new(values[start..start + len].to_vec()));
        }
        let parts = match &self.0.parts {
            Parts::Texts(texts, reader) => Parts::Texts(texts.slice(start, len), *reader),
            Parts::Columns {
                names,
                columns,
                present,
                ..
            } => Parts::Columns {
                names: names.clone(),
                columns: columns.iter().map(|c| c.slice(start, len)).collect(),
                present: present.as_ref().map(|present| present.slice(start, len)),
                rows: len,
            },
        };
        Column::Lazy(LazyColumn::new(parts))
    }

    pub(crate) fn take(&self, taken: &[u32]) -> Column {
        if let Some(values) = self.0.values.get() {
            let values = taken.iter().map(|&row| values[row as usize].clone());
            return Column::Dynamic(Arc::new(values.collect()));
        }
        match &self.0.parts {
            Parts::Texts(texts, reader) => {
                if let Some(texts) = texts.take(taken) {
                    return Column::Lazy(LazyColumn::new(Parts::Texts(texts, *reader)));
                }
                let mut builder = ColumnBuilder::with_capacity(taken.len());
                for &row in taken {
                    self.push_to(row as usize, &mut builder);
                }
                builder.finish()
            }
            Parts::Columns {
                names,
                columns,
                present,
                ..
            } => Column::Lazy(LazyColumn::new(Parts::Columns {
                names: names.clone(),
                columns: columns.iter().map(|column| column.take(taken)).collect(),
                present: present.as_ref().map(|present| {
                    let present = taken.iter().map(|&row| present.value(row as usize));
                    present.collect()
                }),
                rows: taken.len(),
            })),
        }
    }

    /// Appends one row to a column.
    pub(crate) fn push_to(&self, row: usize, out: &mut ColumnBuilder) {
        match (self.0.values.get(), self.text(row)) {
            (None, Some((text, reader))) => out.push_nested(text, reader),
            _ => out.push_owned(self.value(row)),
        }
    }

    pub(crate) fn approximate_bytes(&self) -> usize {
        match &self.0.parts {
            Parts::Texts(texts, _) => texts.bytes() + texts.len() * 2 * size_of::<i32>(),
            Parts::Columns { columns, .. } => columns.iter().map(Column::approximate_bytes).sum(),
        }
    }

    pub(crate) fn value_bytes(&self, row: usize) -> usize {
        match &self.0.parts {
            Parts::Texts(texts, _) => texts.value_bytes(row),
            Parts::Columns { columns, .. } => {
                columns.iter().map(|column| column.value_bytes(row)).sum()
            }
        }
    }

    /// The rows that are not NULL; `None` for all.
    pub(crate) fn present(&self) -> Option<BooleanBuffer> {
        match &self.0.parts {
            Parts::Texts(texts, _) => texts
                .nulls()
                .filter(|nulls| nulls.null_count() > 0)
                .map(|nulls: &NullBuffer| nulls.inner().clone()),
            Parts::Columns { present, .. } => present.clone(),
        }
    }
}

/// The field of this name, else the only one that matches ignoring case.
fn position(names: &[Arc<str>], name: &str) -> Option<usize> {
    if let Some(exact) = names.iter().position(|known| &**known == name) {
        return Some(exact);
    }
    let mut alike = (0..names.len()).filter(|&at| eq_ignore_case(&names[at], name));
    match (alike.next(), alike.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}
