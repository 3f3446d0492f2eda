//! Join keys: values that `=` finds equal must meet in a hash table, although it converts text.
//!
//! A key is stored as its exact value, an [`encode_key`] that tells bits from numbers. Equality with conversion is no
//! equivalence: the texts `1` and `1.0` both equal the number 1, but not each other. So every key has a *class*, shared
//! by all keys that may equal it: text that reads as a number has the class of the number, and ISO text that of the
//! time. Keys are hashed by class ([`append_class`]), and two keys of a class are compared with [`keys_equal`]. Most
//! keys are *plain*: they are their class, and no other key equals them but a converted one.
//!
//! A time at midnight has the class of the number `yyyymmdd`, because the text of such a number is a date as well.

use highwater_time::Instant;

use crate::value::ValueRef;

use super::compare::equal;
use super::key::{decode_key, encode_key, key_len};
use super::number::{Number, read_bit};

/// Appends the key of a value that is not NULL. Returns whether it is plain.
#[inline]
pub(crate) fn encode_join_key(value: ValueRef<'_>, out: &mut Vec<u8>) -> bool {
    match value {
        ValueRef::Bit(bit) => {
            super::key::encode_bit(bit, out);
            false
        }
        ValueRef::Text(text) => {
            encode_key(value, out);
            converted(text).is_none()
        }
        ValueRef::Time(time) => {
            encode_key(value, out);
            date_number(time).is_none()
        }
        _ => {
            encode_key(value, out);
            true
        }
    }
}

/// Appends the class of a key, which may be of several columns.
pub(crate) fn append_class(mut key: &[u8], out: &mut Vec<u8>) {
    while !key.is_empty() {
        let (first, rest) = key.split_at(key_len(key));
        key = rest;
        match class(decode_key(&mut { first })) {
            Some(class) => encode_key(class, out),
            None => out.extend_from_slice(first),
        }
    }
}

/// Whether two keys of the same columns have the same class. `a` may be followed by other bytes.
pub(crate) fn same_class(a: &[u8], b: &[u8]) -> bool {
    a.starts_with(b) || same_converted_class(a, b)
}

#[cold]
fn same_converted_class(a: &[u8], b: &[u8]) -> bool {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    append_class(first_columns(a, b), &mut of_a);
    append_class(b, &mut of_b);
    of_a == of_b
}

/// Whether two keys of the same columns are equal under `=`, text that cannot be converted being equal to nothing. `a`
/// may be followed by other bytes.
pub(crate) fn keys_equal(a: &[u8], b: &[u8]) -> bool {
    a.starts_with(b) || converted_keys_equal(a, b)
}

fn converted_keys_equal(mut a: &[u8], mut b: &[u8]) -> bool {
    while !b.is_empty() {
        let ((first_a, rest_a), (first_b, rest_b)) =
            (a.split_at(key_len(a)), b.split_at(key_len(b)));
        (a, b) = (rest_a, rest_b);
        let same = first_a == first_b
            || matches!(
                equal(decode_key(&mut { first_a }), decode_key(&mut { first_b })),
                Ok(Some(true))
            );
        if !same {
            return false;
        }
    }
    true
}

/// The part of `a` that has as many columns as `b`.
fn first_columns<'a>(a: &'a [u8], mut b: &[u8]) -> &'a [u8] {
    let mut len = 0;
    while !b.is_empty() {
        b = &b[key_len(b)..];
        len += key_len(&a[len..]);
    }
    &a[..len]
}

/// The class of a value that is not plain.
fn class(value: ValueRef<'_>) -> Option<ValueRef<'static>> {
    match value {
        ValueRef::Text(text) => converted(text),
        ValueRef::Bit(bit) => Some(ValueRef::Int(bit.into())),
        ValueRef::Time(time) => date_number(time),
        _ => None,
    }
}

/// The class of a text that equals other values than itself.
fn converted(text: &str) -> Option<ValueRef<'static>> {
    let start = text.trim_start().bytes().next();
    match start? {
        b'0'..=b'9' | b'+' | b'-' | b'.' => {
            let number = Number::read(text).map(|number| match number {
                Number::Int(int) => ValueRef::Int(int),
                Number::Float(float) => ValueRef::Float(float),
            });
            number.or_else(|| {
                let time = Instant::parse_iso(text.as_bytes())?;
                Some(date_number(time).unwrap_or(ValueRef::Time(time)))
            })
        }
        b't' | b'T' | b'f' | b'F' => read_bit(text).map(|bit| ValueRef::Int(bit.into())),
        _ => None,
    }
}

/// The number of a date, for a time at midnight.
fn date_number(time: Instant) -> Option<ValueRef<'static>> {
    (time.time_of_day().ticks() == 0).then(|| {
        let (year, month, day) = time.civil();
        ValueRef::Int(i64::from(year) * 10_000 + i64::from(month) * 100 + i64::from(day))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let texts = [
            "1",
            "1.0",
            " 1",
            "01",
            "1e0",
            "true",
            "TRUE",
            "false",
            "0",
            "-0.0",
            "one",
            "",
            "20260302",
            "2026-03-02",
            "2026-03-02T00:00:00Z",
            "2026-03-02T01:00:00+01:00",
            "2026-03-02T10:00Z",
            "9007199254740993",
            "0.1",
            "t",
        ];
        let day = Instant::parse_iso(b"2026-03-02").expect("a date");
        let hour = Instant::parse_iso(b"2026-03-02T10:00:00Z").expect("a time");
        let others = [
            Value::Int(0),
            Value::Int(1),
            Value::Int(20_260_302),
            Value::Int(9_007_199_254_740_993),
            Value::Float(1.0),
            Value::Float(-0.0),
            Value::Float(0.1),
            Value::Float(9_007_199_254_740_992.0),
            Value::Bit(true),
            Value::Bit(false),
            Value::Time(day),
            Value::Time(hour),
            Value::Array([Value::Int(1), Value::text("1")].into()),
        ];
        let texts = texts.map(Value::text);
        prop::sample::select([&texts[..], &others[..]].concat())
    }

    fn key(values: &[Value]) -> (Vec<u8>, bool) {
        let (mut key, mut plain) = (Vec::new(), true);
        for value in values {
            plain &= encode_join_key(value.view(), &mut key);
        }
        (key, plain)
    }

    fn class_of(key: &[u8]) -> Vec<u8> {
        let mut class = Vec::new();
        append_class(key, &mut class);
        class
    }

    proptest! {
        // proves S1
        /// Keys of one and of two columns are equal where `=` says so, and then their classes are the same.
        #[test]
        fn equal_values_have_equal_keys(a in value(), b in value(), c in value(), d in value()) {
            let equal = |a: &Value, b: &Value| matches!(equal(a.view(), b.view()), Ok(Some(true)));
            for (left, right) in [(vec![a.clone()], vec![b.clone()]), (vec![a, c], vec![b, d])] {
                let expected = left.iter().zip(&right).all(|(a, b)| equal(a, b));
                let ((left, plain), (right, _)) = (key(&left), key(&right));
                let followed = [&left[..], &[1, 2, 3]].concat();
                prop_assert_eq!(keys_equal(&followed, &right), expected);
                let same = class_of(&left) == class_of(&right);
                prop_assert!(same || !expected);
                prop_assert_eq!(same_class(&followed, &right), same);
                prop_assert_eq!(plain, class_of(&left) == left);
            }
        }
    }
}
