//! Writes the parts of events.

use std::time::Duration;

use highwater_codec::Writer;

use crate::message::{LockExpiry, Message, MessageState, Properties};
use crate::settings::Settings;

pub(super) fn settings(out: &mut Vec<u8>, settings: &Settings) {
    let millis = |time: Duration| time.as_millis() as u64;
    out.varint(millis(settings.lock));
    out.varint(u64::from(settings.deliveries_max));
    optional(out, settings.time_to_live.as_ref(), |out, time| {
        out.varint(millis(*time));
    });
    out.bool(settings.dead_letter_expired);
    optional(out, settings.duplicates_within.as_ref(), |out, time| {
        out.varint(millis(*time));
    });
    out.bool(settings.sessions);
    out.varint(settings.bytes_max);
    out.varint(u64::from(settings.message_bytes_max));
}

pub(super) fn settled(out: &mut Vec<u8>, kind: u8, seq: u64, others: &Option<Properties>) {
    out.u8(kind);
    out.varint(seq);
    optional(out, others.as_ref(), properties);
}

pub(super) fn put(out: &mut Vec<u8>, kind: u8, seq: u64, message: &Message) {
    out.u8(kind);
    out.varint(seq);
    let content = &*message.content;
    out.i64_be(message.enqueued_ms);
    optional(out, message.expires_ms.as_ref(), |out, at| out.i64_be(*at));
    out.varint(u64::from(message.deliveries));
    match message.state {
        MessageState::Ready => out.u8(0),
        MessageState::Scheduled => out.u8(1),
        MessageState::Deferred => out.u8(2),
        MessageState::Locked(lock) => {
            out.u8(3);
            out.varint(lock.number);
            until(out, lock.until);
            out.bool(lock.deferred);
        }
    }
    optional(out, message.dead_letter.as_ref(), |out, dead_letter| {
        out.text_var(&dead_letter.reason);
        out.text_var(&dead_letter.description);
        out.i64_be(dead_letter.at_ms);
    });
    for text in [&content.id, &content.session, &content.content_type] {
        optional(out, text.as_ref(), |out, text| out.text_var(text));
    }
    properties(out, &content.properties);
    out.blob_var(&content.body);
}

fn properties(out: &mut Vec<u8>, properties: &Properties) {
    out.varint(properties.len() as u64);
    for (name, value) in properties {
        out.text_var(name);
        out.text_var(value);
    }
}

pub(super) fn until(out: &mut Vec<u8>, until: LockExpiry) {
    match until {
        LockExpiry::Session => out.u8(0),
        LockExpiry::Time(at) => {
            out.u8(1);
            out.i64_be(at);
        }
    }
}

pub(super) fn optional<T>(
    out: &mut Vec<u8>,
    value: Option<&T>,
    write: impl FnOnce(&mut Vec<u8>, &T),
) {
    out.bool(value.is_some());
    if let Some(value) = value {
        write(out, value);
    }
}

pub(super) fn list(out: &mut Vec<u8>, numbers: &[u64]) {
    out.varint(numbers.len() as u64);
    numbers.iter().for_each(|value| out.varint(*value));
}
