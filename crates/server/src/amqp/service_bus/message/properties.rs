//! Typed properties as texts with a list of types, and back.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use highwater_amqp::Value;
use highwater_queue::{Properties, PropertyEdit};
use serde_json::{Map, Value as Json};

use crate::amqp::event::{TYPES, from_header, to_header};

/// Ends the type of a text that is base64 because its bytes are no text.
const BASE64: &str = "+base64";
const NULL: &str = "null";

/// Properties of a message, and the types of those that are no strings.
#[derive(Default)]
pub(super) struct TypedProperties {
    texts: Properties,
    types: Map<String, Json>,
}

impl TypedProperties {
    pub(super) fn of(properties: &Properties) -> TypedProperties {
        let mut typed = TypedProperties::default();
        for (name, text) in properties {
            match name == TYPES {
                true => typed.types = serde_json::from_str(text).unwrap_or_default(),
                false => typed.texts.push((name.clone(), text.clone())),
            }
        }
        typed
    }

    /// Sets a property, in the place of one of the same name.
    pub(super) fn set(&mut self, name: &str, value: &Value<'_>, default: &str) {
        let text = self.text_of(name, value, default);
        match self.texts.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = text,
            None => self.texts.push((name.to_owned(), text)),
        }
    }

    /// From now on the value under `name` is of the default type.
    pub(super) fn forget_type(&mut self, name: &str) {
        self.types.remove(name);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.texts.retain(|(known, _)| known != name);
        self.types.remove(name);
    }

    /// The names of all properties.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn set_text(&mut self, name: &str, text: &str) {
        self.texts.push((name.to_owned(), text.to_owned()));
    }

    /// The text of a value, whose type is noted under `name`.
    pub(super) fn text_of(&mut self, name: &str, value: &Value<'_>, default: &str) -> String {
        let (text, kind) = to_text(value);
        match kind == default {
            true => self.types.remove(name),
            false => self.types.insert(name.to_owned(), kind.into()),
        };
        text
    }

    pub(super) fn finish(mut self) -> Properties {
        if !self.types.is_empty() {
            let types = Json::Object(self.types).to_string();
            self.texts.push((TYPES.to_owned(), types));
        }
        self.texts
    }
}

/// The types in the properties of a message.
pub(super) fn types_of(properties: &Properties) -> Map<String, Json> {
    let types = properties.iter().find(|(name, _)| name == TYPES);
    types
        .and_then(|(_, text)| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The value of a property with this type.
pub(super) fn value_of<'a>(text: &'a str, kind: &str) -> Value<'a> {
    if kind == NULL {
        return Value::Null;
    }
    match kind.strip_suffix(BASE64) {
        None => from_header(text.as_bytes(), kind),
        Some(kind) => match STANDARD.decode(text) {
            Ok(bytes) => from_header(&bytes, kind).into_owned(),
            Err(_) => Value::string(text),
        },
    }
}

fn to_text(value: &Value<'_>) -> (String, String) {
    let (bytes, kind) = to_header(value);
    let Some(bytes) = bytes else {
        return (String::new(), NULL.into());
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) => (text.to_owned(), kind.into()),
        Err(_) => (STANDARD.encode(&bytes), format!("{kind}{BASE64}")),
    }
}

/// The edit that sets properties of a message, as its receiver wants; `None` if it wants none.
pub(in crate::amqp::service_bus) fn edit(
    changes: Vec<(Value<'static>, Value<'static>)>,
) -> Option<PropertyEdit> {
    let is_text = |entry: &(Value<'_>, Value<'_>)| entry.0.as_text().is_some();
    let changes: Vec<_> = changes.into_iter().filter(is_text).collect();
    if changes.is_empty() {
        return None;
    }
    Some(PropertyEdit::new(move |properties| {
        let mut typed = TypedProperties::of(properties);
        for (name, value) in &changes {
            typed.set(name.as_text().unwrap_or_default(), value, "string");
        }
        typed.finish()
    }))
}
