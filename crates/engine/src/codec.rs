//! The bytes of a snapshot: little-endian fields in a fixed order, read back with checks.
//!
//! There is no schema in the bytes: an operator reads exactly what it wrote. What a reader meets may still be damaged
//! or of another version, so every read can fail and no length is believed before it is checked.

use std::sync::Arc;

use highwater_time::Instant;

use crate::value::{Record, Value, ValueRef};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the snapshot is damaged: {0}")]
pub struct RestoreError(pub &'static str);

const DEPTH_MAX: u32 = 256;

#[derive(Debug, Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub fn u8(&mut self, v: u8) {
        self.bytes.push(v);
    }

    pub fn u32(&mut self, v: u32) {
        self.bytes.extend_from_slice(&v.to_le_bytes());
    }

    pub fn u64(&mut self, v: u64) {
        self.bytes.extend_from_slice(&v.to_le_bytes());
    }

    pub fn i64(&mut self, v: i64) {
        self.bytes.extend_from_slice(&v.to_le_bytes());
    }

    pub fn i128(&mut self, v: i128) {
        self.bytes.extend_from_slice(&v.to_le_bytes());
    }

    pub fn f64(&mut self, v: f64) {
        self.u64(v.to_bits());
    }

    pub fn count(&mut self, v: usize) {
        self.u64(v as u64);
    }

    pub fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    pub fn value(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.u8(0),
            ValueRef::Bit(b) => {
                self.u8(1);
                self.u8(b.into());
            }
            ValueRef::Int(i) => {
                self.u8(2);
                self.i64(i);
            }
            ValueRef::Float(f) => {
                self.u8(3);
                self.f64(f);
            }
            ValueRef::Text(t) => {
                self.u8(4);
                self.blob(t.as_bytes());
            }
            ValueRef::Time(t) => {
                self.u8(5);
                self.i64(t.ticks());
            }
            ValueRef::Record(record) => {
                self.u8(6);
                self.count(record.len());
                for (name, value) in record.iter() {
                    self.blob(name.as_bytes());
                    self.value(value.view());
                }
            }
            ValueRef::Array(array) => {
                self.u8(7);
                self.count(array.len());
                array.iter().for_each(|value| self.value(value.view()));
            }
        }
    }
}

#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

type Read<T> = Result<T, RestoreError>;

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    pub fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    fn fixed<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (head, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or(RestoreError("it ends too early"))?;
        self.bytes = rest;
        Ok(*head)
    }

    pub fn u8(&mut self) -> Read<u8> {
        Ok(self.fixed::<1>()?[0])
    }

    pub fn u32(&mut self) -> Read<u32> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Read<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Read<i64> {
        self.fixed().map(i64::from_le_bytes)
    }

    pub fn i128(&mut self) -> Read<i128> {
        self.fixed().map(i128::from_le_bytes)
    }

    pub fn f64(&mut self) -> Read<f64> {
        self.u64().map(f64::from_bits)
    }

    /// A count of things that take at least one byte each.
    pub fn count(&mut self) -> Read<usize> {
        let len = self.u64()?;
        if len > self.bytes.len() as u64 {
            return Err(RestoreError("a length is larger than what follows"));
        }
        Ok(len as usize)
    }

    pub fn blob(&mut self) -> Read<&'a [u8]> {
        let len = self.count()?;
        let (head, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        Ok(head)
    }

    fn text(&mut self) -> Read<Arc<str>> {
        let bytes = self.blob()?;
        std::str::from_utf8(bytes)
            .map(Arc::from)
            .map_err(|_| RestoreError("text is not UTF-8"))
    }

    pub fn value(&mut self) -> Read<Value> {
        self.value_at(0)
    }

    fn value_at(&mut self, depth: u32) -> Read<Value> {
        if depth > DEPTH_MAX {
            return Err(RestoreError("a value is nested too deeply"));
        }
        Ok(match self.u8()? {
            0 => Value::Null,
            1 => Value::Bit(self.u8()? != 0),
            2 => Value::Int(self.i64()?),
            3 => Value::Float(self.f64()?),
            4 => Value::Text(self.text()?),
            5 => Value::Time(Instant::from_ticks(self.i64()?)),
            6 => {
                let len = self.count()?;
                let mut record = Record::with_capacity(len);
                for _ in 0..len {
                    let name = self.text()?;
                    record.set(name, self.value_at(depth + 1)?);
                }
                Value::Record(Arc::new(record))
            }
            7 => {
                let len = self.count()?;
                let values: Read<Vec<Value>> = (0..len).map(|_| self.value_at(depth + 1)).collect();
                Value::Array(values?.into())
            }
            _ => return Err(RestoreError("a value has an unknown type")),
        })
    }
}
