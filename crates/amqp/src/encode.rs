//! Encodes values at the end of a buffer.
//!
//! Lists and maps are written in their wide form: their size is filled in when they end, so nothing is measured before
//! it is written.

use bytes::{BufMut, BytesMut};

use crate::message::section;
use crate::value::Value;

pub struct Encoder<'a> {
    out: &'a mut BytesMut,
}

/// An open list, map or array, which [`Encoder::end`] closes.
#[must_use = "its size is written when it ends"]
pub struct Compound {
    /// The position of its size.
    position: usize,
}

impl<'a> Encoder<'a> {
    pub fn new(out: &'a mut BytesMut) -> Encoder<'a> {
        Encoder { out }
    }

    pub fn null(&mut self) {
        self.out.put_u8(0x40);
    }

    pub fn bool(&mut self, value: bool) {
        self.out.put_u8(if value { 0x41 } else { 0x42 });
    }

    pub(crate) fn ubyte(&mut self, value: u8) {
        self.out.put_slice(&[0x50, value]);
    }

    pub(crate) fn ushort(&mut self, value: u16) {
        self.out.put_u8(0x60);
        self.out.put_u16(value);
    }

    pub fn uint(&mut self, value: u32) {
        match value {
            0 => self.out.put_u8(0x43),
            1..0x100 => self.out.put_slice(&[0x52, value as u8]),
            _ => {
                self.out.put_u8(0x70);
                self.out.put_u32(value);
            }
        }
    }

    pub fn ulong(&mut self, value: u64) {
        match value {
            0 => self.out.put_u8(0x44),
            1..0x100 => self.out.put_slice(&[0x53, value as u8]),
            _ => {
                self.out.put_u8(0x80);
                self.out.put_u64(value);
            }
        }
    }

    pub fn int(&mut self, value: i32) {
        match i8::try_from(value) {
            Ok(small) => self.out.put_slice(&[0x54, small as u8]),
            Err(_) => {
                self.out.put_u8(0x71);
                self.out.put_i32(value);
            }
        }
    }

    pub fn long(&mut self, value: i64) {
        match i8::try_from(value) {
            Ok(small) => self.out.put_slice(&[0x55, small as u8]),
            Err(_) => {
                self.out.put_u8(0x81);
                self.out.put_i64(value);
            }
        }
    }

    pub fn timestamp(&mut self, unix_ms: i64) {
        self.out.put_u8(0x83);
        self.out.put_i64(unix_ms);
    }

    pub fn binary(&mut self, bytes: &[u8]) {
        self.sized(0xa0, bytes);
    }

    pub fn string(&mut self, text: &str) {
        self.sized(0xa1, text.as_bytes());
    }

    pub fn symbol(&mut self, text: &str) {
        self.sized(0xa3, text.as_bytes());
    }

    /// `narrow` is the constructor with a length of one byte; the one with four bytes is 0x10 above it.
    fn sized(&mut self, narrow: u8, bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(length) => self.out.put_slice(&[narrow, length]),
            Err(_) => {
                self.out.put_u8(narrow + 0x10);
                self.length(bytes.len());
            }
        }
        self.out.put_slice(bytes);
    }

    fn length(&mut self, length: usize) {
        let length = u32::try_from(length).expect("a message is shorter than 4 GiB");
        self.out.put_u32(length);
    }

    pub fn list(&mut self) -> Compound {
        self.begin(0xd0)
    }

    pub fn map(&mut self) -> Compound {
        self.begin(0xd1)
    }

    fn begin(&mut self, constructor: u8) -> Compound {
        self.out.put_u8(constructor);
        let position = self.out.len();
        self.out.put_u64(0);
        Compound { position }
    }

    /// Closes a list of `count` elements, or a map of so many keys and values.
    pub fn end(&mut self, compound: Compound, count: usize) {
        let position = compound.position;
        let size = u32::try_from(self.out.len() - position - 4);
        let size = size.expect("a message is shorter than 4 GiB");
        let count = u32::try_from(count).expect("an element takes a byte");
        self.out[position..position + 4].copy_from_slice(&size.to_be_bytes());
        self.out[position + 4..position + 8].copy_from_slice(&count.to_be_bytes());
    }

    /// The descriptor of the value that follows.
    pub fn descriptor(&mut self, code: u64) {
        self.out.put_u8(0);
        self.ulong(code);
    }

    /// A body section with binary data.
    pub fn data_section(&mut self, bytes: &[u8]) {
        self.descriptor(section::DATA);
        self.binary(bytes);
    }

    pub fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.null(),
            Value::Bool(value) => self.bool(*value),
            Value::U8(value) => self.ubyte(*value),
            Value::U16(value) => self.ushort(*value),
            Value::U32(value) => self.uint(*value),
            Value::U64(value) => self.ulong(*value),
            Value::I32(value) => self.int(*value),
            Value::I64(value) => self.long(*value),
            Value::Timestamp(value) => self.timestamp(*value),
            Value::Binary(value) => self.binary(value),
            Value::String(value) => self.string(value),
            Value::Symbol(value) => self.symbol(value),
            Value::List(elements) => {
                let list = self.list();
                elements.iter().for_each(|element| self.value(element));
                self.end(list, elements.len());
            }
            Value::Map(entries) => {
                let map = self.map();
                for (key, value) in entries {
                    self.value(key);
                    self.value(value);
                }
                self.end(map, entries.len() * 2);
            }
            Value::Array(elements) => self.array(elements),
            Value::Described(described) => {
                self.out.put_u8(0);
                self.value(&described.0);
                self.value(&described.1);
            }
            fixed => {
                self.out.put_u8(constructor(fixed));
                self.body(fixed);
            }
        }
    }

    /// An array, or a list if the elements have several types.
    fn array(&mut self, elements: &[Value<'_>]) {
        let code = elements.first().map_or(0x40, constructor);
        if code == 0 || elements.iter().any(|element| constructor(element) != code) {
            return self.value(&Value::List(elements.to_vec()));
        }
        let array = self.begin(0xf0);
        self.out.put_u8(code);
        elements.iter().for_each(|element| self.body(element));
        self.end(array, elements.len());
    }

    /// A value without its constructor, in the form of [`constructor`].
    fn body(&mut self, value: &Value<'_>) {
        match value {
            Value::Null | Value::Described(_) => {}
            Value::Bool(value) => self.out.put_u8((*value).into()),
            Value::U8(value) => self.out.put_u8(*value),
            Value::U16(value) => self.out.put_u16(*value),
            Value::U32(value) | Value::Char(value) => self.out.put_u32(*value),
            Value::U64(value) => self.out.put_u64(*value),
            Value::I8(value) => self.out.put_i8(*value),
            Value::I16(value) => self.out.put_i16(*value),
            Value::I32(value) => self.out.put_i32(*value),
            Value::I64(value) | Value::Timestamp(value) => self.out.put_i64(*value),
            Value::F32(value) => self.out.put_f32(*value),
            Value::F64(value) => self.out.put_f64(*value),
            Value::Decimal32(value) => self.out.put_slice(value),
            Value::Decimal64(value) => self.out.put_slice(value),
            Value::Decimal128(value) | Value::Uuid(value) => self.out.put_slice(value),
            Value::Binary(value) => self.wide(value),
            Value::String(value) | Value::Symbol(value) => self.wide(value.as_bytes()),
            Value::List(_) | Value::Map(_) | Value::Array(_) => {
                // The wide form, without the constructor that it starts with.
                let mut whole = BytesMut::new();
                Encoder::new(&mut whole).value(value);
                self.out.put_slice(&whole[1..]);
            }
        }
    }

    fn wide(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.out.put_slice(bytes);
    }
}

/// The constructor of an array element: the widest of its type, or 0 if an array cannot hold it.
fn constructor(value: &Value<'_>) -> u8 {
    match value {
        Value::Null => 0x40,
        Value::Bool(_) => 0x56,
        Value::U8(_) => 0x50,
        Value::U16(_) => 0x60,
        Value::U32(_) => 0x70,
        Value::U64(_) => 0x80,
        Value::I8(_) => 0x51,
        Value::I16(_) => 0x61,
        Value::I32(_) => 0x71,
        Value::I64(_) => 0x81,
        Value::F32(_) => 0x72,
        Value::F64(_) => 0x82,
        Value::Decimal32(_) => 0x74,
        Value::Decimal64(_) => 0x84,
        Value::Decimal128(_) => 0x94,
        Value::Char(_) => 0x73,
        Value::Timestamp(_) => 0x83,
        Value::Uuid(_) => 0x98,
        Value::Binary(_) => 0xb0,
        Value::String(_) => 0xb1,
        Value::Symbol(_) => 0xb3,
        Value::List(_) => 0xd0,
        Value::Map(_) => 0xd1,
        // An array of arrays may be written as a list, which has another constructor.
        Value::Array(_) | Value::Described(_) => 0,
    }
}
