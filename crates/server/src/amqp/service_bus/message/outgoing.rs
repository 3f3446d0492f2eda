//! From a message of a queue to one for a client.

use bytes::BytesMut;
use highwater_amqp::{Encoder, Section, Value};
use highwater_queue::{Content, LockToken, Message, MessageState};
use serde_json::{Map, Value as Json};

use super::properties::{types_of, value_of};
use super::{
    ANNOTATIONS, CREATION_TIME, DESCRIPTION, EXPIRY_TIME, GROUP_ID, MESSAGE_ID, REASON, SCHEDULED,
    is_reserved,
};
use crate::amqp::event::{
    BODY, BODY_SECTIONS, BODY_STRING, CONTENT_TYPE, PROPERTY_FIELDS, is_body,
};
use crate::amqp::service_bus::lock_token::to_uuid;

/// A message and how a client sees it.
pub(in crate::amqp::service_bus) struct OutgoingState<'a> {
    pub(in crate::amqp::service_bus) seq: u64,
    pub(in crate::amqp::service_bus) message: &'a Message,
    /// The token and the end of the lock.
    pub(in crate::amqp::service_bus) lock: Option<(LockToken, i64)>,
    /// It is delivered now: the count has this delivery in it.
    pub(in crate::amqp::service_bus) is_delivery: bool,
    pub(in crate::amqp::service_bus) queue: &'a str,
}

/// Appends the encoded message.
pub(in crate::amqp::service_bus) fn encode(state: &OutgoingState<'_>, out: &mut BytesMut) {
    let content = &*state.message.content;
    let types = types_of(&content.properties);
    let mut encoder = Encoder::new(out);
    write_header(&mut encoder, state);
    if let Some((token, _)) = state.lock {
        encoder.descriptor(Section::DELIVERY_ANNOTATIONS);
        let map = encoder.map();
        encoder.symbol("x-opt-lock-token");
        encoder.value(&Value::Uuid(to_uuid(token)));
        encoder.end(map, 2);
    }
    write_annotations(&mut encoder, state, &types);
    write_fields(&mut encoder, state, &types);
    write_application_properties(&mut encoder, state, &types);
    write_body(content, out);
}

/// The time to live, and the deliveries before this one.
fn write_header(encoder: &mut Encoder<'_>, state: &OutgoingState<'_>) {
    let message = state.message;
    encoder.descriptor(Section::HEADER);
    let list = encoder.list();
    encoder.bool(true);
    encoder.null();
    let ttl_ms = message.expires_ms.map(|at| at - message.enqueued_ms);
    match ttl_ms.and_then(|ms| u32::try_from(ms).ok()) {
        Some(ms) => encoder.uint(ms),
        None => encoder.null(),
    }
    encoder.bool(false);
    let now = u32::from(state.is_delivery);
    encoder.uint(message.deliveries.saturating_sub(now));
    encoder.end(list, 5);
}

fn write_annotations(
    encoder: &mut Encoder<'_>,
    state: &OutgoingState<'_>,
    types: &Map<String, Json>,
) {
    let message = state.message;
    let seq = i64::try_from(state.seq).unwrap_or(i64::MAX);
    encoder.descriptor(Section::MESSAGE_ANNOTATIONS);
    let map = encoder.map();
    let mut count = 0;
    let mut add = |name: &str, value: &Value<'_>| {
        encoder.symbol(name);
        encoder.value(value);
        count += 2;
    };
    add("x-opt-sequence-number", &Value::I64(seq));
    add("x-opt-enqueue-sequence-number", &Value::I64(seq));
    add(
        "x-opt-enqueued-time",
        &Value::Timestamp(message.enqueued_ms),
    );
    let number = match message.state {
        MessageState::Ready => 0,
        MessageState::Deferred => 1,
        MessageState::Scheduled => 2,
        MessageState::Locked(lock) => i32::from(lock.deferred),
    };
    add("x-opt-message-state", &Value::I32(number));
    if let Some((_, until_ms)) = state.lock {
        add("x-opt-locked-until", &Value::Timestamp(until_ms));
    }
    if message.dead_letter.is_some() {
        add("x-opt-deadletter-source", &Value::string(state.queue));
    }
    let mut is_scheduled = message.state == MessageState::Scheduled;
    for (annotation, property) in ANNOTATIONS {
        if let Some(text) = property_text(&message.content, property) {
            add(annotation, &typed(types, property, text, "string"));
            is_scheduled &= annotation != SCHEDULED;
        }
    }
    if is_scheduled {
        // Of a sender over HTTP.
        add(SCHEDULED, &Value::Timestamp(message.enqueued_ms));
    }
    encoder.end(map, count);
}

fn property_text<'a>(content: &'a Content, name: &str) -> Option<&'a str> {
    let mut properties = content.properties.iter();
    let property = properties.find(|(known, _)| known == name);
    property.map(|(_, text)| text.as_str())
}

fn typed<'a>(types: &Map<String, Json>, name: &str, text: &'a str, default: &str) -> Value<'a> {
    let kind = types.get(name).and_then(Json::as_str);
    value_of(text, kind.unwrap_or(default))
}

fn write_fields(encoder: &mut Encoder<'_>, state: &OutgoingState<'_>, types: &Map<String, Json>) {
    let (message, content) = (state.message, &*state.message.content);
    // JavaScript renews the lock of a message by its id.
    let made_id = format!("{:032x}", state.seq);
    encoder.descriptor(Section::PROPERTIES);
    let list = encoder.list();
    for (name, default) in PROPERTY_FIELDS {
        let text = match name {
            MESSAGE_ID => Some(content.id.as_deref().unwrap_or(&made_id)),
            CONTENT_TYPE => content.content_type.as_deref(),
            GROUP_ID => content.session.as_deref(),
            _ => property_text(content, name),
        };
        match (name, message.expires_ms, text) {
            (EXPIRY_TIME, Some(at_ms), _) => encoder.timestamp(at_ms),
            (CREATION_TIME, Some(_), _) => encoder.timestamp(message.enqueued_ms),
            (_, _, Some(text)) => encoder.value(&typed(types, name, text, default)),
            _ => encoder.null(),
        }
    }
    encoder.end(list, PROPERTY_FIELDS.len());
}

fn write_application_properties(
    encoder: &mut Encoder<'_>,
    state: &OutgoingState<'_>,
    types: &Map<String, Json>,
) {
    let mut count = 0;
    encoder.descriptor(Section::APPLICATION_PROPERTIES);
    let map = encoder.map();
    let cause = state.message.dead_letter.as_deref();
    for (name, text) in &state.message.content.properties {
        let is_cause = cause.is_some() && matches!(name.as_str(), REASON | DESCRIPTION);
        if is_reserved(name) || is_cause {
            continue;
        }
        encoder.string(name);
        encoder.value(&typed(types, name, text, "string"));
        count += 2;
    }
    if let Some(cause) = cause {
        let texts = [(REASON, &cause.reason), (DESCRIPTION, &cause.description)];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            encoder.string(name);
            encoder.string(text);
            count += 2;
        }
    }
    encoder.end(map, count);
}

fn write_body(content: &Content, out: &mut BytesMut) {
    let body = &content.body;
    match (property_text(content, BODY), std::str::from_utf8(body)) {
        (Some(BODY_STRING), Ok(text)) => {
            let mut encoder = Encoder::new(out);
            encoder.descriptor(Section::VALUE);
            encoder.string(text);
        }
        (Some(BODY_SECTIONS), _) if is_body(body) => out.extend_from_slice(body),
        _ => Encoder::new(out).data_section(body),
    }
}
