//! TOML values as JSON, for bodies.

use highwater_settings::{Entry, FileReader};
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::DeValue;

/// `None` if the entry holds something that JSON does not have; that has been noted.
pub(super) fn read_json(reader: &mut FileReader<'_>, entry: &Entry<'_>) -> Option<Value> {
    to_json(entry.spanned()).map_or_else(
        |(expected, at)| {
            let message = format!("\"{}\" must be {expected}", entry.name());
            reader.mistake(at, &message, entry.path(), "");
            None
        },
        Some,
    )
}

type UnsupportedToml = (&'static str, std::ops::Range<usize>);

fn to_json(value: &Spanned<DeValue<'_>>) -> Result<Value, UnsupportedToml> {
    Ok(match value.get_ref() {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| ("a smaller number", value.span()))?
            .into(),
        DeValue::Float(number) => {
            let parsed = number.as_str().parse::<f64>().ok();
            let number = parsed.and_then(Number::from_f64);
            Value::Number(number.ok_or_else(|| ("a number that JSON has", value.span()))?)
        }
        DeValue::Array(items) => {
            let items = items.iter().map(to_json);
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| Ok((name.get_ref().to_string(), to_json(value)?)));
            Value::Object(fields.collect::<Result<Map<_, _>, UnsupportedToml>>()?)
        }
    })
}
