//! Values in snapshots: a type byte, then the value.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::Instant;

use crate::value::{Record, Value, ValueRef};

const DEPTH_MAX: u32 = 256;

pub trait WriteValue {
    fn value(&mut self, value: ValueRef<'_>);
}

pub trait ReadValue {
    fn value(&mut self) -> Result<Value, DecodeError>;
}

impl WriteValue for Vec<u8> {
    fn value(&mut self, value: ValueRef<'_>) {
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
                self.text(t);
            }
            ValueRef::Time(t) => {
                self.u8(5);
                self.i64(t.ticks());
            }
            ValueRef::Record(record) => {
                self.u8(6);
                self.count(record.len());
                for (name, value) in record.iter() {
                    self.text(name);
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

impl ReadValue for Reader<'_> {
    fn value(&mut self) -> Result<Value, DecodeError> {
        read_value(self, 0)
    }
}

fn read_value(from: &mut Reader<'_>, depth: u32) -> Result<Value, DecodeError> {
    if depth > DEPTH_MAX {
        return Err(DecodeError::Invalid("a value is nested too deeply"));
    }
    Ok(match from.u8()? {
        0 => Value::Null,
        1 => Value::Bit(from.u8()? != 0),
        2 => Value::Int(from.i64()?),
        3 => Value::Float(from.f64()?),
        4 => Value::Text(from.text()?.into()),
        5 => Value::Time(Instant::from_ticks(from.i64()?)),
        6 => {
            let len = from.count()?;
            let mut record = Record::with_capacity(len);
            for _ in 0..len {
                let name = from.text()?.into();
                record.set(name, read_value(from, depth + 1)?);
            }
            Value::Record(Arc::new(record))
        }
        7 => {
            let values = (0..from.count()?).map(|_| read_value(from, depth + 1));
            Value::Array(values.collect::<Result<_, DecodeError>>()?)
        }
        tag => return Err(DecodeError::unknown("a value of type", tag)),
    })
}
