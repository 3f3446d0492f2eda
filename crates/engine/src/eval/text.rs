//! Values as text, for CAST and concatenation.
//!
//! Numbers are written for the invariant culture (`20`, `0.5`, `1E+16`): the shortest digits that read back as the same
//! float, without a fraction where there is none, because `'T=' + CAST(t AS nvarchar(max))` is expected to say `T=20`.
//! Records and arrays become compact JSON with the rules of JSON: a float keeps its `.0`, a bit is
//! `true` or `false`, text is quoted.

use crate::value::{Record, Value, ValueRef};

/// Floats of this many digits before the point or more are written with an exponent.
const EXPONENT_FROM: i32 = 15;
/// Floats below 10 to this power are written with an exponent.
const EXPONENT_BELOW: i32 = -4;

/// Appends a value as text. NULL appends nothing: callers handle NULL before.
pub fn write_text(value: ValueRef<'_>, out: &mut String) {
    match value {
        ValueRef::Null => {}
        ValueRef::Bit(b) => out.push(if b { '1' } else { '0' }),
        ValueRef::Int(i) => out.push_str(itoa::Buffer::new().format(i)),
        ValueRef::Float(f) => write_float(f, out),
        ValueRef::Text(t) => out.push_str(t),
        ValueRef::Time(t) => write_time(t, out),
        ValueRef::Record(record) => write_record(record, out),
        ValueRef::Array(items) => write_array(items, out),
    }
}

/// Appends a value as compact JSON.
pub fn write_json(value: ValueRef<'_>, out: &mut String) {
    match value {
        ValueRef::Null => out.push_str("null"),
        ValueRef::Bit(b) => out.push_str(if b { "true" } else { "false" }),
        ValueRef::Int(i) => out.push_str(itoa::Buffer::new().format(i)),
        ValueRef::Float(f) if f.is_finite() => out.push_str(ryu::Buffer::new().format_finite(f)),
        ValueRef::Float(_) => out.push_str("null"),
        ValueRef::Text(t) => write_json_text(t, out),
        ValueRef::Time(t) => {
            out.push('"');
            write_time(t, out);
            out.push('"');
        }
        ValueRef::Record(record) => write_record(record, out),
        ValueRef::Array(items) => write_array(items, out),
    }
}

fn write_time(time: highwater_time::Instant, out: &mut String) {
    let mut bytes = Vec::with_capacity(28);
    time.write_iso(&mut bytes);
    out.push_str(&String::from_utf8_lossy(&bytes));
}

fn write_record(record: &Record, out: &mut String) {
    out.push('{');
    for (at, (name, value)) in record.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_json_text(name, out);
        out.push(':');
        write_json(value.view(), out);
    }
    out.push('}');
}

fn write_array(items: &[Value], out: &mut String) {
    out.push('[');
    for (at, value) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_json(value.view(), out);
    }
    out.push(']');
}

fn write_json_text(text: &str, out: &mut String) {
    out.push('"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            _ => out.push_str(&format!("\\u{byte:04x}")),
        }
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}

fn write_float(f: f64, out: &mut String) {
    let mut buffer = ryu::Buffer::new();
    let (digits, exponent) = match f.is_finite() && f != 0.0 {
        true => decimal(buffer.format_finite(f.abs())),
        false => (if f == 0.0 { "0".into() } else { f.to_string() }, 0),
    };
    if f.is_sign_negative() && !f.is_nan() {
        out.push('-');
    }
    if !(EXPONENT_BELOW..EXPONENT_FROM).contains(&exponent) {
        write_scientific(&digits, exponent, out);
    } else {
        write_plain(&digits, exponent, out);
    }
}

/// The digits of a positive float without zeros at either end, and the power of ten of the first one.
fn decimal(shortest: &str) -> (String, i32) {
    let (mantissa, power) = match shortest.split_once('e') {
        Some((mantissa, power)) => (mantissa, power.parse().unwrap_or(0)),
        None => (shortest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let leading = all.len() - all.trim_start_matches('0').len();
    let digits = all.trim_matches('0').to_owned();
    (digits, power + whole.len() as i32 - 1 - leading as i32)
}

fn write_plain(digits: &str, exponent: i32, out: &mut String) {
    if exponent < 0 {
        out.push_str("0.");
        (1..-exponent).for_each(|_| out.push('0'));
        out.push_str(digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.push_str(digits);
        (digits.len()..whole).for_each(|_| out.push('0'));
    } else {
        out.push_str(&digits[..whole]);
        out.push('.');
        out.push_str(&digits[whole..]);
    }
}

fn write_scientific(digits: &str, exponent: i32, out: &mut String) {
    out.push_str(&digits[..1]);
    if digits.len() > 1 {
        out.push('.');
        out.push_str(&digits[1..]);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    out.push_str(&format!("E{sign}{:02}", exponent.unsigned_abs()));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn text(value: Value) -> String {
        let mut out = String::new();
        write_text(value.view(), &mut out);
        out
    }

    // proves S1
    #[test]
    fn floats_are_written_short_and_read_back_the_same() {
        for (float, expected) in [
            (20.0, "20"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (100.0, "100"),
            (123456.789, "123456.789"),
            (123456789012345.0, "123456789012345"),
            (1e15, "1E+15"),
            (1.2345678901234568e17, "1.2345678901234568E+17"),
            (0.00001, "1E-05"),
            (0.00012, "0.00012"),
            (1.7976931348623157e308, "1.7976931348623157E+308"),
            (5e-324, "5E-324"),
        ] {
            assert_eq!(text(Value::Float(float)), expected);
            assert_eq!(expected.parse::<f64>().ok(), Some(float));
        }
    }

    // proves S1
    #[test]
    fn nested_values_become_compact_json() {
        let mut inner = Record::with_capacity(2);
        inner.set("f".into(), Value::Float(1.0));
        inner.set("q\"".into(), Value::text("a\n\u{1}\\é"));
        let array = Value::Array(
            vec![
                Value::Null,
                Value::Bit(true),
                Value::Int(-3),
                Value::Record(Arc::new(inner)),
            ]
            .into(),
        );
        assert_eq!(
            text(array),
            r#"[null,true,-3,{"f":1.0,"q\"":"a\n\u0001\\é"}]"#
        );
        assert_eq!(text(Value::Bit(true)), "1");
        let time = highwater_time::Instant::from_ticks(0);
        assert_eq!(text(Value::Time(time)), "0001-01-01T00:00:00.0000000Z");
    }
}
