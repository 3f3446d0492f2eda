//! Checks the lengths of a message before the codec decodes it: requests of clients, and responses of brokers.
//!
//! The codec reserves memory for as many elements as an array claims before it reads the first, so twenty bytes that
//! claim 2^31 elements would abort the process. The walk here steps over every element first and stores nothing.
//! After it, the codec allocates in proportion to the bytes that were received.

mod requests;
mod responses;
#[cfg(test)]
mod testing;

use kafka_protocol::messages::ApiKey;

use crate::api::Api;

/// A field, in wire order, and its versions.
#[derive(Clone, Copy)]
struct Field {
    kind: Kind,
    from: i16,
    to: i16,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Numbers, flags and ids.
    Fixed(usize),
    Text,
    Bytes,
    /// An array of structs.
    Array(&'static [Field]),
    /// An array of values without tagged fields.
    Plain(&'static Kind),
    /// A struct that may be null: its first byte is 1 if it is not.
    Nullable(&'static [Field]),
    /// A single struct; only tagged fields have these.
    Struct(&'static [Field]),
    /// The tagged fields of the struct that the codec knows, by tag. It reads them by type and ignores their size.
    Tagged(&'static [Kind]),
}

use Kind::{Array, Bytes, Fixed, Nullable, Plain, Struct, Tagged, Text};

const BOOL: Kind = Fixed(1);
const I8: Kind = Fixed(1);
const I16: Kind = Fixed(2);
const I32: Kind = Fixed(4);
const I64: Kind = Fixed(8);
const UUID: Kind = Fixed(16);
const LONG_NUMBERS: Kind = Plain(&I64);
const NUMBERS: Kind = Plain(&I32);
const TEXTS: Kind = Plain(&Text);

const fn always(kind: Kind) -> Field {
    between(0, i16::MAX, kind)
}

const fn since(from: i16, kind: Kind) -> Field {
    between(from, i16::MAX, kind)
}

const fn tagged(from: i16, kinds: &'static [Kind]) -> Field {
    since(from, Tagged(kinds))
}

const fn until(to: i16, kind: Kind) -> Field {
    between(0, to, kind)
}

const fn between(from: i16, to: i16, kind: Kind) -> Field {
    Field { kind, from, to }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ShapeError {
    #[error("it ends within a field")]
    Short,
    #[error("a length is negative, too large or wrong")]
    Length,
    #[error("it has a field that only brokers send")]
    Broker,
    #[error("its arrays have more than {0} elements")]
    Elements(usize),
}

/// Checks the lengths in the body of a request, and the number of elements: in memory one takes up to a hundred times
/// its bytes. Trailing bytes are allowed: librdkafka sends some.
pub(crate) fn check(
    api: &Api,
    version: i16,
    body: &[u8],
    elements_max: usize,
) -> Result<(), ShapeError> {
    let mut walk = Walk {
        elements_max,
        ..Walk::new(api, version, body)
    };
    walk.fields(requests::shape_of(api.key))
}

/// Checks the lengths in the body of a response.
pub(crate) fn check_response(key: ApiKey, version: i16, body: &[u8]) -> Result<(), ShapeError> {
    Walk::of_response(key, version, body).fields(responses::shape_of(key))
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    /// Tags below this are refused: the codec reads them and ignores their size.
    tags_known: u32,
    /// Elements of arrays and tagged fields.
    elements: usize,
    elements_max: usize,
}

impl<'a> Walk<'a> {
    fn new(api: &Api, version: i16, body: &'a [u8]) -> Walk<'a> {
        Walk {
            rest: body,
            version,
            flexible: api.is_flexible(version),
            tags_known: requests::tags_known(api.key),
            elements: 0,
            elements_max: usize::MAX,
        }
    }

    fn of_response(key: ApiKey, version: i16, body: &'a [u8]) -> Walk<'a> {
        Walk {
            rest: body,
            version,
            flexible: key.response_header_version(version) == 1,
            tags_known: 0,
            elements: 0,
            elements_max: usize::MAX,
        }
    }

    fn fields(&mut self, fields: &'static [Field]) -> Result<(), ShapeError> {
        let mut tagged: &[Kind] = &[];
        for field in fields {
            match field.kind {
                _ if !(field.from..=field.to).contains(&self.version) => {}
                Tagged(kinds) => tagged = kinds,
                kind => self.value(kind)?,
            }
        }
        match self.flexible {
            true => self.tagged_fields(tagged),
            false => Ok(()),
        }
    }

    fn value(&mut self, kind: Kind) -> Result<(), ShapeError> {
        match kind {
            Fixed(size) => self.skip(size),
            Text if !self.flexible => {
                let length = i16::from_be_bytes(self.take()?);
                self.skip_counted(i64::from(length))
            }
            Text | Bytes => {
                let length = self.length()?;
                self.skip_counted(length)
            }
            Array(fields) => {
                let count = self.length()?;
                (0..count).try_for_each(|_| {
                    self.count_element()?;
                    self.fields(fields)
                })
            }
            Plain(kind) => {
                let count = self.length()?;
                (0..count).try_for_each(|_| {
                    self.count_element()?;
                    self.value(*kind)
                })
            }
            Struct(fields) => self.fields(fields),
            Nullable(fields) => match self.take()? {
                [1] => self.fields(fields),
                [_] => Ok(()),
            },
            Tagged(_) => Ok(()),
        }
    }

    fn count_element(&mut self) -> Result<(), ShapeError> {
        self.elements += 1;
        match self.elements <= self.elements_max {
            true => Ok(()),
            false => Err(ShapeError::Elements(self.elements_max)),
        }
    }

    /// The length of bytes or of an array; -1 is null.
    fn length(&mut self) -> Result<i64, ShapeError> {
        match self.flexible {
            true => Ok(i64::from(self.varint()?) - 1),
            false => Ok(i64::from(i32::from_be_bytes(self.take()?))),
        }
    }

    fn skip_counted(&mut self, length: i64) -> Result<(), ShapeError> {
        match length {
            -1 => Ok(()),
            _ => self.skip(usize::try_from(length).map_err(|_| ShapeError::Length)?),
        }
    }

    fn tagged_fields(&mut self, known: &'static [Kind]) -> Result<(), ShapeError> {
        for _ in 0..self.varint()? {
            self.count_element()?;
            let tag = self.varint()?;
            if tag < self.tags_known {
                return Err(ShapeError::Broker);
            }
            let size = self.varint()? as usize;
            let before = self.rest.len();
            match known.get(tag as usize) {
                Some(kind) => self.value(*kind)?,
                None => self.skip(size)?,
            }
            if before - self.rest.len() != size {
                return Err(ShapeError::Length);
            }
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u32, ShapeError> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.take()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ShapeError::Length)
    }

    fn skip(&mut self, size: usize) -> Result<(), ShapeError> {
        self.rest = self.rest.get(size..).ok_or(ShapeError::Short)?;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ShapeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(ShapeError::Short)?;
        self.rest = rest;
        Ok(*head)
    }
}
