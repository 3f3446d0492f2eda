//! From a record to a message for a client.
//!
//! All messages of a read are written into one buffer, section by section.

use bytes::{Bytes, BytesMut};
use highwater_amqp::{Encoder, MessageReader, Section, Value};
use highwater_log::batch::Record;
use highwater_log::{EnqueueTime, Offset};
use serde_json::{Map, Value as Json};

use super::{BODY, BODY_SECTIONS, BODY_STRING, PARTITION_KEY, PROPERTY_FIELDS, TYPES, property};

/// The end of a partition, for clients that want it with every message.
#[derive(Clone, Copy, Debug)]
pub(in crate::amqp) struct LastEnqueued {
    pub(in crate::amqp) offset: Offset,
    pub(in crate::amqp) time: EnqueueTime,
    /// When this was looked up.
    pub(in crate::amqp) now_ms: i64,
}

/// Encodes the messages of a read.
#[derive(Default)]
pub(in crate::amqp) struct MessageEncoder {
    buffer: BytesMut,
    /// The end of each message.
    ends: Vec<usize>,
    last_enqueued: Option<LastEnqueued>,
}

/// The types in the headers of a record.
struct HeaderKinds<'a> {
    types: Map<String, Json>,
    body: Option<&'a [u8]>,
    has_properties: bool,
    /// Headers that are application properties.
    others: usize,
}

impl MessageEncoder {
    pub(in crate::amqp) fn new(last_enqueued: Option<LastEnqueued>) -> MessageEncoder {
        MessageEncoder {
            last_enqueued,
            ..MessageEncoder::default()
        }
    }

    pub(in crate::amqp) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    pub(in crate::amqp) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The messages, in order.
    pub(in crate::amqp) fn finish(self) -> impl Iterator<Item = Bytes> {
        let buffer = self.buffer.freeze();
        let mut start = 0;
        self.ends.into_iter().map(move |end| {
            let message = buffer.slice(start..end);
            start = end;
            message
        })
    }

    pub(in crate::amqp) fn push(&mut self, record: &Record<'_>) {
        let kinds = HeaderKinds::of(record);
        let last_enqueued = self.last_enqueued;
        let mut encoder = Encoder::new(&mut self.buffer);
        write_header(&mut encoder);
        if let Some(last) = last_enqueued {
            write_last_enqueued(&mut encoder, &last);
        }
        write_annotations(&mut encoder, record);
        if kinds.has_properties {
            kinds.write_properties(&mut encoder, record);
        }
        if kinds.others > 0 {
            kinds.write_application_properties(&mut encoder, record);
        }
        let value = record.value.unwrap_or_default();
        match kinds.body {
            Some(kind) if kind == BODY_STRING.as_bytes() && std::str::from_utf8(value).is_ok() => {
                encoder.descriptor(Section::VALUE);
                encoder.string(std::str::from_utf8(value).unwrap_or_default());
            }
            Some(kind) if kind == BODY_SECTIONS.as_bytes() && is_body(value) => {
                self.buffer.extend_from_slice(value);
            }
            _ => encoder.data_section(value),
        }
        self.ends.push(self.buffer.len());
    }
}

/// Whether bytes are sections of a body: the header with the type may come from any client.
pub(in crate::amqp) fn is_body(value: &[u8]) -> bool {
    let is_body = |section| matches!(section, Ok(Section::Value(_) | Section::Sequence(_)));
    !value.is_empty() && MessageReader::new(value).all(is_body)
}

/// A transport header with its defaults: Java fails on a message without one.
fn write_header(encoder: &mut Encoder<'_>) {
    encoder.descriptor(Section::HEADER);
    let list = encoder.list();
    encoder.bool(false);
    encoder.null();
    encoder.null();
    encoder.bool(false);
    encoder.uint(0);
    encoder.end(list, 5);
}

fn write_last_enqueued(encoder: &mut Encoder<'_>, last: &LastEnqueued) {
    encoder.descriptor(Section::DELIVERY_ANNOTATIONS);
    let map = encoder.map();
    encoder.symbol("last_enqueued_sequence_number");
    encoder.long(last.offset.0);
    encoder.symbol("last_enqueued_offset");
    encoder.string(itoa::Buffer::new().format(last.offset.0));
    encoder.symbol("last_enqueued_time_utc");
    encoder.timestamp(last.time.0);
    encoder.symbol("runtime_info_retrieval_time_utc");
    encoder.timestamp(last.now_ms);
    encoder.end(map, 8);
}

fn write_annotations(encoder: &mut Encoder<'_>, record: &Record<'_>) {
    encoder.descriptor(Section::MESSAGE_ANNOTATIONS);
    let map = encoder.map();
    encoder.symbol("x-opt-sequence-number");
    encoder.long(record.offset.0);
    encoder.symbol("x-opt-offset");
    encoder.string(itoa::Buffer::new().format(record.offset.0));
    encoder.symbol("x-opt-enqueued-time");
    encoder.timestamp(record.timestamp);
    let mut count = 6;
    // Clients read the key as a string, so a key of other bytes is left out.
    if let Some(Ok(key)) = record.key.map(std::str::from_utf8) {
        encoder.symbol(PARTITION_KEY);
        encoder.string(key);
        count += 2;
    }
    encoder.end(map, count);
}

fn is_property(name: &str) -> bool {
    PROPERTY_FIELDS.iter().any(|(header, _)| *header == name)
}

impl<'a> HeaderKinds<'a> {
    fn of(record: &Record<'a>) -> HeaderKinds<'a> {
        let mut kinds = HeaderKinds {
            types: Map::new(),
            body: None,
            has_properties: false,
            others: 0,
        };
        for (name, value) in record.headers {
            match (&*name, value) {
                (TYPES, Some(text)) => {
                    kinds.types = serde_json::from_slice(text).unwrap_or_default();
                }
                (BODY, kind) => kinds.body = kind,
                (name, Some(_)) if is_property(name) => kinds.has_properties = true,
                (TYPES, None) => {}
                _ => kinds.others += 1,
            }
        }
        kinds
    }

    fn value<'v>(&self, name: &str, bytes: &'v [u8], default: &str) -> Value<'v> {
        let kind = self.types.get(name).and_then(Json::as_str);
        property::from_header(bytes, kind.unwrap_or(default))
    }

    fn write_properties(&self, encoder: &mut Encoder<'_>, record: &Record<'_>) {
        encoder.descriptor(Section::PROPERTIES);
        let list = encoder.list();
        for (field, default) in PROPERTY_FIELDS {
            let mut headers = record.headers;
            match headers.find(|(name, value)| name == field && value.is_some()) {
                Some((_, Some(bytes))) => encoder.value(&self.value(field, bytes, default)),
                _ => encoder.null(),
            }
        }
        encoder.end(list, PROPERTY_FIELDS.len());
    }

    fn write_application_properties(&self, encoder: &mut Encoder<'_>, record: &Record<'_>) {
        encoder.descriptor(Section::APPLICATION_PROPERTIES);
        let map = encoder.map();
        let mut count = 0;
        for (name, value) in record.headers {
            if matches!(&*name, TYPES | BODY) || value.is_some() && is_property(&name) {
                continue;
            }
            encoder.string(&name);
            match value {
                Some(bytes) => encoder.value(&self.value(&name, bytes, "string")),
                None => encoder.null(),
            }
            count += 2;
        }
        encoder.end(map, count);
    }
}
