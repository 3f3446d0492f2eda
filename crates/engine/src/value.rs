//! A value with its own type: the element of a dynamic column.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_time::Instant;

#[derive(Clone, Debug, Default)]
pub enum Value {
    #[default]
    Null,
    Bit(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    Time(Instant),
    Record(Arc<Record>),
    Array(Arc<[Value]>),
}

/// Named values in insertion order. Names are unique; of repeated JSON keys the last one wins.
#[derive(Clone, Debug, Default)]
pub struct Record {
    fields: Vec<(Arc<str>, Value)>,
}

/// A borrowed value, so that reading a typed column allocates nothing.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    Null,
    Bit(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Time(Instant),
    Record(&'a Arc<Record>),
    Array(&'a Arc<[Value]>),
}

impl Record {
    pub fn with_capacity(fields: usize) -> Record {
        Record {
            fields: Vec::with_capacity(fields),
        }
    }

    /// Of fields with the same name, the last value stays at the position of the first.
    pub fn from_fields(fields: Vec<(Arc<str>, Value)>) -> Record {
        /// From this many fields on, a hash table beats comparing names.
        const HASHED_FIELDS_MIN: usize = 16;
        if fields.len() < HASHED_FIELDS_MIN {
            let mut record = Record::with_capacity(fields.len());
            fields
                .into_iter()
                .for_each(|(name, value)| record.set(name, value));
            return record;
        }
        let mut positions: HashMap<Arc<str>, usize, FixedState> = HashMap::default();
        let mut record = Record::with_capacity(fields.len());
        for (name, value) in fields {
            match positions.get(&name) {
                Some(&position) => record.fields[position].1 = value,
                None => {
                    positions.insert(name.clone(), record.fields.len());
                    record.fields.push((name, value));
                }
            }
        }
        record
    }

    /// The field with exactly this name.
    pub fn get_exact(&self, name: &str) -> Option<&Value> {
        self.fields
            .iter()
            .find(|(known, _)| &**known == name)
            .map(|(_, value)| value)
    }

    /// Sets a field; an earlier field of the same name keeps its position and takes the new value.
    pub fn set(&mut self, name: Arc<str>, value: Value) {
        match self.fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.fields.push((name, value)),
        }
    }

    /// Adds the fields whose names are not in the record. The fields have different names.
    pub fn add(&mut self, fields: impl Iterator<Item = (Arc<str>, Value)>) {
        let before = self.fields.len();
        for (name, value) in fields {
            if self.fields[..before]
                .iter()
                .all(|(known, _)| *known != name)
            {
                self.fields.push((name, value));
            }
        }
    }

    /// The field with exactly this name, else the only one that matches ignoring case.
    pub fn get(&self, name: &str) -> Option<&Value> {
        if let Some(value) = self.get_exact(name) {
            return Some(value);
        }
        let mut alike = self
            .fields
            .iter()
            .filter(|(known, _)| eq_ignore_case(known, name));
        match (alike.next(), alike.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Value)> + Clone {
        self.fields.iter().map(|(name, value)| (name, value))
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// Compares names ignoring case.
pub fn eq_ignore_case(a: &str, b: &str) -> bool {
    if a.is_ascii() && b.is_ascii() {
        return a.eq_ignore_ascii_case(b);
    }
    a.chars()
        .flat_map(char::to_lowercase)
        .eq(b.chars().flat_map(char::to_lowercase))
}

impl Value {
    pub fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    pub fn view(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bit(b) => ValueRef::Bit(*b),
            Value::Int(i) => ValueRef::Int(*i),
            Value::Float(f) => ValueRef::Float(*f),
            Value::Text(t) => ValueRef::Text(t),
            Value::Time(t) => ValueRef::Time(*t),
            Value::Record(r) => ValueRef::Record(r),
            Value::Array(a) => ValueRef::Array(a),
        }
    }
}

impl ValueRef<'_> {
    pub fn is_null(self) -> bool {
        matches!(self, ValueRef::Null)
    }

    pub fn to_value(self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bit(b) => Value::Bit(b),
            ValueRef::Int(i) => Value::Int(i),
            ValueRef::Float(f) => Value::Float(f),
            ValueRef::Text(t) => Value::text(t),
            ValueRef::Time(t) => Value::Time(t),
            ValueRef::Record(r) => Value::Record(r.clone()),
            ValueRef::Array(a) => Value::Array(a.clone()),
        }
    }

    /// The type's name in SAQL.
    pub fn type_name(self) -> &'static str {
        match self {
            ValueRef::Null => "NULL",
            ValueRef::Bit(_) => "bit",
            ValueRef::Int(_) => "bigint",
            ValueRef::Float(_) => "float",
            ValueRef::Text(_) => "nvarchar(max)",
            ValueRef::Time(_) => "datetime",
            ValueRef::Record(_) => "record",
            ValueRef::Array(_) => "array",
        }
    }
}
