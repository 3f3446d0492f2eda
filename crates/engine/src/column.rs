//! Columns: typed when the data is, dynamic when it is not.
//!
//! A column of one chunk is an Arrow array if all its values have one type, and a list of [`Value`]s if they differ or
//! nest. Kernels use the typed representation where they can; a property test checks that both give the same results.
//! Records and arrays may also be left as they came until a step looks at them ([`LazyColumn`]).

use std::sync::Arc;

use arrow_array::{Array, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use highwater_time::Instant;

use crate::lazy::{HeldValue, LazyColumn, ReadNested, same_reader};
use crate::value::{Record, Value, ValueRef};

#[derive(Clone, Debug)]
pub enum Column {
    /// A number of NULLs.
    Null(usize),
    Bit(BooleanArray),
    Int(Int64Array),
    Float(Float64Array),
    Text(StringArray),
    /// Ticks of [`Instant`].
    Time(Int64Array),
    Dynamic(Arc<Vec<Value>>),
    /// Records, arrays and NULLs that are not put together yet.
    Lazy(LazyColumn),
}

impl Column {
    pub fn len(&self) -> usize {
        match self {
            Column::Null(n) => *n,
            Column::Bit(a) => a.len(),
            Column::Int(a) | Column::Time(a) => a.len(),
            Column::Float(a) => a.len(),
            Column::Text(a) => a.len(),
            Column::Dynamic(v) => v.len(),
            Column::Lazy(lazy) => lazy.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About the size of the values, at a cost that does not depend on their number: values of mixed types count with
    /// their fixed part only.
    pub(crate) fn approximate_bytes(&self) -> usize {
        if let Column::Lazy(lazy) = self {
            return lazy.approximate_bytes();
        }
        self.len()
            * match self {
                Column::Null(_) | Column::Bit(_) => 1,
                Column::Int(_) | Column::Float(_) | Column::Time(_) => size_of::<i64>(),
                Column::Text(_) => size_of::<i32>(),
                Column::Dynamic(_) | Column::Lazy(_) => size_of::<Value>(),
            }
            + match self {
                Column::Text(texts) => {
                    let offsets = texts.value_offsets();
                    (offsets[offsets.len() - 1] - offsets[0]) as usize
                }
                _ => 0,
            }
    }

    /// About the size of the value of a row.
    pub(crate) fn value_bytes(&self, row: usize) -> usize {
        size_of::<i64>()
            + match self {
                Column::Text(texts) => texts.value_length(row) as usize,
                Column::Lazy(lazy) => lazy.value_bytes(row),
                _ => 0,
            }
    }

    pub fn from_ints(values: Vec<i64>) -> Column {
        Column::Int(Int64Array::new(values.into(), None))
    }

    pub fn from_times(ticks: ScalarBuffer<i64>) -> Column {
        Column::Time(Int64Array::new(ticks, None))
    }

    /// A value repeated `n` times.
    pub fn repeat(value: ValueRef<'_>, n: usize) -> Column {
        let mut builder = ColumnBuilder::with_capacity(n);
        for _ in 0..n {
            builder.push(value);
        }
        builder.finish()
    }

    #[inline]
    pub fn get(&self, row: usize) -> ValueRef<'_> {
        match self {
            Column::Null(_) => ValueRef::Null,
            Column::Bit(a) if a.is_valid(row) => ValueRef::Bit(a.value(row)),
            Column::Int(a) if a.is_valid(row) => ValueRef::Int(a.value(row)),
            Column::Float(a) if a.is_valid(row) => ValueRef::Float(a.value(row)),
            Column::Text(a) if a.is_valid(row) => ValueRef::Text(a.value(row)),
            Column::Time(a) if a.is_valid(row) => ValueRef::Time(Instant::from_ticks(a.value(row))),
            Column::Dynamic(v) => v[row].view(),
            Column::Lazy(lazy) => lazy.values()[row].view(),
            _ => ValueRef::Null,
        }
    }

    /// The value of a row. Of values that are not put together yet only this one is.
    pub(crate) fn value(&self, row: usize) -> Value {
        match self {
            Column::Lazy(lazy) => lazy.value(row),
            other => other.get(row).to_value(),
        }
    }

    /// The value of a row as it is, to be kept.
    pub(crate) fn hold(&self, row: usize) -> HeldValue {
        match self {
            Column::Lazy(lazy) => lazy.hold(row),
            other => HeldValue::Value(other.get(row).to_value()),
        }
    }

    pub fn is_null(&self, row: usize) -> bool {
        match self {
            Column::Lazy(lazy) => lazy.is_null(row),
            other => other.get(row).is_null(),
        }
    }

    /// The same values in the dynamic representation, for tests that compare both.
    pub fn to_dynamic(&self) -> Column {
        Column::Dynamic(Arc::new(
            (0..self.len())
                .map(|row| self.get(row).to_value())
                .collect(),
        ))
    }

    pub fn slice(&self, start: usize, len: usize) -> Column {
        match self {
            Column::Null(_) => Column::Null(len),
            Column::Bit(a) => Column::Bit(a.slice(start, len)),
            Column::Int(a) => Column::Int(a.slice(start, len)),
            Column::Float(a) => Column::Float(a.slice(start, len)),
            Column::Text(a) => Column::Text(a.slice(start, len)),
            Column::Time(a) => Column::Time(a.slice(start, len)),
            Column::Dynamic(v) => Column::Dynamic(Arc::new(v[start..start + len].to_vec())),
            Column::Lazy(lazy) => lazy.slice(start, len),
        }
    }

    pub fn filter(&self, mask: &BooleanBuffer) -> Column {
        let rows: Vec<u32> = mask.set_indices().map(|row| row as u32).collect();
        self.take(&rows)
    }

    pub fn take(&self, rows: &[u32]) -> Column {
        // A short piece is copied all the same: it would keep the memory of all rows.
        if rows.len() * 2 > self.len() && rows.iter().zip(rows[0]..).all(|(&row, at)| row == at) {
            return self.slice(rows[0] as usize, rows.len());
        }
        let nulls = |n: Option<&NullBuffer>| {
            n.map(|n| NullBuffer::from_iter(rows.iter().map(|&r| n.is_valid(r as usize))))
        };
        let ints = |a: &Int64Array| {
            let values = a.values();
            Int64Array::new(
                rows.iter().map(|&r| values[r as usize]).collect(),
                nulls(a.nulls()),
            )
        };
        match self {
            Column::Null(_) => Column::Null(rows.len()),
            Column::Bit(a) => {
                let values = a.values();
                let bits = rows.iter().map(|&r| values.value(r as usize)).collect();
                Column::Bit(BooleanArray::new(bits, nulls(a.nulls())))
            }
            Column::Int(a) => Column::Int(ints(a)),
            Column::Time(a) => Column::Time(ints(a)),
            Column::Float(a) => {
                let values = a.values();
                let taken = rows.iter().map(|&r| values[r as usize]).collect();
                Column::Float(Float64Array::new(taken, nulls(a.nulls())))
            }
            Column::Text(a) => match take_text(a, rows, nulls(a.nulls())) {
                Some(taken) => Column::Text(taken),
                None => {
                    let mut builder = ColumnBuilder::with_capacity(rows.len());
                    for &row in rows {
                        builder.push(self.get(row as usize));
                    }
                    builder.finish()
                }
            },
            Column::Dynamic(v) => Column::Dynamic(Arc::new(
                rows.iter().map(|&r| v[r as usize].clone()).collect(),
            )),
            Column::Lazy(lazy) => lazy.take(rows),
        }
    }

    /// Whether every value is text.
    pub fn is_plain_text(&self) -> bool {
        matches!(self, Column::Text(texts) if texts.null_count() == 0)
    }

    /// Gathers rows (column, row) of several columns.
    pub fn interleave(columns: &[&Column], rows: &[(u32, u32)]) -> Column {
        if let [only] = columns {
            return only.take(&rows.iter().map(|&(_, row)| row).collect::<Vec<_>>());
        }
        if let Some(column) = interleave_plain(columns, rows) {
            return column;
        }
        let mut builder = ColumnBuilder::with_capacity(rows.len());
        for &(column, row) in rows {
            builder.push_from(columns[column as usize], row as usize);
        }
        builder.finish()
    }
}

/// The texts of rows; `None` if there is too much text for one array.
fn take_text(texts: &StringArray, rows: &[u32], nulls: Option<NullBuffer>) -> Option<StringArray> {
    let (from, all) = (texts.value_offsets(), texts.value_data());
    let mut offsets: Vec<i32> = Vec::with_capacity(rows.len() + 1);
    offsets.push(0);
    let mut end = 0_i32;
    for &row in rows {
        end = end.checked_add(from[row as usize + 1] - from[row as usize])?;
        offsets.push(end);
    }
    let mut bytes = Vec::with_capacity(end as usize);
    for &row in rows {
        let (start, end) = (from[row as usize] as usize, from[row as usize + 1] as usize);
        bytes.extend_from_slice(&all[start..end]);
    }
    let offsets = OffsetBuffer::new(offsets.into());
    Some(StringArray::new(offsets, bytes.into(), nulls))
}

/// The common case of [`Column::interleave`]: one type and no NULLs.
fn interleave_plain(columns: &[&Column], rows: &[(u32, u32)]) -> Option<Column> {
    fn gather<T: Copy>(parts: &[&[T]], rows: &[(u32, u32)]) -> Vec<T> {
        rows.iter()
            .map(|&(part, row)| parts[part as usize][row as usize])
            .collect()
    }
    macro_rules! gather_if_all {
        ($variant:ident, $array:ident) => {{
            let parts: Option<Vec<&[_]>> = columns
                .iter()
                .map(|column| match column {
                    Column::$variant(a) if a.null_count() == 0 => Some(&a.values()[..]),
                    _ => None,
                })
                .collect();
            parts.map(|p| Column::$variant($array::new(gather(&p, rows).into(), None)))
        }};
    }
    match columns.first()? {
        Column::Int(_) => gather_if_all!(Int, Int64Array),
        Column::Time(_) => gather_if_all!(Time, Int64Array),
        Column::Float(_) => gather_if_all!(Float, Float64Array),
        Column::Text(_) => interleave_text(columns, rows),
        _ => None,
    }
}

/// Text without NULLs. All lengths are read before any text is copied, so that cache misses overlap.
fn interleave_text(columns: &[&Column], rows: &[(u32, u32)]) -> Option<Column> {
    let parts: Option<Vec<&StringArray>> = columns
        .iter()
        .map(|column| match column {
            Column::Text(a) if a.null_count() == 0 => Some(a),
            _ => None,
        })
        .collect();
    let parts: Vec<(&[i32], &[u8])> = parts?
        .into_iter()
        .map(|part| (part.value_offsets(), part.value_data()))
        .collect();
    let mut offsets: Vec<i32> = Vec::with_capacity(rows.len() + 1);
    offsets.push(0);
    let mut end = 0_i32;
    for &(part, row) in rows {
        let from = parts[part as usize].0;
        end = end.checked_add(from[row as usize + 1] - from[row as usize])?;
        offsets.push(end);
    }
    let mut bytes = Vec::with_capacity(end as usize);
    for &(part, row) in rows {
        let (from, text) = parts[part as usize];
        bytes
            .extend_from_slice(&text[from[row as usize] as usize..from[row as usize + 1] as usize]);
    }
    let offsets = OffsetBuffer::new(offsets.into());
    Some(Column::Text(StringArray::new(offsets, bytes.into(), None)))
}

/// Builds a column value by value. The first value decides the type; a value of another type makes it dynamic.
#[derive(Debug)]
pub struct ColumnBuilder {
    values: Values,
    nulls: NullBufferBuilder,
    /// How many rows to allocate once the type is known.
    capacity: usize,
}

#[derive(Debug)]
enum Values {
    /// Only NULLs so far.
    Untyped,
    Bit(Vec<bool>),
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(TextValues),
    Time(Vec<i64>),
    Dynamic(Vec<Value>),
    /// The text of records and arrays.
    Nested(TextValues, &'static dyn ReadNested),
}

#[derive(Debug)]
struct TextValues {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
}

macro_rules! push_typed {
    ($name:ident, $variant:ident, $type:ty, $value:expr, $arg:ident) => {
        #[inline]
        pub fn $name(&mut self, $arg: $type) {
            match &mut self.values {
                Values::$variant(values) => {
                    values.push($arg);
                    self.nulls.append_non_null();
                }
                _ => self.push_other($value),
            }
        }
    };
}

impl Default for ColumnBuilder {
    fn default() -> ColumnBuilder {
        ColumnBuilder::with_capacity(0)
    }
}

impl ColumnBuilder {
    /// One for each of `width` columns.
    pub fn of_width(width: usize) -> Vec<ColumnBuilder> {
        std::iter::repeat_with(ColumnBuilder::default)
            .take(width)
            .collect()
    }

    pub fn with_capacity(rows: usize) -> ColumnBuilder {
        ColumnBuilder {
            values: Values::Untyped,
            nulls: NullBufferBuilder::new(rows),
            capacity: rows,
        }
    }

    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    push_typed!(push_bit, Bit, bool, ValueRef::Bit(value), value);
    push_typed!(push_int, Int, i64, ValueRef::Int(value), value);
    push_typed!(push_float, Float, f64, ValueRef::Float(value), value);

    #[inline]
    pub fn push_time(&mut self, value: Instant) {
        match &mut self.values {
            Values::Time(values) => {
                values.push(value.ticks());
                self.nulls.append_non_null();
            }
            _ => self.push_other(ValueRef::Time(value)),
        }
    }

    #[inline]
    pub fn push_text(&mut self, value: &str) {
        match &mut self.values {
            Values::Text(text) if text.fits(value) => {
                text.push(value);
                self.nulls.append_non_null();
            }
            _ => self.push_other(ValueRef::Text(value)),
        }
    }

    #[inline]
    pub fn push_null(&mut self) {
        match &mut self.values {
            Values::Untyped => {}
            Values::Bit(values) => values.push(false),
            Values::Int(values) | Values::Time(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Text(text) | Values::Nested(text, _) => text.push(""),
            Values::Dynamic(values) => values.push(Value::Null),
        }
        self.nulls.append_null();
    }

    pub fn push_record(&mut self, record: Record) {
        self.push_owned(Value::Record(Arc::new(record)));
    }

    /// Pushes a record or array that is still text, to be read by `reader`.
    #[inline]
    pub fn push_nested(&mut self, text: &str, reader: &'static dyn ReadNested) {
        match &mut self.values {
            Values::Nested(texts, known) if texts.fits(text) && same_reader(*known, reader) => {
                texts.push(text);
                self.nulls.append_non_null();
            }
            Values::Untyped if text.len() < i32::MAX as usize => {
                let texts = TextValues::of_nulls(self.nulls.len(), self.capacity);
                self.values = Values::Nested(texts, reader);
                self.push_nested(text, reader);
            }
            _ => self.push_owned(reader.read_one(text)),
        }
    }

    /// Pushes a row of a column, as it is.
    pub(crate) fn push_from(&mut self, column: &Column, row: usize) {
        match column {
            Column::Lazy(lazy) => lazy.push_to(row, self),
            other => self.push(other.get(row)),
        }
    }

    pub(crate) fn push_held(&mut self, held: &HeldValue) {
        match held {
            HeldValue::Value(value) => self.push_owned(value.clone()),
            HeldValue::Text(text, reader) => self.push_nested(text, *reader),
        }
    }

    pub fn push(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.push_null(),
            ValueRef::Bit(b) => self.push_bit(b),
            ValueRef::Int(i) => self.push_int(i),
            ValueRef::Float(f) => self.push_float(f),
            ValueRef::Text(t) => self.push_text(t),
            ValueRef::Time(t) => self.push_time(t),
            nested => self.push_owned(nested.to_value()),
        }
    }

    /// Like [`ColumnBuilder::push`], without copying a record or array.
    pub fn push_owned(&mut self, value: Value) {
        if matches!(value, Value::Record(_) | Value::Array(_)) {
            self.make_dynamic().push(value);
            self.nulls.append_non_null();
        } else {
            self.push(value.view());
        }
    }

    /// Pushes a value that the current representation cannot hold.
    #[cold]
    fn push_other(&mut self, value: ValueRef<'_>) {
        let (len, capacity) = (self.len(), self.capacity);
        match (&self.values, value) {
            (Values::Untyped, ValueRef::Bit(_)) => self.values = Values::Bit(filled(len, capacity)),
            (Values::Untyped, ValueRef::Int(_)) => self.values = Values::Int(filled(len, capacity)),
            (Values::Untyped, ValueRef::Float(_)) => {
                self.values = Values::Float(filled(len, capacity))
            }
            (Values::Untyped, ValueRef::Time(_)) => {
                self.values = Values::Time(filled(len, capacity))
            }
            (Values::Untyped, ValueRef::Text(t)) if t.len() < i32::MAX as usize => {
                self.values = Values::Text(TextValues::of_nulls(len, capacity));
            }
            _ => {
                self.make_dynamic().push(value.to_value());
                self.nulls.append_non_null();
                return;
            }
        }
        self.push(value);
    }

    fn make_dynamic(&mut self) -> &mut Vec<Value> {
        if !matches!(self.values, Values::Dynamic(_)) {
            let len = self.len();
            let typed = ColumnBuilder {
                values: std::mem::replace(&mut self.values, Values::Untyped),
                nulls: copy_nulls(&self.nulls),
                capacity: 0,
            }
            .finish();
            let values = (0..len).map(|row| typed.get(row).to_value()).collect();
            self.values = Values::Dynamic(values);
        }
        match &mut self.values {
            Values::Dynamic(values) => values,
            _ => unreachable!("the representation was just made dynamic"),
        }
    }

    pub fn finish(mut self) -> Column {
        let len = self.len();
        let nulls = self.nulls.finish();
        match self.values {
            Values::Untyped => Column::Null(len),
            Values::Bit(values) => Column::Bit(BooleanArray::new(values.into(), nulls)),
            Values::Int(values) => Column::Int(Int64Array::new(values.into(), nulls)),
            Values::Float(values) => Column::Float(Float64Array::new(values.into(), nulls)),
            Values::Time(values) => Column::Time(Int64Array::new(values.into(), nulls)),
            Values::Text(text) => Column::Text(StringArray::new(
                OffsetBuffer::new(text.offsets.into()),
                text.bytes.into(),
                nulls,
            )),
            Values::Dynamic(values) => Column::Dynamic(Arc::new(values)),
            Values::Nested(text, reader) => {
                let offsets = OffsetBuffer::new(text.offsets.into());
                let texts = StringArray::new(offsets, text.bytes.into(), nulls);
                Column::Lazy(LazyColumn::texts(texts, reader))
            }
        }
    }
}

impl TextValues {
    /// The placeholders of `len` NULLs.
    fn of_nulls(len: usize, capacity: usize) -> TextValues {
        TextValues {
            bytes: Vec::with_capacity(capacity * TEXT_BYTES_GUESS),
            offsets: filled(len + 1, capacity + 1),
        }
    }

    /// Offsets are 32 bits wide; a chunk with more text becomes dynamic.
    #[inline]
    fn fits(&self, value: &str) -> bool {
        self.bytes.len() + value.len() < i32::MAX as usize
    }

    #[inline]
    fn push(&mut self, value: &str) {
        self.bytes.extend_from_slice(value.as_bytes());
        self.offsets.push(self.bytes.len() as i32);
    }
}

/// The text per row to allocate.
const TEXT_BYTES_GUESS: usize = 16;

/// The placeholders of `len` NULLs.
fn filled<T: Default + Clone>(len: usize, capacity: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(capacity.max(len));
    values.resize(len, T::default());
    values
}

fn copy_nulls(nulls: &NullBufferBuilder) -> NullBufferBuilder {
    let mut copy = NullBufferBuilder::new(nulls.len());
    for row in 0..nulls.len() {
        copy.append(nulls.is_valid(row));
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(values: &[Value]) -> Column {
        let mut builder = ColumnBuilder::default();
        values.iter().for_each(|v| builder.push(v.view()));
        builder.finish()
    }

    #[test]
    fn one_type_gives_a_typed_column_and_two_give_a_dynamic_one() {
        let ints = built(&[Value::Null, Value::Int(7), Value::Null]);
        assert!(matches!(ints, Column::Int(_)));
        assert!(ints.is_null(0) && ints.is_null(2));
        assert!(matches!(ints.get(1), ValueRef::Int(7)));

        let mixed = built(&[Value::Null, Value::Int(7), Value::text("x"), Value::Null]);
        assert!(matches!(mixed, Column::Dynamic(_)));
        assert!(mixed.is_null(0) && mixed.is_null(3));
        assert!(matches!(mixed.get(1), ValueRef::Int(7)));
        assert!(matches!(mixed.get(2), ValueRef::Text("x")));
    }

    #[test]
    fn interleave_gathers_text_of_one_type_and_of_several() {
        let a = built(&[Value::text("x"), Value::text(""), Value::text("long")]);
        let b = built(&[Value::text("é")]).slice(0, 1);
        let rows = [(0, 2), (1, 0), (0, 1), (0, 0), (0, 2)];
        let both = Column::interleave(&[&a.slice(0, 3), &b], &rows);
        assert!(matches!(both, Column::Text(_)));
        let texts: Vec<String> = (0..5).map(|row| format!("{:?}", both.get(row))).collect();
        let expected = ["long", "é", "", "x", "long"].map(|text| format!("Text({text:?})"));
        assert_eq!(texts, expected);
    }

    #[test]
    fn interleave_gathers_across_representations() {
        let a = built(&[Value::Int(1), Value::Int(2)]);
        let b = built(&[Value::text("x")]);
        let both = Column::interleave(&[&a, &b], &[(1, 0), (0, 1), (0, 0)]);
        assert!(matches!(both.get(0), ValueRef::Text("x")));
        assert!(matches!(both.get(1), ValueRef::Int(2)));
        assert!(matches!(both.get(2), ValueRef::Int(1)));
    }
}
