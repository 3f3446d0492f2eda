//! From a client's message to a record.

use std::borrow::Cow;

use highwater_amqp::{DecodeError, MessageReader, Section, Value};
use serde_json::{Map, Value as Json};

use super::{BODY, BODY_SECTIONS, BODY_STRING, PARTITION_KEY, PROPERTY_FIELDS, TYPES, property};

/// Messages of this format are batches: each data section of the envelope is a message.
const BATCH_FORMAT: u32 = 0x8001_3700;

const PRODUCER_SEQUENCE: &str = "com.microsoft:producer-sequence-number";

/// The name and the value of a record's header.
type Header<'a> = (Cow<'a, str>, Option<Cow<'a, [u8]>>);

/// An event of a client, mostly borrowed from its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::amqp) struct IncomingEvent<'a> {
    pub(in crate::amqp) key: Option<Cow<'a, str>>,
    pub(in crate::amqp) value: Cow<'a, [u8]>,
    pub(in crate::amqp) headers: Vec<Header<'a>>,
}

/// The messages of a delivery: itself, or those in its envelope.
pub(in crate::amqp) fn unpack_batch(
    payload: &[u8],
    message_format: u32,
) -> Result<Vec<&[u8]>, DecodeError> {
    if message_format != BATCH_FORMAT {
        return Ok(vec![payload]);
    }
    let mut messages = Vec::new();
    for section in MessageReader::new(payload) {
        if let Section::Data(message) = section? {
            messages.push(message);
        }
    }
    Ok(messages)
}

/// The partition key in the annotations of a message or an envelope.
pub(in crate::amqp) fn partition_key(payload: &[u8]) -> Result<Option<Cow<'_, str>>, DecodeError> {
    Ok(key_of(annotations(payload)?))
}

/// The number that an idempotent producer has given its event.
pub(in crate::amqp) fn producer_sequence(message: &[u8]) -> Result<Option<i32>, DecodeError> {
    let annotations = annotations(message)?;
    let mut numbers = annotations.iter().filter_map(|(name, value)| {
        let is_sequence = name.as_text() == Some(PRODUCER_SEQUENCE);
        is_sequence.then(|| value.as_i64())?
    });
    Ok(numbers.next().and_then(|number| i32::try_from(number).ok()))
}

type Annotations<'a> = Vec<(Value<'a>, Value<'a>)>;

fn annotations(payload: &[u8]) -> Result<Annotations<'_>, DecodeError> {
    for section in MessageReader::new(payload) {
        match section? {
            Section::Header { .. } | Section::DeliveryAnnotations(_) => {}
            Section::MessageAnnotations(annotations) => return Ok(annotations),
            _ => break,
        }
    }
    Ok(Vec::new())
}

fn key_of(annotations: Annotations<'_>) -> Option<Cow<'_, str>> {
    let is_key = |entry: &(Value<'_>, Value<'_>)| entry.0.as_text() == Some(PARTITION_KEY);
    match annotations.into_iter().find(is_key)?.1 {
        Value::String(key) | Value::Symbol(key) => Some(key),
        _ => None,
    }
}

impl<'a> IncomingEvent<'a> {
    pub(in crate::amqp) fn parse(message: &'a [u8]) -> Result<IncomingEvent<'a>, DecodeError> {
        let mut event = IncomingEvent::default();
        let mut types = Map::new();
        let mut body = None;
        let mut sections = MessageReader::new(message);
        loop {
            let rest = sections.rest();
            let Some(section) = sections.next() else {
                break;
            };
            match section? {
                Section::Header { .. } | Section::Footer | Section::DeliveryAnnotations(_) => {}
                Section::MessageAnnotations(annotations) => event.key = key_of(annotations),
                Section::Properties(fields) => event.add_properties(fields, &mut types),
                Section::ApplicationProperties(entries) => {
                    for (name, value) in entries {
                        if let Value::String(name) | Value::Symbol(name) = name {
                            event.add(name, &value, "string", &mut types);
                        }
                    }
                }
                Section::Data(data) => match &body {
                    None => {
                        body = Some(BODY);
                        event.value = Cow::Borrowed(data);
                    }
                    Some(_) => event.value.to_mut().extend_from_slice(data),
                },
                Section::Value(Value::String(Cow::Borrowed(text))) if body.is_none() => {
                    body = Some(BODY_STRING);
                    event.value = Cow::Borrowed(text.as_bytes());
                }
                Section::Value(_) | Section::Sequence(_) => {
                    body = Some(BODY_SECTIONS);
                    let raw = &rest[..rest.len() - sections.rest().len()];
                    event.value.to_mut().extend_from_slice(raw);
                }
            }
        }
        event.add_kinds(body, types);
        Ok(event)
    }

    fn add_properties(&mut self, fields: Vec<Value<'a>>, types: &mut Map<String, Json>) {
        for (field, (name, default)) in fields.into_iter().zip(PROPERTY_FIELDS) {
            if field != Value::Null {
                self.add(Cow::Borrowed(name), &field, default, types);
            }
        }
    }

    fn add(
        &mut self,
        name: Cow<'a, str>,
        value: &Value<'a>,
        default: &str,
        types: &mut Map<String, Json>,
    ) {
        let (bytes, kind) = property::to_header(value);
        if kind != default && bytes.is_some() {
            types.insert(name.clone().into_owned(), kind.into());
        }
        self.headers.push((name, bytes));
    }

    /// The headers with the types of the others and of the value.
    fn add_kinds(&mut self, body: Option<&'static str>, types: Map<String, Json>) {
        if let Some(kind @ (BODY_STRING | BODY_SECTIONS)) = body {
            let kind = Cow::Borrowed(kind.as_bytes());
            self.headers.push((Cow::Borrowed(BODY), Some(kind)));
        }
        if !types.is_empty() {
            let text = Json::Object(types).to_string();
            let text = Cow::Owned(text.into_bytes());
            self.headers.push((Cow::Borrowed(TYPES), Some(text)));
        }
    }
}
