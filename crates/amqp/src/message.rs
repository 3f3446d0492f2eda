//! The sections of a message, in their order.

use crate::decode::{DecodeError, Decoder};
use crate::performative::Fields;
use crate::value::Value;

/// Descriptors of sections.
pub(crate) mod section {
    pub(crate) const HEADER: u64 = 0x70;
    pub(crate) const DELIVERY_ANNOTATIONS: u64 = 0x71;
    pub(crate) const MESSAGE_ANNOTATIONS: u64 = 0x72;
    pub(crate) const PROPERTIES: u64 = 0x73;
    pub(crate) const APPLICATION_PROPERTIES: u64 = 0x74;
    pub(crate) const DATA: u64 = 0x75;
    pub(crate) const SEQUENCE: u64 = 0x76;
    pub(crate) const VALUE: u64 = 0x77;
    pub(crate) const FOOTER: u64 = 0x78;
}

/// A section of a message. Texts and binaries borrow from it.
#[derive(Clone, Debug, PartialEq)]
pub enum Section<'a> {
    /// The transport header. Of its fields only the time to live, in milliseconds, says what to do with a message.
    Header {
        ttl_ms: Option<u32>,
    },
    DeliveryAnnotations(Vec<(Value<'a>, Value<'a>)>),
    MessageAnnotations(Vec<(Value<'a>, Value<'a>)>),
    /// The fields in the order of the standard; trailing ones may be missing.
    Properties(Vec<Value<'a>>),
    ApplicationProperties(Vec<(Value<'a>, Value<'a>)>),
    Data(&'a [u8]),
    Sequence(Value<'a>),
    Value(Value<'a>),
    Footer,
}

impl Section<'_> {
    pub const HEADER: u64 = section::HEADER;
    pub const DELIVERY_ANNOTATIONS: u64 = section::DELIVERY_ANNOTATIONS;
    pub const MESSAGE_ANNOTATIONS: u64 = section::MESSAGE_ANNOTATIONS;
    pub const PROPERTIES: u64 = section::PROPERTIES;
    pub const APPLICATION_PROPERTIES: u64 = section::APPLICATION_PROPERTIES;
    pub const SEQUENCE: u64 = section::SEQUENCE;
    pub const VALUE: u64 = section::VALUE;
}

/// Iterates over the sections of a message. Ends after the first error.
#[derive(Clone, Debug)]
pub struct MessageReader<'a> {
    bytes: &'a [u8],
}

impl<'a> MessageReader<'a> {
    pub fn new(bytes: &'a [u8]) -> MessageReader<'a> {
        MessageReader { bytes }
    }

    /// The bytes of the sections that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for MessageReader<'a> {
    type Item = Result<Section<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        // A decoder for each section: each may have as many elements as a value.
        let mut decoder = Decoder::new(self.bytes);
        let section = read(&mut decoder);
        self.bytes = match &section {
            Ok(_) => decoder.rest(),
            Err(_) => &[],
        };
        Some(section)
    }
}

fn read<'a>(decoder: &mut Decoder<'a>) -> Result<Section<'a>, DecodeError> {
    Ok(match decoder.descriptor()? {
        section::HEADER => {
            let mut fields = Fields::new(decoder)?;
            let _durable: Option<bool> = fields.next("durable")?;
            let _priority: Option<u8> = fields.next("priority")?;
            let ttl_ms = fields.next("ttl")?;
            Section::Header { ttl_ms }
        }
        section::DELIVERY_ANNOTATIONS => Section::DeliveryAnnotations(entries(decoder)?),
        section::MESSAGE_ANNOTATIONS => Section::MessageAnnotations(entries(decoder)?),
        section::PROPERTIES => match decoder.value()? {
            Value::List(fields) => Section::Properties(fields),
            _ => return Err(DecodeError::Missing("the list of properties")),
        },
        section::APPLICATION_PROPERTIES => Section::ApplicationProperties(entries(decoder)?),
        section::DATA => Section::Data(decoder.binary()?),
        section::SEQUENCE => Section::Sequence(decoder.value()?),
        section::VALUE => Section::Value(decoder.value()?),
        section::FOOTER => {
            decoder.map()?;
            Section::Footer
        }
        unknown => return Err(DecodeError::Descriptor(unknown)),
    })
}

fn entries<'a>(decoder: &mut Decoder<'a>) -> Result<Vec<(Value<'a>, Value<'a>)>, DecodeError> {
    match decoder.value()? {
        Value::Map(entries) => Ok(entries),
        Value::Null => Ok(Vec::new()),
        _ => Err(DecodeError::Missing("a map")),
    }
}
