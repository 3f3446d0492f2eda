//! Reads typed values out of spanned TOML and notes every mistake with its line.
//!
//! A method answers `None` both for a key that is not there and for one whose value is wrong; the
//! second has been noted, and a file with notes never becomes a definition.

use std::time::Duration;

use highwater_query::nearest;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::FileMistake;

pub(super) struct Reader<'a> {
    source: &'a str,
    pub mistakes: Vec<FileMistake>,
}

/// A table of the file, what the user calls it, and the byte where it begins.
#[derive(Clone)]
pub(super) struct Section<'a> {
    pub table: &'a DeTable<'a>,
    pub name: String,
    pub at: usize,
}

impl<'a> Section<'a> {
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(crate) fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a str) -> Reader<'a> {
        Reader {
            source,
            mistakes: Vec::new(),
        }
    }

    pub(crate) fn mistake(
        &mut self,
        at: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let before = &self.source.as_bytes()[..at.min(self.source.len())];
        self.mistakes.push(FileMistake {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            message: message.into(),
            hint: hint.into(),
        });
    }

    pub(crate) fn known_keys(&mut self, section: &Section<'a>, known: &[&str]) {
        for (name, _) in section.table.iter() {
            let key = name.get_ref();
            if known.contains(&key.as_ref()) {
                continue;
            }
            let hint = match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            let message = format!("unknown key `{key}` in {}", section.name);
            self.mistake(name.span().start, message, hint);
        }
    }

    pub(crate) fn text(&mut self, section: &Section<'a>, key: &str) -> Option<(&'a str, usize)> {
        let value = section.value(key)?;
        match value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => {
                Some((text.as_ref(), value.span().start))
            }
            DeValue::String(_) => {
                self.mistake(value.span().start, format!("`{key}` is empty"), "");
                None
            }
            _ => self.wrong(value, key, "a text"),
        }
    }

    pub(crate) fn duration(&mut self, section: &Section<'a>, key: &str) -> Option<Duration> {
        let value = section.value(key)?;
        let DeValue::String(text) = value.get_ref() else {
            return self.wrong(value, key, "a duration such as \"5s\"");
        };
        match highwater_time::Duration::parse(text) {
            Ok(duration) => Some(Duration::from_micros(
                u64::try_from(duration.ticks()).unwrap_or(0) / 10,
            )),
            Err(_) => {
                let message = format!("\"{text}\" is not a duration");
                let hint = "write \"150ms\", \"5s\", \"3m\", \"1h30m\" or \"2d\"";
                self.mistake(value.span().start, message, hint);
                None
            }
        }
    }

    pub(crate) fn count(&mut self, section: &Section<'a>, key: &str, max: u32) -> Option<u32> {
        let value = section.value(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match number.and_then(|number| u32::try_from(number).ok()) {
            Some(number) if (1..=max).contains(&number) => Some(number),
            _ => self.wrong(value, key, &format!("a number from 1 to {max}")),
        }
    }

    /// A list of statuses.
    pub(crate) fn statuses(&mut self, section: &Section<'a>, key: &str) -> Option<Vec<u16>> {
        let value = section.value(key)?;
        let status = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let statuses: Option<Vec<u16>> = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(status).collect(),
            _ => None,
        };
        match statuses {
            Some(list) if list.iter().all(|status| (100..600).contains(status)) => Some(list),
            _ => self.wrong(value, key, "a list of statuses such as [200, 204]"),
        }
    }

    pub(crate) fn section(
        &mut self,
        of: &Section<'a>,
        key: &str,
        name: &str,
    ) -> Option<Section<'a>> {
        let value = of.value(key)?;
        self.as_section(value, key, name)
    }

    pub(crate) fn as_section(
        &mut self,
        value: &'a Spanned<DeValue<'a>>,
        key: &str,
        name: &str,
    ) -> Option<Section<'a>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Section {
                table,
                name: name.to_owned(),
                at: value.span().start,
            }),
            _ => self.wrong(value, key, "a table"),
        }
    }

    /// Any value, as JSON.
    pub(crate) fn json(&mut self, value: &Spanned<DeValue<'a>>) -> Option<Value> {
        Some(match value.get_ref() {
            DeValue::String(text) => text.as_ref().into(),
            DeValue::Boolean(flag) => (*flag).into(),
            DeValue::Datetime(time) => time.to_string().into(),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                return parsed.map_or_else(
                    |_| self.wrong(value, "this", "a smaller number"),
                    |number| Some(number.into()),
                );
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse::<f64>().ok();
                let number = parsed.and_then(serde_json::Number::from_f64);
                return match number {
                    Some(number) => Some(Value::Number(number)),
                    None => self.wrong(value, "this", "a number that JSON has"),
                };
            }
            DeValue::Array(items) => {
                let items: Option<Vec<Value>> = items.iter().map(|item| self.json(item)).collect();
                Value::Array(items?)
            }
            DeValue::Table(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| Some((name.get_ref().to_string(), self.json(value)?)));
                Value::Object(fields.collect::<Option<Map<_, _>>>()?)
            }
        })
    }

    fn wrong<T>(&mut self, value: &Spanned<DeValue<'_>>, key: &str, wanted: &str) -> Option<T> {
        let message = format!("`{key}` must be {wanted}");
        self.mistake(value.span().start, message, "");
        None
    }
}
