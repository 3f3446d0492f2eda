//! A typed property as the bytes of a header, and back.

use std::borrow::Cow;

use bytes::BytesMut;
use highwater_amqp::Value;
use highwater_log::EnqueueTime;
use highwater_time::Instant;

use crate::text::time_text;

/// The type of values that have no text: their AMQP encoding.
const ENCODED: &str = "amqp";

/// The bytes of a header, `None` for null, and the name of the type.
pub(in crate::amqp) fn to_header<'a>(value: &Value<'a>) -> (Option<Cow<'a, [u8]>>, &'static str) {
    let text = |text: String| Some(Cow::Owned(text.into_bytes()));
    let borrowed = |text: &Cow<'a, str>| match text {
        Cow::Borrowed(text) => Some(Cow::Borrowed(text.as_bytes())),
        Cow::Owned(text) => Some(Cow::Owned(text.clone().into_bytes())),
    };
    match value {
        Value::Null => (None, "null"),
        Value::String(value) => (borrowed(value), "string"),
        Value::Symbol(value) => (borrowed(value), "symbol"),
        Value::Binary(value) => (Some(value.clone()), "binary"),
        Value::Bool(value) => (text(value.to_string()), "boolean"),
        Value::U8(value) => (text(value.to_string()), "ubyte"),
        Value::U16(value) => (text(value.to_string()), "ushort"),
        Value::U32(value) => (text(value.to_string()), "uint"),
        Value::U64(value) => (text(value.to_string()), "ulong"),
        Value::I8(value) => (text(value.to_string()), "byte"),
        Value::I16(value) => (text(value.to_string()), "short"),
        Value::I32(value) => (text(value.to_string()), "int"),
        Value::I64(value) => (text(value.to_string()), "long"),
        Value::F32(value) => (text(value.to_string()), "float"),
        Value::F64(value) => (text(value.to_string()), "double"),
        Value::Uuid(value) => (text(uuid_text(value)), "uuid"),
        Value::Timestamp(unix_ms) if Instant::from_unix_millis(*unix_ms).is_in_calendar() => {
            (text(time_text(EnqueueTime(*unix_ms))), "timestamp")
        }
        other => {
            let mut bytes = BytesMut::new();
            other.encode(&mut bytes);
            (Some(Cow::Owned(bytes.to_vec())), ENCODED)
        }
    }
}

/// The value of a header with this type. A header that does not match its type, because another client wrote it, is a
/// string or binary.
pub(in crate::amqp) fn from_header<'a>(bytes: &'a [u8], kind: &str) -> Value<'a> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return match kind {
            ENCODED => Value::decode(bytes).unwrap_or(Value::Binary(bytes.into())),
            _ => Value::Binary(bytes.into()),
        };
    };
    let value = match kind {
        "symbol" => Some(Value::symbol(text)),
        "binary" => Some(Value::Binary(bytes.into())),
        "boolean" => text.parse().ok().map(Value::Bool),
        "ubyte" => text.parse().ok().map(Value::U8),
        "ushort" => text.parse().ok().map(Value::U16),
        "uint" => text.parse().ok().map(Value::U32),
        "ulong" => text.parse().ok().map(Value::U64),
        "byte" => text.parse().ok().map(Value::I8),
        "short" => text.parse().ok().map(Value::I16),
        "int" => text.parse().ok().map(Value::I32),
        "long" => text.parse().ok().map(Value::I64),
        "float" => text.parse().ok().map(Value::F32),
        "double" => text.parse().ok().map(Value::F64),
        "uuid" => uuid_of(text).map(Value::Uuid),
        "timestamp" => {
            let instant = Instant::parse_iso(bytes);
            instant.map(|instant| Value::Timestamp(instant.to_unix_millis()))
        }
        ENCODED => Value::decode(bytes).ok(),
        _ => None,
    };
    value.unwrap_or_else(|| Value::string(text))
}

/// `00112233-4455-6677-8899-aabbccddeeff`
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    let is_uuid = text.len() == 36 && digits.len() == 32 && digits.is_ascii();
    let number = is_uuid.then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some(number.to_be_bytes())
}
