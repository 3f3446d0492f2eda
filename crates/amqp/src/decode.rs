//! Decodes values from a slice.
//!
//! Sizes and counts are claims of the peer: a size must fit into the bytes that are left, and a value has at most
//! [`ELEMENTS_MAX`] elements, because elements without a width (an array of a billion nulls) take no bytes at all.

use std::borrow::Cow;

use crate::value::Value;

/// Values inside one value.
const ELEMENTS_MAX: u32 = 16_384;
/// Lists in lists.
const DEPTH_MAX: u32 = 16;

/// Why bytes are not a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes end inside a value")]
    Truncated,
    #[error("{0} bytes are left after the value")]
    Trailing(usize),
    #[error("constructor {0:#04x} is unknown")]
    Constructor(u8),
    #[error("expected {wanted}, found constructor {found:#04x}")]
    Type { wanted: &'static str, found: u8 },
    #[error("a text is not UTF-8")]
    Utf8,
    #[error("the size of a list, map or array contradicts its elements")]
    Size,
    #[error("a value has more than {ELEMENTS_MAX} elements, or more than {DEPTH_MAX} levels")]
    TooComplex,
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("descriptor {0:#x} is unknown here")]
    Descriptor(u64),
}

/// Takes values from the front of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    elements: u32,
    depth: u32,
}

type DecodeResult<T> = Result<T, DecodeError>;

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder {
            bytes,
            elements: ELEMENTS_MAX,
            depth: DEPTH_MAX,
        }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn end(&self) -> DecodeResult<()> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    fn raw(&mut self, count: usize) -> DecodeResult<&'a [u8]> {
        let split = self.bytes.split_at_checked(count);
        let (taken, rest) = split.ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> DecodeResult<[u8; N]> {
        let split = self.bytes.split_first_chunk();
        let (taken, rest) = split.ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> DecodeResult<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A length of one byte or four.
    fn length(&mut self, wide: bool) -> DecodeResult<usize> {
        match wide {
            false => self.u8().map(usize::from),
            true => self.array().map(|bytes| u32::from_be_bytes(bytes) as usize),
        }
    }

    fn sized(&mut self, wide: bool) -> DecodeResult<&'a [u8]> {
        let length = self.length(wide)?;
        self.raw(length)
    }

    fn text(&mut self, wide: bool) -> DecodeResult<&'a str> {
        std::str::from_utf8(self.sized(wide)?).map_err(|_| DecodeError::Utf8)
    }

    /// The next constructor, without taking it.
    pub(crate) fn peek(&self) -> DecodeResult<u8> {
        self.bytes.first().copied().ok_or(DecodeError::Truncated)
    }

    /// Takes a null, if one is next.
    pub(crate) fn null(&mut self) -> DecodeResult<bool> {
        let is_null = self.peek()? == 0x40;
        if is_null {
            self.bytes = &self.bytes[1..];
        }
        Ok(is_null)
    }

    pub(crate) fn bool(&mut self) -> DecodeResult<bool> {
        match self.u8()? {
            0x41 => Ok(true),
            0x42 => Ok(false),
            0x56 => Ok(self.u8()? != 0),
            found => Err(wrong("a boolean", found)),
        }
    }

    pub(crate) fn ubyte(&mut self) -> DecodeResult<u8> {
        match self.u8()? {
            0x50 => self.u8(),
            found => Err(wrong("a ubyte", found)),
        }
    }

    pub(crate) fn ushort(&mut self) -> DecodeResult<u16> {
        match self.u8()? {
            0x60 => self.array().map(u16::from_be_bytes),
            found => Err(wrong("a ushort", found)),
        }
    }

    pub(crate) fn uint(&mut self) -> DecodeResult<u32> {
        match self.u8()? {
            0x43 => Ok(0),
            0x52 => self.u8().map(u32::from),
            0x70 => self.array().map(u32::from_be_bytes),
            found => Err(wrong("a uint", found)),
        }
    }

    pub(crate) fn ulong(&mut self) -> DecodeResult<u64> {
        match self.u8()? {
            0x44 => Ok(0),
            0x53 => self.u8().map(u64::from),
            0x80 => self.array().map(u64::from_be_bytes),
            found => Err(wrong("a ulong", found)),
        }
    }

    pub(crate) fn binary(&mut self) -> DecodeResult<&'a [u8]> {
        match self.u8()? {
            0xa0 => self.sized(false),
            0xb0 => self.sized(true),
            found => Err(wrong("a binary", found)),
        }
    }

    /// A string or a symbol: clients mix them up.
    pub(crate) fn string(&mut self) -> DecodeResult<&'a str> {
        match self.u8()? {
            0xa1 | 0xa3 => self.text(false),
            0xb1 | 0xb3 => self.text(true),
            found => Err(wrong("a text", found)),
        }
    }

    /// The numeric descriptor of a described value.
    pub(crate) fn descriptor(&mut self) -> DecodeResult<u64> {
        match self.u8()? {
            0x00 => self.ulong(),
            found => Err(wrong("a described value", found)),
        }
    }

    /// The elements of a list as a decoder, and their number.
    pub(crate) fn list(&mut self) -> DecodeResult<(Decoder<'a>, usize)> {
        match self.u8()? {
            0x45 => Ok((self.inner(&[])?, 0)),
            0xc0 => self.compound(false),
            0xd0 => self.compound(true),
            found => Err(wrong("a list", found)),
        }
    }

    /// The keys and values of a map as a decoder, and their number.
    pub(crate) fn map(&mut self) -> DecodeResult<(Decoder<'a>, usize)> {
        match self.u8()? {
            0xc1 => self.compound(false),
            0xd1 => self.compound(true),
            found => Err(wrong("a map", found)),
        }
    }

    fn compound(&mut self, wide: bool) -> DecodeResult<(Decoder<'a>, usize)> {
        let body = self.sized(wide)?;
        let mut inner = self.inner(body)?;
        let count = inner.length(wide)?;
        // An element is a byte at least.
        match count <= inner.bytes.len() {
            true => Ok((inner, count)),
            false => Err(DecodeError::Size),
        }
    }

    fn inner(&self, bytes: &'a [u8]) -> DecodeResult<Decoder<'a>> {
        Ok(Decoder {
            bytes,
            elements: self.elements,
            depth: self.depth.checked_sub(1).ok_or(DecodeError::TooComplex)?,
        })
    }

    fn count_elements(&mut self, count: usize) -> DecodeResult<()> {
        let count = u32::try_from(count).map_err(|_| DecodeError::TooComplex)?;
        let left = self.elements.checked_sub(count);
        self.elements = left.ok_or(DecodeError::TooComplex)?;
        Ok(())
    }

    pub(crate) fn value(&mut self) -> DecodeResult<Value<'a>> {
        let constructor = self.u8()?;
        self.value_of(constructor)
    }

    fn value_of(&mut self, constructor: u8) -> DecodeResult<Value<'a>> {
        match constructor {
            0x00 => self.described(),
            0x45 => Ok(Value::List(Vec::new())),
            0xc0 | 0xd0 => self.elements_of(constructor == 0xd0).map(Value::List),
            0xc1 | 0xd1 => self.entries(constructor == 0xd1).map(Value::Map),
            0xe0 | 0xf0 => self.array_elements(constructor == 0xf0).map(Value::Array),
            _ => self.scalar(constructor),
        }
    }

    fn scalar(&mut self, constructor: u8) -> DecodeResult<Value<'a>> {
        Ok(match constructor {
            0x40 => Value::Null,
            0x41 => Value::Bool(true),
            0x42 => Value::Bool(false),
            0x56 => Value::Bool(self.u8()? != 0),
            0x50 => Value::U8(self.u8()?),
            0x60 => Value::U16(u16::from_be_bytes(self.array()?)),
            0x43 => Value::U32(0),
            0x52 => Value::U32(self.u8()?.into()),
            0x70 => Value::U32(u32::from_be_bytes(self.array()?)),
            0x44 => Value::U64(0),
            0x53 => Value::U64(self.u8()?.into()),
            0x80 => Value::U64(u64::from_be_bytes(self.array()?)),
            0x51 => Value::I8(i8::from_be_bytes(self.array()?)),
            0x61 => Value::I16(i16::from_be_bytes(self.array()?)),
            0x54 => Value::I32(i8::from_be_bytes(self.array()?).into()),
            0x71 => Value::I32(i32::from_be_bytes(self.array()?)),
            0x55 => Value::I64(i8::from_be_bytes(self.array()?).into()),
            0x81 => Value::I64(i64::from_be_bytes(self.array()?)),
            0x72 => Value::F32(f32::from_be_bytes(self.array()?)),
            0x82 => Value::F64(f64::from_be_bytes(self.array()?)),
            0x74 => Value::Decimal32(self.array()?),
            0x84 => Value::Decimal64(self.array()?),
            0x94 => Value::Decimal128(self.array()?),
            0x73 => Value::Char(u32::from_be_bytes(self.array()?)),
            0x83 => Value::Timestamp(i64::from_be_bytes(self.array()?)),
            0x98 => Value::Uuid(self.array()?),
            0xa0 | 0xb0 => Value::Binary(Cow::Borrowed(self.sized(constructor == 0xb0)?)),
            0xa1 | 0xb1 => Value::String(Cow::Borrowed(self.text(constructor == 0xb1)?)),
            0xa3 | 0xb3 => Value::Symbol(Cow::Borrowed(self.text(constructor == 0xb3)?)),
            unknown => return Err(DecodeError::Constructor(unknown)),
        })
    }

    /// Runs `read` one level deeper, over `inner`, and counts its elements here.
    fn nested<T>(
        &mut self,
        mut inner: Decoder<'a>,
        read: impl FnOnce(&mut Decoder<'a>) -> DecodeResult<T>,
    ) -> DecodeResult<T> {
        let value = read(&mut inner)?;
        match inner.is_done() {
            true => {
                self.elements = inner.elements;
                Ok(value)
            }
            false => Err(DecodeError::Size),
        }
    }

    fn elements_of(&mut self, wide: bool) -> DecodeResult<Vec<Value<'a>>> {
        let (inner, count) = self.compound(wide)?;
        self.nested(inner, |inner| {
            inner.count_elements(count)?;
            (0..count).map(|_| inner.value()).collect()
        })
    }

    fn entries(&mut self, wide: bool) -> DecodeResult<Vec<(Value<'a>, Value<'a>)>> {
        let (inner, count) = self.compound(wide)?;
        if count % 2 != 0 {
            return Err(DecodeError::Size);
        }
        self.nested(inner, |inner| {
            inner.count_elements(count)?;
            (0..count / 2)
                .map(|_| Ok((inner.value()?, inner.value()?)))
                .collect()
        })
    }

    fn array_elements(&mut self, wide: bool) -> DecodeResult<Vec<Value<'a>>> {
        let body = self.sized(wide)?;
        let mut inner = self.inner(body)?;
        let count = inner.length(wide)?;
        self.nested(inner, |inner| {
            inner.count_elements(count)?;
            let constructor = inner.u8()?;
            if constructor != 0 {
                return (0..count).map(|_| inner.value_of(constructor)).collect();
            }
            let descriptor = inner.described_part()?;
            let constructor = inner.u8()?;
            let element = |inner: &mut Decoder<'a>| inner.value_of(constructor);
            (0..count)
                .map(|_| {
                    Ok(Value::Described(Box::new((
                        descriptor.clone(),
                        element(inner)?,
                    ))))
                })
                .collect()
        })
    }

    fn described(&mut self) -> DecodeResult<Value<'a>> {
        let descriptor = self.described_part()?;
        let value = self.described_part()?;
        Ok(Value::Described(Box::new((descriptor, value))))
    }

    /// Descriptors may be described too, so they count as a level.
    fn described_part(&mut self) -> DecodeResult<Value<'a>> {
        self.count_elements(1)?;
        self.depth = self.depth.checked_sub(1).ok_or(DecodeError::TooComplex)?;
        let value = self.value()?;
        self.depth += 1;
        Ok(value)
    }
}

fn wrong(wanted: &'static str, found: u8) -> DecodeError {
    DecodeError::Type { wanted, found }
}
