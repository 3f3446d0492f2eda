//! CloudEvents 1.0 in the three forms of its HTTP binding: attributes in headers, one JSON object, a
//! JSON array of objects.
//!
//! The data becomes the value, attributes become record headers `ce_<name>` as in the Kafka binding, and the key is the
//! `partitionkey` extension, else the subject.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Event;
use crate::http::error::{Code, Error};
use crate::text::percent_decode;

/// The fields of most events.
const USUAL_FIELDS: usize = 8;

const REQUIRED: [&str; 4] = ["id", "source", "specversion", "type"];

pub(super) fn binary<'a>(headers: &'a HeaderMap, body: &'a [u8]) -> Result<Event<'a>, Error> {
    let mut event = Event {
        value: Cow::Borrowed(body),
        ..Event::default()
    };
    let mut attributes = Attributes::default();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else {
            continue;
        };
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| bad_event(format!("attribute `{name}` is not UTF-8")))?;
        attributes.add(name, percent_decode(text));
    }
    if let Some(kind) = headers.get(CONTENT_TYPE) {
        event
            .headers
            .push(("content-type".into(), kind.as_bytes().into()));
    }
    attributes.finish(event)
}

pub(super) fn structured(body: &[u8]) -> Result<Event<'_>, Error> {
    object(body)
}

pub(super) fn batched(body: &[u8]) -> Result<Vec<Event<'_>>, Error> {
    let elements: Vec<&RawValue> = serde_json::from_slice(body)
        .map_err(|error| bad_event(format!("the body is not a JSON array: {error}")))?;
    let numbered = elements.into_iter().enumerate();
    let read = numbered.map(|(at, element)| {
        object(element.get().as_bytes()).map_err(|mut error| {
            error.message = format!("event {at}: {}", error.message);
            error
        })
    });
    read.collect()
}

fn object(body: &[u8]) -> Result<Event<'_>, Error> {
    let Fields(fields) = serde_json::from_slice(body)
        .map_err(|error| bad_event(format!("this is not a JSON object: {error}")))?;
    let mut attributes = Attributes {
        headers: Vec::with_capacity(USUAL_FIELDS),
        ..Attributes::default()
    };
    let mut kind = Cow::Borrowed("application/json");
    let mut data = None;
    for (name, raw) in fields {
        match &*name {
            "data" | "data_base64" if data.is_some() => {
                return Err(bad_event(
                    "both `data` and `data_base64` are present".into(),
                ));
            }
            "data" | "data_base64" => data = Some((name == "data_base64", raw)),
            _ if raw.get() == "null" => {}
            "datacontenttype" => kind = scalar(&name, raw)?,
            _ => attributes.add(&name, scalar(&name, raw)?),
        }
    }
    let value = match data {
        None => Cow::Borrowed(&b""[..]),
        Some((false, raw)) => plain_data(raw, &kind)?,
        Some((true, raw)) => {
            let text: Cow<'_, str> = scalar("data_base64", raw)?;
            let bytes = STANDARD.decode(text.as_bytes());
            Cow::Owned(bytes.map_err(|error| bad_event(format!("`data_base64`: {error}")))?)
        }
    };
    let mut headers = Vec::with_capacity(USUAL_FIELDS);
    headers.push(("content-type".into(), bytes_of(kind)));
    attributes.finish(Event {
        key: None,
        value,
        headers,
    })
}

/// The fields of an object in the order of their names. Of duplicates, the last counts.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fields<'de>, D::Error> {
        from.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Vec::with_capacity(USUAL_FIELDS);
        while let Some((Text(name), raw)) = map.next_entry()? {
            fields.push((name, raw));
        }
        fields.sort_by(|(a, _): &(Cow<'_, str>, _), (b, _)| a.cmp(b));
        fields.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = later.1;
            }
            same
        });
        Ok(Fields(fields))
    }
}

/// A string, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// JSON data stays as it was sent; a string of another content type loses its quotes.
fn plain_data<'a>(raw: &'a RawValue, kind: &str) -> Result<Cow<'a, [u8]>, Error> {
    let json = kind.split(';').next().is_some_and(|kind| {
        let kind = kind.trim().to_ascii_lowercase();
        kind == "application/json" || kind == "text/json" || kind.ends_with("+json")
    });
    match json || !raw.get().starts_with('"') {
        true => Ok(Cow::Borrowed(raw.get().as_bytes())),
        false => scalar("data", raw).map(bytes_of),
    }
}

/// Attributes are strings, numbers or booleans, never objects.
fn scalar<'a>(name: &str, raw: &'a RawValue) -> Result<Cow<'a, str>, Error> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text)
            .map(|Text(text)| text)
            .map_err(|error| bad_event(format!("attribute `{name}`: {error}"))),
        Some(b'{' | b'[') => Err(bad_event(format!("attribute `{name}` is not a string"))),
        _ => Ok(Cow::Borrowed(text)),
    }
}

#[derive(Default)]
struct Attributes<'a> {
    headers: Vec<(Cow<'a, str>, Cow<'a, [u8]>)>,
    subject: Option<Cow<'a, str>>,
    partition_key: Option<Cow<'a, str>>,
    /// Which of [`REQUIRED`] are present.
    present: [bool; REQUIRED.len()],
    version: Option<Cow<'a, str>>,
}

impl<'a> Attributes<'a> {
    fn add(&mut self, name: &str, text: Cow<'a, str>) {
        if let Some(at) = REQUIRED.iter().position(|required| *required == name) {
            self.present[at] = !text.is_empty();
        }
        match name {
            "subject" => self.subject = Some(text.clone()),
            "partitionkey" => self.partition_key = Some(text.clone()),
            "specversion" => self.version = Some(text.clone()),
            _ => {}
        }
        self.headers.push((header_name(name), bytes_of(text)));
    }

    fn finish(self, mut event: Event<'a>) -> Result<Event<'a>, Error> {
        if let Some(at) = self.present.iter().position(|present| !present) {
            return Err(bad_event(format!(
                "the CloudEvent has no `{}`",
                REQUIRED[at]
            )));
        }
        if let Some(version) = self.version.filter(|version| version != "1.0") {
            return Err(bad_event(format!("CloudEvents {version} is not supported")));
        }
        event.key = self.partition_key.or(self.subject);
        event.headers.extend(self.headers);
        Ok(event)
    }
}

fn header_name(attribute: &str) -> Cow<'static, str> {
    match attribute {
        "id" => "ce_id".into(),
        "source" => "ce_source".into(),
        "specversion" => "ce_specversion".into(),
        "type" => "ce_type".into(),
        "subject" => "ce_subject".into(),
        "time" => "ce_time".into(),
        other => format!("ce_{other}").into(),
    }
}

fn bytes_of(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

fn bad_event(message: String) -> Error {
    let hint = "nothing was stored: CloudEvents 1.0 needs id, source, type and specversion";
    Error::new(Code::BadEvent, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(event: &Event<'_>) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers: Vec<String> = event
            .headers
            .iter()
            .map(|(n, v)| format!("{n}={}", text(v)))
            .collect();
        format!(
            "{:?} {} [{}]",
            event.key,
            text(&event.value),
            headers.join(" ")
        )
    }

    #[test]
    fn data_of_an_object_is_kept_as_sent() {
        let body =
            br#"{"specversion":"1.0","id":"1","source":"/s","type":"t","n":7,"data":{"a": 1.0}}"#;
        assert_eq!(
            shown(&structured(body).unwrap()),
            r#"None {"a": 1.0} [content-type=application/json ce_id=1 ce_n=7 ce_source=/s ce_specversion=1.0 ce_type=t]"#
        );
    }

    #[test]
    fn the_key_is_the_partition_key_else_the_subject() {
        let with = |more: &str| {
            let body = format!(r#"{{"specversion":"1.0","id":"1","source":"s","type":"t"{more}}}"#);
            structured(body.as_bytes())
                .unwrap()
                .key
                .map(Cow::into_owned)
        };
        assert_eq!(with(""), None);
        assert_eq!(with(r#","subject":"s""#).as_deref(), Some("s"));
        assert_eq!(
            with(r#","subject":"s","partitionkey":"p""#).as_deref(),
            Some("p")
        );
    }

    #[test]
    fn text_and_base64_are_unpacked() {
        let with = |more: &str| {
            let body =
                format!(r#"{{"specversion":"1.0","id":"1","source":"s","type":"t",{more}}}"#);
            String::from_utf8(structured(body.as_bytes()).unwrap().value.into_owned()).unwrap()
        };
        assert_eq!(
            with(r#""datacontenttype":"text/plain","data":"a\nb""#),
            "a\nb"
        );
        assert_eq!(with(r#""data":"a\nb""#), r#""a\nb""#);
        assert_eq!(with(r#""data_base64":"aGk=""#), "hi");
    }

    #[test]
    fn of_two_fields_with_one_name_the_last_counts_and_escapes_are_read() {
        let body = br#"{"specversion":"1.0","id":"1","source":"/s","type":"t","id":"2\n","data":1,"data":2}"#;
        assert_eq!(
            shown(&structured(body).unwrap()),
            "None 2 [content-type=application/json ce_id=2\n ce_source=/s ce_specversion=1.0 ce_type=t]"
        );
        let named = br#"{"specversion":"1.0","i\u0064":"1","source":"/s","type":"t","data":1}"#;
        let event = structured(named).unwrap();
        assert_eq!(event.headers[1], ("ce_id".into(), b"1"[..].into()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = structured(br#"{"specversion":"1.0","id":"1","type":"t"}"#).unwrap_err();
        assert_eq!(error.message, "the CloudEvent has no `source`");
        let error =
            structured(br#"{"specversion":"0.3","id":"1","type":"t","source":"s"}"#).unwrap_err();
        assert_eq!(error.message, "CloudEvents 0.3 is not supported");
        let body = br#"[{"specversion":"1.0","id":"1","type":"t","source":"s"},{}]"#;
        assert_eq!(
            batched(body).unwrap_err().message,
            "event 1: the CloudEvent has no `id`"
        );
    }
}
