//! Fields of performatives: read with a check of their type, written even if they are null.

use bytes::Bytes;

use crate::decode::{DecodeError, Decoder};
use crate::encode::Encoder;
use crate::error::AmqpError;
use crate::value::{Value, lookup, own_entries};

/// The fields of a performative, in order. Trailing ones may be missing.
pub(crate) struct Fields<'a> {
    decoder: Decoder<'a>,
    left: usize,
}

impl<'a> Fields<'a> {
    /// Takes a list from the decoder.
    pub(crate) fn new(decoder: &mut Decoder<'a>) -> Result<Fields<'a>, DecodeError> {
        let (decoder, left) = decoder.list()?;
        Ok(Fields { decoder, left })
    }

    pub(crate) fn next<T: Field>(&mut self, name: &'static str) -> Result<T, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else {
            return T::absent().ok_or(DecodeError::Missing(name));
        };
        self.left = left;
        match self.decoder.null()? {
            true => T::absent().ok_or(DecodeError::Missing(name)),
            false => T::read(&mut self.decoder),
        }
    }
}

pub(crate) trait Field: Sized {
    /// A value that is not null.
    fn read(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError>;

    /// The value of a null or missing field; `None` if the field is mandatory.
    fn absent() -> Option<Self>;

    fn write(&self, encoder: &mut Encoder<'_>);
}

impl Field for bool {
    fn read(decoder: &mut Decoder<'_>) -> Result<bool, DecodeError> {
        decoder.bool()
    }

    fn absent() -> Option<bool> {
        Some(false)
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        encoder.bool(*self);
    }
}

/// Mandatory fields of simple types, by the methods of decoder and encoder.
macro_rules! mandatory {
    ($($type:ty: $read:ident $(.$convert:ident())?, $write:ident $(.$borrow:ident())?;)*) => {$(
        impl Field for $type {
            fn read(decoder: &mut Decoder<'_>) -> Result<$type, DecodeError> {
                decoder.$read()$(.map(|value| value.$convert()))?
            }

            fn absent() -> Option<$type> {
                None
            }

            fn write(&self, encoder: &mut Encoder<'_>) {
                encoder.$write(self.clone()$(.$borrow())?);
            }
        }
    )*};
}

mandatory! {
    u8: ubyte, ubyte;
    u16: ushort, ushort;
    u32: uint, uint;
    u64: ulong, ulong;
    String: string.to_owned(), string.as_str();
}

impl Field for Bytes {
    fn read(decoder: &mut Decoder<'_>) -> Result<Bytes, DecodeError> {
        decoder.binary().map(Bytes::copy_from_slice)
    }

    fn absent() -> Option<Bytes> {
        None
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        encoder.binary(self);
    }
}

impl<T: Field> Field for Option<T> {
    fn read(decoder: &mut Decoder<'_>) -> Result<Option<T>, DecodeError> {
        T::read(decoder).map(Some)
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        match self {
            Some(value) => value.write(encoder),
            None => encoder.null(),
        }
    }
}

impl Field for Value<'static> {
    fn read(decoder: &mut Decoder<'_>) -> Result<Value<'static>, DecodeError> {
        decoder.value().map(Value::into_owned)
    }

    fn absent() -> Option<Value<'static>> {
        Some(Value::Null)
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        encoder.value(self);
    }
}

/// The name of a mechanism or condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Symbol(pub(crate) String);

impl Field for Symbol {
    fn read(decoder: &mut Decoder<'_>) -> Result<Symbol, DecodeError> {
        decoder.string().map(|text| Symbol(text.to_owned()))
    }

    fn absent() -> Option<Symbol> {
        None
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        encoder.symbol(&self.0);
    }
}

/// Several symbols: an array, one symbol alone, or null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Symbols(pub(crate) Vec<String>);

impl Field for Symbols {
    fn read(decoder: &mut Decoder<'_>) -> Result<Symbols, DecodeError> {
        let symbols = match decoder.value()? {
            Value::Array(elements) | Value::List(elements) => elements,
            one => vec![one],
        };
        let texts = symbols.iter().filter_map(Value::as_text);
        Ok(Symbols(texts.map(str::to_owned).collect()))
    }

    fn absent() -> Option<Symbols> {
        Some(Symbols::default())
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        match self.0.is_empty() {
            true => encoder.null(),
            false => {
                let symbols = self.0.iter().map(|text| Value::symbol(&**text));
                encoder.value(&Value::Array(symbols.collect()));
            }
        }
    }
}

/// Properties of a connection, session or link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties(pub Vec<(Value<'static>, Value<'static>)>);

impl Properties {
    pub fn get(&self, name: &str) -> Option<&Value<'static>> {
        lookup(&self.0, name)
    }
}

impl Field for Properties {
    fn read(decoder: &mut Decoder<'_>) -> Result<Properties, DecodeError> {
        match decoder.value()? {
            Value::Map(entries) => Ok(Properties(own_entries(entries))),
            _ => Err(DecodeError::Missing("a map")),
        }
    }

    fn absent() -> Option<Properties> {
        Some(Properties::default())
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        let map = encoder.map();
        for (key, value) in &self.0 {
            encoder.value(key);
            encoder.value(value);
        }
        encoder.end(map, self.0.len() * 2);
    }
}

pub(crate) const ERROR: u64 = 0x1d;

impl Field for AmqpError {
    fn read(decoder: &mut Decoder<'_>) -> Result<AmqpError, DecodeError> {
        match decoder.descriptor()? {
            ERROR => {}
            unknown => return Err(DecodeError::Descriptor(unknown)),
        }
        let mut fields = Fields::new(decoder)?;
        let condition: Symbol = fields.next("condition")?;
        let description: Option<String> = fields.next("description")?;
        Ok(AmqpError::new(condition.0, description.unwrap_or_default()))
    }

    fn absent() -> Option<AmqpError> {
        None
    }

    fn write(&self, encoder: &mut Encoder<'_>) {
        encoder.descriptor(ERROR);
        let list = encoder.list();
        encoder.symbol(&self.condition);
        encoder.string(&self.description);
        Properties::default().write(encoder);
        encoder.end(list, 3);
    }
}
