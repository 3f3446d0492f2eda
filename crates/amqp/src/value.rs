//! Values of AMQP's type system.
//!
//! Texts and binaries borrow from the bytes they were decoded from, so that the properties of a message cost no
//! allocation.

use std::borrow::Cow;

use bytes::BytesMut;

use crate::decode::{DecodeError, Decoder};
use crate::encode::Encoder;

/// A value with its type: an `int` is not equal to a `long` of the same number.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value<'a> {
    #[default]
    Null,
    Bool(bool),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    F32(f32),
    F64(f64),
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    /// A Unicode code point, which need not be a valid one.
    Char(u32),
    /// Milliseconds since 1970.
    Timestamp(i64),
    Uuid([u8; 16]),
    Binary(Cow<'a, [u8]>),
    String(Cow<'a, str>),
    Symbol(Cow<'a, str>),
    List(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// Elements of one type.
    Array(Vec<Value<'a>>),
    /// Descriptor and value.
    Described(Box<(Value<'a>, Value<'a>)>),
}

impl<'a> Value<'a> {
    pub fn string(text: impl Into<Cow<'a, str>>) -> Value<'a> {
        Value::String(text.into())
    }

    pub fn symbol(text: impl Into<Cow<'a, str>>) -> Value<'a> {
        Value::Symbol(text.into())
    }

    /// The one value that `bytes` are.
    pub fn decode(bytes: &'a [u8]) -> Result<Value<'a>, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let value = decoder.value()?;
        decoder.end()?;
        Ok(value)
    }

    pub fn encode(&self, out: &mut BytesMut) {
        Encoder::new(out).value(self);
    }

    /// The text of a string or symbol.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::String(text) | Value::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an integer of any width.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::U8(number) => Some(number.into()),
            Value::U16(number) => Some(number.into()),
            Value::U32(number) => Some(number.into()),
            Value::U64(number) => i64::try_from(number).ok(),
            Value::I8(number) => Some(number.into()),
            Value::I16(number) => Some(number.into()),
            Value::I32(number) => Some(number.into()),
            Value::I64(number) => Some(number),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::List(elements) => Some(elements),
            _ => None,
        }
    }

    pub fn as_map(&self) -> Option<&[(Value<'a>, Value<'a>)]> {
        match self {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value under a key that is a string or symbol.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        lookup(self.as_map()?, key)
    }

    /// The value without its descriptors.
    pub fn undescribed(&self) -> &Value<'a> {
        let mut value = self;
        while let Value::Described(described) = value {
            value = &described.1;
        }
        value
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Value<'static> {
        let all = |values: Vec<Value<'_>>| values.into_iter().map(Value::into_owned).collect();
        match self {
            Value::Null => Value::Null,
            Value::Bool(v) => Value::Bool(v),
            Value::U8(v) => Value::U8(v),
            Value::U16(v) => Value::U16(v),
            Value::U32(v) => Value::U32(v),
            Value::U64(v) => Value::U64(v),
            Value::I8(v) => Value::I8(v),
            Value::I16(v) => Value::I16(v),
            Value::I32(v) => Value::I32(v),
            Value::I64(v) => Value::I64(v),
            Value::F32(v) => Value::F32(v),
            Value::F64(v) => Value::F64(v),
            Value::Decimal32(v) => Value::Decimal32(v),
            Value::Decimal64(v) => Value::Decimal64(v),
            Value::Decimal128(v) => Value::Decimal128(v),
            Value::Char(v) => Value::Char(v),
            Value::Timestamp(v) => Value::Timestamp(v),
            Value::Uuid(v) => Value::Uuid(v),
            Value::Binary(v) => Value::Binary(v.into_owned().into()),
            Value::String(v) => Value::String(v.into_owned().into()),
            Value::Symbol(v) => Value::Symbol(v.into_owned().into()),
            Value::List(v) => Value::List(all(v)),
            Value::Array(v) => Value::Array(all(v)),
            Value::Map(v) => Value::Map(own_entries(v)),
            Value::Described(v) => Value::Described(Box::new((v.0.into_owned(), v.1.into_owned()))),
        }
    }
}

pub(crate) fn own_entries(
    entries: Vec<(Value<'_>, Value<'_>)>,
) -> Vec<(Value<'static>, Value<'static>)> {
    let own = |(key, value): (Value<'_>, Value<'_>)| (key.into_owned(), value.into_owned());
    entries.into_iter().map(own).collect()
}

pub(crate) fn lookup<'v, 'a>(
    entries: &'v [(Value<'a>, Value<'a>)],
    key: &str,
) -> Option<&'v Value<'a>> {
    let entry = entries.iter().find(|entry| entry.0.as_text() == Some(key));
    entry.map(|(_, value)| value)
}
