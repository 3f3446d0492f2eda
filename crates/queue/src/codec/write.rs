//! The pieces that events are written in.

use std::time::Duration;

use crate::message::{Message, Properties, State, Until};
use crate::settings::Settings;

pub fn settings(out: &mut Vec<u8>, settings: &Settings) {
    let millis = |time: Duration| time.as_millis() as u64;
    number(out, millis(settings.lock));
    number(out, u64::from(settings.deliveries_max));
    optional(out, settings.time_to_live.as_ref(), |out, time| {
        number(out, millis(*time));
    });
    out.push(u8::from(settings.dead_letter_expired));
    optional(out, settings.duplicates_within.as_ref(), |out, time| {
        number(out, millis(*time));
    });
    out.push(u8::from(settings.sessions));
    number(out, settings.bytes_max);
    number(out, u64::from(settings.message_bytes_max));
}

pub fn settled(out: &mut Vec<u8>, kind: u8, seq: u64, others: &Option<Properties>) {
    out.push(kind);
    number(out, seq);
    optional(out, others.as_ref(), properties);
}

pub fn put(out: &mut Vec<u8>, kind: u8, seq: u64, message: &Message) {
    out.push(kind);
    number(out, seq);
    let content = &*message.content;
    time(out, message.enqueued_ms);
    optional(out, message.expires_ms.as_ref(), |out, at| time(out, *at));
    number(out, u64::from(message.deliveries));
    match message.state {
        State::Ready => out.push(0),
        State::Scheduled => out.push(1),
        State::Deferred => out.push(2),
        State::Locked(lock) => {
            out.push(3);
            number(out, lock.number);
            until(out, lock.until);
            out.push(u8::from(lock.deferred));
        }
    }
    optional(out, message.death.as_ref(), |out, death| {
        bytes(out, death.reason.as_bytes());
        bytes(out, death.description.as_bytes());
        time(out, death.at_ms);
    });
    for text in [&content.id, &content.session, &content.content_type] {
        optional(out, text.as_ref(), |out, text| bytes(out, text.as_bytes()));
    }
    properties(out, &content.properties);
    bytes(out, &content.body);
}

fn properties(out: &mut Vec<u8>, properties: &Properties) {
    number(out, properties.len() as u64);
    for (name, value) in properties {
        bytes(out, name.as_bytes());
        bytes(out, value.as_bytes());
    }
}

pub fn until(out: &mut Vec<u8>, until: Until) {
    match until {
        Until::Session => out.push(0),
        Until::Time(at) => {
            out.push(1);
            time(out, at);
        }
    }
}

pub fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Eight bytes, the highest first: times and offsets may be negative.
pub fn time(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    number(out, value.len() as u64);
    out.extend_from_slice(value);
}

pub fn optional<T>(out: &mut Vec<u8>, value: Option<&T>, write: impl FnOnce(&mut Vec<u8>, &T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        write(out, value);
    }
}

pub fn list(out: &mut Vec<u8>, numbers: &[u64]) {
    number(out, numbers.len() as u64);
    numbers.iter().for_each(|value| number(out, *value));
}
