//! Stored records as JSON.
//!
//! A JSON value is in `value` as it was sent; any other is base64 in `value_base64`. Keys and header values are
//! strings, or base64 if they are not UTF-8.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use highwater_log::batch::Record;
use highwater_log::{EnqueueTime, Offset};
use serde::de::IgnoredAny;

use crate::text::write_time;

/// `{"partition":0,"offset":7,"enqueued":"..","key":"k","headers":{..},"value":..}`, with the hub first if it is a
/// member of a sharded one.
pub(crate) fn write_record(
    out: &mut Vec<u8>,
    hub: Option<&str>,
    partition: u32,
    record: &Record<'_>,
) {
    let time = EnqueueTime(record.timestamp);
    write_position(out, hub, partition, record.offset, time);
    if let Some(key) = record.key {
        write_named(out, b"key", key);
    }
    write_headers(out, record.headers.into_iter());
    write_value(out, record.value);
    out.push(b'}');
}

/// `,"value":..` as it was sent if it is JSON, else `,"value_base64":".."`.
pub(crate) fn write_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.extend_from_slice(b",\"value\":null"),
        Some(value) if is_json(value) => {
            out.extend_from_slice(b",\"value\":");
            out.extend_from_slice(value.trim_ascii());
        }
        Some(value) => {
            out.extend_from_slice(b",\"value_base64\":");
            write_base64(out, value);
        }
    }
}

/// `{"hub":"h","partition":1,"offset":42,"enqueued":".."`, without the closing brace. Names of hubs need no
/// escaping.
pub(crate) fn write_position(
    out: &mut Vec<u8>,
    hub: Option<&str>,
    partition: u32,
    offset: Offset,
    time: EnqueueTime,
) {
    let mut digits = itoa::Buffer::new();
    out.push(b'{');
    if let Some(hub) = hub {
        out.extend_from_slice(b"\"hub\":\"");
        out.extend_from_slice(hub.as_bytes());
        out.extend_from_slice(b"\",");
    }
    out.extend_from_slice(b"\"partition\":");
    out.extend_from_slice(digits.format(partition).as_bytes());
    out.extend_from_slice(b",\"offset\":");
    out.extend_from_slice(digits.format(offset.0).as_bytes());
    out.extend_from_slice(b",\"enqueued\":\"");
    write_time(out, time);
    out.push(b'"');
}

/// `,"headers":{..}`, or nothing without headers.
pub(crate) fn write_headers<'a, N: AsRef<str>>(
    out: &mut Vec<u8>,
    headers: impl Iterator<Item = (N, Option<&'a [u8]>)>,
) {
    let mut headers = headers.peekable();
    if headers.peek().is_none() {
        return;
    }
    out.extend_from_slice(b",\"headers\":{");
    for (i, (name, value)) in headers.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_text(out, name.as_ref());
        out.push(b':');
        match value.map(std::str::from_utf8) {
            None => out.extend_from_slice(b"null"),
            Some(Ok(text)) => write_text(out, text),
            Some(Err(_)) => {
                out.extend_from_slice(b"{\"base64\":");
                write_base64(out, value.unwrap_or_default());
                out.push(b'}');
            }
        }
    }
    out.push(b'}');
}

/// `,"name":"text"` or `,"name_base64":".."`
pub(crate) fn write_named(out: &mut Vec<u8>, name: &[u8], bytes: &[u8]) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name);
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            out.extend_from_slice(b"\":");
            write_text(out, text);
        }
        Err(_) => {
            out.extend_from_slice(b"_base64\":");
            write_base64(out, bytes);
        }
    }
}

pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a text can be written into memory");
}

pub(crate) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.push(b'"');
}

pub(crate) fn is_json(value: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(value).is_ok() && std::str::from_utf8(value).is_ok()
}
