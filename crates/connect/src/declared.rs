//! CREATE TABLE: whether a value has its declared type, after lossless widening.
//!
//! A JSON integer may be a float and an ISO text a datetime; the text `"12"` is not a bigint. CSV text has no type of
//! its own and is parsed. NULL has every type.

use highwater_engine::{Value, ValueRef};
use highwater_query::plan::Type;
use highwater_time::Instant;

use crate::source::Level;

/// The widened value; `None` if the value stays as it is. The error describes the value.
pub(crate) fn widen(
    value: ValueRef<'_>,
    declared: Type,
    level: Level,
) -> Result<Option<Value>, String> {
    Ok(Some(match (declared, value) {
        (_, ValueRef::Null)
        | (Type::Bigint, ValueRef::Int(_))
        | (Type::Float, ValueRef::Float(_))
        | (Type::Text, ValueRef::Text(_))
        | (Type::Datetime, ValueRef::Time(_))
        | (Type::Bit, ValueRef::Bit(_))
        | (Type::Record, ValueRef::Record(_))
        | (Type::Array, ValueRef::Array(_)) => return Ok(None),
        (Type::Float, ValueRef::Int(value)) => Value::Float(value as f64),
        (Type::Datetime, ValueRef::Text(text)) => {
            match Instant::parse_iso(text.trim().as_bytes()) {
                Some(time) => Value::Time(time),
                None => {
                    return Err(format!(
                        "the text {}, which is not a date-time",
                        shown(text)
                    ));
                }
            }
        }
        // Levels below 1.2 have no bit: a boolean has already become a number.
        (Type::Bit, ValueRef::Int(0 | 1)) if level < Level::V1_2 => return Ok(None),
        // Level 1.0 turns a date text into a time.
        (Type::Text, ValueRef::Time(time)) => {
            let mut text = Vec::new();
            time.write_iso(&mut text);
            Value::text(&String::from_utf8_lossy(&text))
        }
        (_, ValueRef::Text(text)) => return Err(format!("the text {}", shown(text))),
        (_, other) => return Err(format!("a {}", other.type_name())),
    }))
}

/// Parses CSV text as its declared type.
pub(crate) fn parse(text: &str, declared: Type, level: Level) -> Result<Value, String> {
    let trimmed = text.trim();
    if declared == Type::Text {
        return Ok(Value::text(text));
    }
    if trimmed.is_empty() || trimmed.eq_ignore_ascii_case("null") {
        return Ok(Value::Null);
    }
    let value = match declared {
        Type::Bigint => trimmed.parse().ok().map(Value::Int),
        Type::Float => parse_float(trimmed, level).map(Value::Float),
        Type::Datetime => Instant::parse_iso(trimmed.as_bytes()).map(Value::Time),
        Type::Bit => match &trimmed.to_ascii_lowercase()[..] {
            "true" | "1" => Some(Value::Bit(true)),
            "false" | "0" => Some(Value::Bit(false)),
            _ => None,
        },
        Type::Text | Type::Record | Type::Array => None,
    };
    value.ok_or_else(|| format!("the text {}", shown(text)))
}

fn parse_float(text: &str, level: Level) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    (value.is_finite() || level == Level::V1_0).then_some(value)
}

fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{:?}..", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The time that level 1.0 makes of a JSON text: a full date with a time of day.
pub(crate) fn date_text(text: &str) -> Option<Instant> {
    const SHORTEST: usize = "2026-01-01T00:00:00".len();
    let looks_like_one = text.len() >= SHORTEST
        && text.as_bytes()[..4].iter().all(u8::is_ascii_digit)
        && text.as_bytes()[10] == b'T';
    looks_like_one
        .then(|| Instant::parse_iso(text.as_bytes()))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_widening_that_loses_nothing_is_done() {
        let widened = |value: Value, declared| widen(value.view(), declared, Level::V1_2);
        assert!(matches!(
            widened(Value::Int(2), Type::Float),
            Ok(Some(Value::Float(2.0)))
        ));
        assert!(matches!(
            widened(Value::text("2026-01-01"), Type::Datetime),
            Ok(Some(Value::Time(_)))
        ));
        assert_eq!(
            widened(Value::text("12"), Type::Bigint).unwrap_err(),
            "the text \"12\""
        );
        assert_eq!(
            widened(Value::Float(1.0), Type::Bigint).unwrap_err(),
            "a float"
        );
        assert!(matches!(widened(Value::Null, Type::Array), Ok(None)));
    }

    #[test]
    fn csv_text_is_parsed_into_its_type() {
        let parsed = |text: &str, declared| parse(text, declared, Level::V1_2);
        assert!(matches!(parsed(" -5 ", Type::Bigint), Ok(Value::Int(-5))));
        assert!(matches!(parsed("TRUE", Type::Bit), Ok(Value::Bit(true))));
        assert!(matches!(parsed("", Type::Float), Ok(Value::Null)));
        for (text, declared) in [
            ("1.5", Type::Bigint),
            ("NaN", Type::Float),
            ("1e999", Type::Float),
            ("soon", Type::Datetime),
            ("{}", Type::Record),
        ] {
            assert!(parsed(text, declared).is_err(), "{text}");
        }
        assert!(parse("NaN", Type::Float, Level::V1_0).is_ok());
    }
}
