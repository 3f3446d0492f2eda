//! Grouping keys as bytes: two values are in one group if and only if their bytes are equal.
//!
//! Equality is that of [`same`](super::same): numbers by value (1, 1.0 and bit 1 are one group), records regardless of
//! the order of their fields, NULL a group of its own, and no conversion between text, numbers and times. The bytes
//! delimit themselves, so the keys of several columns can be appended to each other. They are made for hashing and are
//! not in any order.

use highwater_time::Instant;

use crate::column::{Column, ColumnBuilder};
use crate::value::{Record, ValueRef};

use super::number::float_as_int;

const NULL: u8 = 0;
const INT: u8 = 1;
const FLOAT: u8 = 2;
const TEXT: u8 = 3;
const TIME: u8 = 4;
const RECORD: u8 = 5;
const ARRAY: u8 = 6;
/// Only in join keys, where text may equal a bit and no number.
const BIT: u8 = 7;

/// Appends the key of a value.
#[inline]
pub fn encode_key(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => out.push(NULL),
        ValueRef::Bit(b) => encode_int(INT, b.into(), out),
        ValueRef::Int(i) => encode_int(INT, i, out),
        ValueRef::Float(f) => match float_as_int(f) {
            Some(i) => encode_int(INT, i, out),
            None => encode_int(FLOAT, f.to_bits() as i64, out),
        },
        ValueRef::Time(t) => encode_int(TIME, t.ticks(), out),
        ValueRef::Text(t) => {
            out.push(TEXT);
            encode_text(t, out);
        }
        ValueRef::Record(record) => encode_record(record, out),
        ValueRef::Array(items) => {
            out.push(ARRAY);
            encode_len(items.len(), out);
            items.iter().for_each(|item| encode_key(item.view(), out));
        }
    }
}

/// Appends a bit that differs from the number.
pub(super) fn encode_bit(bit: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&[BIT, bit.into()]);
}

#[inline]
fn encode_int(tag: u8, value: i64, out: &mut Vec<u8>) {
    let mut bytes = [tag; 9];
    bytes[1..].copy_from_slice(&value.to_le_bytes());
    out.extend_from_slice(&bytes);
}

fn encode_text(text: &str, out: &mut Vec<u8>) {
    encode_len(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

fn encode_record(record: &Record, out: &mut Vec<u8>) {
    let mut fields: Vec<_> = record.iter().collect();
    fields.sort_unstable_by_key(|&(name, _)| name);
    out.push(RECORD);
    encode_len(fields.len(), out);
    for (name, value) in fields {
        encode_text(name, out);
        encode_key(value.view(), out);
    }
}

/// Whether [`decode_key`] restores the value: not for a bit, a float without fraction, a record or an array.
pub(crate) fn looks_usual(value: ValueRef<'_>) -> bool {
    match value {
        ValueRef::Null | ValueRef::Int(_) | ValueRef::Text(_) | ValueRef::Time(_) => true,
        ValueRef::Float(f) => float_as_int(f).is_none(),
        ValueRef::Bit(_) | ValueRef::Record(_) | ValueRef::Array(_) => false,
    }
}

/// Takes the first value off a key, in its default representation; NULL for values without one.
#[inline]
pub(crate) fn decode_key<'a>(key: &mut &'a [u8]) -> ValueRef<'a> {
    let Some((&tag, rest)) = key.split_first() else {
        return ValueRef::Null;
    };
    *key = rest;
    match tag {
        INT => ValueRef::Int(decode_int(key)),
        FLOAT => ValueRef::Float(f64::from_bits(decode_int(key) as u64)),
        TIME => ValueRef::Time(Instant::from_ticks(decode_int(key))),
        BIT => ValueRef::Bit(rest.first() == Some(&1)),
        TEXT => {
            let len = decode_len(key).min(key.len());
            let (text, rest) = key.split_at(len);
            *key = rest;
            std::str::from_utf8(text).map_or(ValueRef::Null, ValueRef::Text)
        }
        _ => ValueRef::Null,
    }
}

/// The value of a key of several at `index`; see [`decode_key`].
pub(crate) fn key_value(key: &[u8], index: usize) -> ValueRef<'_> {
    let mut rest = key;
    (0..index).for_each(|_| skip_value(&mut rest));
    decode_key(&mut rest)
}

/// The length of the first value of a key; at most that of the key, which is not empty.
pub(super) fn key_len(key: &[u8]) -> usize {
    let mut rest = key;
    skip_value(&mut rest);
    key.len() - rest.len()
}

fn skip_value(key: &mut &[u8]) {
    let Some((&tag, rest)) = key.split_first() else {
        return;
    };
    *key = rest;
    match tag {
        INT | FLOAT | TIME => skip(key, size_of::<i64>()),
        BIT => skip(key, 1),
        TEXT => skip_text(key),
        RECORD => {
            for _ in 0..decode_len(key).min(key.len()) {
                skip_text(key);
                skip_value(key);
            }
        }
        ARRAY => (0..decode_len(key).min(key.len())).for_each(|_| skip_value(key)),
        _ => {}
    }
}

fn skip_text(key: &mut &[u8]) {
    let len = decode_len(key);
    skip(key, len);
}

fn skip(key: &mut &[u8], bytes: usize) {
    *key = &key[bytes.min(key.len())..];
}

/// The first value of each key if it is text, else the value of `otherwise` in this row: only text is certain to be
/// restored.
pub fn key_texts<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>, otherwise: &Column) -> Column {
    let mut texts = ColumnBuilder::with_capacity(keys.len());
    for (row, mut key) in keys.enumerate() {
        match decode_key(&mut key) {
            ValueRef::Text(text) => texts.push_text(text),
            _ => texts.push(otherwise.get(row)),
        }
    }
    texts.finish()
}

fn decode_int(key: &mut &[u8]) -> i64 {
    match key.split_first_chunk() {
        Some((bytes, rest)) => {
            *key = rest;
            i64::from_le_bytes(*bytes)
        }
        None => 0,
    }
}

fn decode_len(key: &mut &[u8]) -> usize {
    let (mut len, mut shift) = (0usize, 0);
    while let Some((&byte, rest)) = key.split_first() {
        *key = rest;
        len |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
        shift += 7;
    }
    len
}

/// Seven bits a byte, the last one without the high bit.
fn encode_len(mut len: usize, out: &mut Vec<u8>) {
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::value::Value;

    fn key(value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        encode_key(value.view(), &mut out);
        out
    }

    fn record(fields: &[(&str, Value)]) -> Value {
        let mut record = Record::with_capacity(fields.len());
        fields
            .iter()
            .for_each(|(name, value)| record.set((*name).into(), value.clone()));
        Value::Record(Arc::new(record))
    }

    // proves S1
    #[test]
    fn equal_numbers_are_one_group_and_types_stay_apart() {
        let one = key(&Value::Int(1));
        assert_eq!(one, key(&Value::Float(1.0)));
        assert_eq!(one, key(&Value::Bit(true)));
        assert_eq!(key(&Value::Float(-0.0)), key(&Value::Int(0)));
        assert_ne!(one, key(&Value::text("1")));
        assert_ne!(one, key(&Value::Time(Instant::from_ticks(1))));
        let (large, rounded) = (9_007_199_254_740_993, 9_007_199_254_740_992.0);
        assert_ne!(key(&Value::Int(large)), key(&Value::Float(rounded)));
        assert_eq!(key(&Value::Null), key(&Value::Null));
    }

    #[test]
    fn usual_keys_are_read_back_as_they_were() {
        let values = [
            Value::Null,
            Value::Int(-7),
            Value::Float(2.5),
            Value::text(&"é".repeat(100)),
            Value::Time(Instant::from_ticks(12)),
            Value::text(""),
        ];
        let all: Vec<u8> = values.iter().flat_map(key).collect();
        let mut rest = &all[..];
        for value in &values {
            assert!(looks_usual(value.view()));
            assert_eq!(
                format!("{:?}", decode_key(&mut rest)),
                format!("{:?}", value.view())
            );
        }
        assert!(rest.is_empty());
        for value in [Value::Float(2.0), Value::Float(-0.0), Value::Bit(true)] {
            assert!(!looks_usual(value.view()));
        }
    }

    // proves S1
    #[test]
    fn records_are_one_group_whatever_the_order_of_fields() {
        let ab = record(&[("a", Value::Int(1)), ("b", Value::Null)]);
        let ba = record(&[("b", Value::Null), ("a", Value::Float(1.0))]);
        assert_eq!(key(&ab), key(&ba));
        assert_ne!(key(&ab), key(&record(&[("a", Value::Int(1))])));
    }

    // proves S1
    #[test]
    fn keys_of_several_columns_do_not_run_into_each_other() {
        let pair = |a: &str, b: &str| [key(&Value::text(a)), key(&Value::text(b))].concat();
        assert_ne!(pair("ab", "c"), pair("a", "bc"));
        assert_ne!(pair(&"x".repeat(200), ""), pair("", &"x".repeat(200)));
    }
}
