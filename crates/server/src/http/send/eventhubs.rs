//! The REST interface of Event Hubs: the key in `BrokerProperties`, properties in headers, a batch form of its own, and
//! answers without a body.

use std::borrow::Cow;

use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Event, request_key};
use crate::http::error::{Code, Error};
use crate::http::reply::{self, Reply};

/// The API that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Dialect {
    Highwater,
    EventHubs,
}

impl Dialect {
    /// The key that the request gives all its events.
    pub(super) fn key(self, head: &Parts) -> Result<Option<Cow<'_, str>>, Error> {
        match head.headers.get("brokerproperties") {
            None => request_key(head),
            Some(value) => {
                let broker: BrokerProperties =
                    serde_json::from_slice(value.as_bytes()).map_err(|error| {
                        Error::bad(
                            format!("BrokerProperties is not JSON: {error}"),
                            "such as {\"PartitionKey\":\"k\"}",
                        )
                    })?;
                Ok(broker.partition_key.map(Cow::Owned))
            }
        }
    }

    /// The answer for stored events; Event Hubs has none beyond the status.
    pub(super) fn stored(self, reply: impl FnOnce() -> Reply) -> Reply {
        match self {
            Dialect::Highwater => reply(),
            Dialect::EventHubs => reply::empty(StatusCode::CREATED),
        }
    }
}

#[derive(Deserialize, Default)]
struct BrokerProperties {
    #[serde(rename = "PartitionKey")]
    partition_key: Option<String>,
}

#[derive(Deserialize)]
struct Element<'a> {
    #[serde(rename = "Body", borrow)]
    body: &'a RawValue,
    #[serde(rename = "UserProperties", default)]
    properties: Map<String, Value>,
    #[serde(rename = "BrokerProperties", default)]
    broker: BrokerProperties,
}

/// `[{"Body":"text","UserProperties":{..},"BrokerProperties":{"PartitionKey":".."}}]`
pub(super) fn batch(body: &[u8]) -> Result<Vec<Event<'_>>, Error> {
    let elements: Vec<Element<'_>> = serde_json::from_slice(body).map_err(|error| {
        let hint = "nothing was stored: send [{\"Body\":\"..\"},..]";
        Error::new(
            Code::BadEvent,
            format!("the batch cannot be read: {error}"),
            hint,
        )
    })?;
    elements.into_iter().map(event).collect()
}

/// A body that is a JSON string loses its quotes; other JSON stays as it was sent.
fn event(element: Element<'_>) -> Result<Event<'_>, Error> {
    let raw = element.body.get();
    let value = match raw.starts_with('"') {
        false => Cow::Borrowed(raw.as_bytes()),
        true => {
            let text: String = serde_json::from_str(raw).map_err(|error| {
                Error::new(
                    Code::BadEvent,
                    format!("a Body cannot be read: {error}"),
                    "nothing was stored",
                )
            })?;
            Cow::Owned(text.into_bytes())
        }
    };
    let property = |(name, value): (String, Value)| {
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        (Cow::Owned(name), Cow::Owned(text.into_bytes()))
    };
    Ok(Event {
        key: element.broker.partition_key.map(Cow::Owned),
        value,
        headers: element.properties.into_iter().map(property).collect(),
    })
}

/// Headers of HTTP and of proxies, which are not properties of the event.
const NOT_PROPERTIES: [&str; 17] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "brokerproperties",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "host",
    "origin",
    "referer",
    "transfer-encoding",
    "user-agent",
];

/// The sender's own headers.
pub(super) fn properties(headers: &HeaderMap) -> Vec<(&str, Option<&[u8]>)> {
    let own = |name: &str| {
        !NOT_PROPERTIES.contains(&name)
            && !["x-forwarded-", "sec-", "proxy-"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    headers
        .iter()
        .filter(|(name, _)| own(name.as_str()))
        .map(|(name, value)| (name.as_str(), Some(value.as_bytes())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_bodies_keys_and_properties() {
        let body = br#"[{"Body":"a\"b","UserProperties":{"n":1,"t":"x"},"BrokerProperties":{"PartitionKey":"k"}},
            {"Body":{"a": 1}}]"#;
        let events = batch(body).unwrap();
        assert_eq!(&*events[0].value, b"a\"b");
        assert_eq!(events[0].key.as_deref(), Some("k"));
        let expected: [(Cow<str>, Cow<[u8]>); 2] =
            [("n".into(), b"1"[..].into()), ("t".into(), b"x"[..].into())];
        assert_eq!(events[0].headers, expected);
        assert_eq!(
            (&*events[1].value, events[1].key.as_deref()),
            (&br#"{"a": 1}"#[..], None)
        );
        assert!(batch(br#"[{"Boddy":"x"}]"#).is_err());
    }
}
