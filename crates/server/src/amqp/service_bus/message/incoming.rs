//! From a client's message to one of a queue.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use highwater_amqp::{DecodeError, MessageReader, Section, Value};
use highwater_queue::NewMessage;

use super::properties::TypedProperties;
use super::{ANNOTATIONS, CREATION_TIME, EXPIRY_TIME, GROUP_ID, MESSAGE_ID, SCHEDULED};
use crate::amqp::event::{BODY, BODY_SECTIONS, BODY_STRING, CONTENT_TYPE, PROPERTY_FIELDS};

/// The body of a message while its sections are read.
#[derive(Default)]
struct Body {
    bytes: BytesMut,
    kind: Option<&'static str>,
    /// A section was received.
    is_there: bool,
}

pub(in crate::amqp::service_bus) fn parse(message: &[u8]) -> Result<NewMessage, DecodeError> {
    let mut new = NewMessage::default();
    let mut properties = TypedProperties::default();
    let mut body = Body::default();
    let mut sections = MessageReader::new(message);
    loop {
        let rest = sections.rest();
        let Some(section) = sections.next() else {
            break;
        };
        match section? {
            Section::Header { ttl_ms } => new.time_to_live_ms = ttl_ms.map(i64::from),
            Section::Footer | Section::DeliveryAnnotations(_) => {}
            Section::MessageAnnotations(annotations) => {
                add_annotations(&mut new, &mut properties, &annotations);
            }
            Section::Properties(fields) => add_fields(&mut new, &mut properties, &fields),
            Section::ApplicationProperties(entries) => {
                for (name, value) in &entries {
                    if let Some(name) = name.as_text() {
                        properties.set(name, value, "string");
                    }
                }
            }
            Section::Data(data) => body.add(data, None),
            Section::Value(Value::String(Cow::Borrowed(text))) if !body.is_there => {
                body.add(text.as_bytes(), Some(BODY_STRING));
            }
            Section::Value(_) | Section::Sequence(_) => {
                let raw = &rest[..rest.len() - sections.rest().len()];
                body.add(raw, Some(BODY_SECTIONS));
            }
        }
    }
    if let Some(kind) = body.kind {
        properties.set_text(BODY, kind);
    }
    // Of its own size: the message may stay for long, and a slice would keep the whole network buffer.
    new.content.body = Bytes::copy_from_slice(&body.bytes);
    new.content.properties = properties.finish();
    Ok(new)
}

impl Body {
    fn add(&mut self, bytes: &[u8], kind: Option<&'static str>) {
        self.bytes.extend_from_slice(bytes);
        self.kind = self.kind.or(kind);
        self.is_there = true;
    }
}

fn add_annotations(
    new: &mut NewMessage,
    properties: &mut TypedProperties,
    annotations: &[(Value<'_>, Value<'_>)],
) {
    for (name, value) in annotations {
        let Some(name) = name.as_text() else {
            continue;
        };
        if let (SCHEDULED, Value::Timestamp(at_ms)) = (name, value) {
            new.scheduled_ms = Some(*at_ms);
        }
        let kept = ANNOTATIONS
            .iter()
            .find(|(annotation, _)| *annotation == name);
        if let Some((_, property)) = kept
            && *value != Value::Null
        {
            properties.set(property, value, "string");
        }
    }
}

fn add_fields(new: &mut NewMessage, properties: &mut TypedProperties, fields: &[Value<'_>]) {
    for (value, (name, default)) in fields.iter().zip(PROPERTY_FIELDS) {
        let content = &mut new.content;
        let own = match name {
            _ if *value == Value::Null => continue,
            // They follow from the time to live.
            EXPIRY_TIME | CREATION_TIME if new.time_to_live_ms.is_some() => continue,
            MESSAGE_ID => &mut content.id,
            CONTENT_TYPE => &mut content.content_type,
            GROUP_ID => &mut content.session,
            _ => {
                properties.set(name, value, default);
                continue;
            }
        };
        *own = Some(properties.text_of(name, value, default));
    }
}
