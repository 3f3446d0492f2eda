//! Messages as JSON.
//!
//! A JSON body is in `body` as it was sent; any other is base64 in `body_base64`.

use std::io::Write;

use highwater_log::EnqueueTime;
use highwater_queue::{DeadLetterCause, Delivery, LockToken, Message, MessageState, PeekedMessage};

use super::settle::Outcomes;
use crate::http::json::{is_json, write_base64, write_text};
use crate::text::{time_text, write_time};

/// The usual size of a message's JSON without its body.
const MESSAGE_BYTES: usize = 256;

/// `{"messages":[..]}`, and the outcomes of settlements.
pub(super) fn deliveries(deliveries: &[Delivery], outcomes: Option<&Outcomes>) -> Vec<u8> {
    let size = |delivery: &Delivery| MESSAGE_BYTES + delivery.message.content.body.len();
    let size = deliveries.iter().map(size).sum();
    let mut out = list(deliveries, size, |out, delivery| {
        let message = &delivery.message;
        write_message(out, delivery.seq, message, |out| {
            if let Some((token, until_ms)) = delivery.lock {
                write_lock(out, token, until_ms);
            }
        });
    });
    if let Some(outcomes) = outcomes {
        out.pop();
        write_name(&mut out, "settled");
        let mut digits = itoa::Buffer::new();
        out.extend_from_slice(digits.format(outcomes.settled).as_bytes());
        write_name(&mut out, "failed");
        serde_json::to_writer(&mut out, &outcomes.failed)
            .expect("values can be written into memory");
        out.push(b'}');
    }
    out
}

/// The same, with states instead of locks.
pub(super) fn peeked(peeked: &[PeekedMessage]) -> Vec<u8> {
    let size = |peeked: &PeekedMessage| MESSAGE_BYTES + peeked.message.content.body.len();
    let size = peeked.iter().map(size).sum();
    list(peeked, size, |out, PeekedMessage { seq, message }| {
        write_message(out, *seq, message, |out| {
            out.extend_from_slice(b",\"state\":");
            write_text(out, state_name(message.state));
        });
    })
}

/// Writes a list; `size` is its estimated size.
fn list<T>(items: &[T], size: usize, mut write: impl FnMut(&mut Vec<u8>, &T)) -> Vec<u8> {
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(b"{\"messages\":[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(&mut out, item);
    }
    out.extend_from_slice(b"]}");
    out
}

pub(in crate::http) fn state_name(state: MessageState) -> &'static str {
    match state {
        MessageState::Ready => "active",
        MessageState::Scheduled => "scheduled",
        MessageState::Deferred => "deferred",
        MessageState::Locked(_) => "locked",
    }
}

fn write_message(out: &mut Vec<u8>, seq: u64, message: &Message, more: impl FnOnce(&mut Vec<u8>)) {
    let content = &message.content;
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"{\"sequence\":");
    out.extend_from_slice(digits.format(seq).as_bytes());
    out.extend_from_slice(b",\"enqueued\":\"");
    write_time(out, EnqueueTime(message.enqueued_ms));
    out.extend_from_slice(b"\",\"deliveries\":");
    out.extend_from_slice(digits.format(message.deliveries).as_bytes());
    more(out);
    let texts = [
        ("id", &content.id),
        ("session", &content.session),
        ("content_type", &content.content_type),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            write_name(out, name);
            write_text(out, text);
        }
    }
    if let Some(at) = message.expires_ms {
        write_name(out, "expires");
        write_text(out, &time_text(EnqueueTime(at)));
    }
    if !content.properties.is_empty() {
        write_properties(out, &content.properties);
    }
    if let Some(dead_letter) = &message.dead_letter {
        write_dead_letter(out, dead_letter);
    }
    match is_json(&content.body) {
        true => {
            write_name(out, "body");
            out.extend_from_slice(content.body.trim_ascii());
        }
        false => {
            write_name(out, "body_base64");
            write_base64(out, &content.body);
        }
    }
    out.push(b'}');
}

fn write_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn write_lock(out: &mut Vec<u8>, token: LockToken, until_ms: i64) {
    write_name(out, "token");
    write!(out, "\"{token}\"").expect("a token can be written into memory");
    out.extend_from_slice(b",\"locked_until\":\"");
    write_time(out, EnqueueTime(until_ms));
    out.push(b'"');
}

fn write_properties(out: &mut Vec<u8>, properties: &[(String, String)]) {
    write_name(out, "properties");
    out.push(b'{');
    for (at, (name, value)) in properties.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_text(out, name);
        out.push(b':');
        write_text(out, value);
    }
    out.push(b'}');
}

fn write_dead_letter(out: &mut Vec<u8>, dead_letter: &DeadLetterCause) {
    write_name(out, "dead_letter");
    out.extend_from_slice(b"{\"reason\":");
    write_text(out, &dead_letter.reason);
    write_name(out, "description");
    write_text(out, &dead_letter.description);
    write_name(out, "at");
    write_text(out, &time_text(EnqueueTime(dead_letter.at_ms)));
    out.push(b'}');
}
