//! Messages sent: one a request, as it is, or a batch as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use highwater_queue::{Content, NewMessage, SendResult};
use highwater_time::Instant;
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::queue;
use crate::http::dispatch::{ApiRequest, parse_json};
use crate::http::error::Error;
use crate::http::reply::{self, Reply};

const PROPERTY: &str = "x-property-";

/// The body is the message; headers have its properties.
pub(in crate::http) async fn send_one(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let headers = &request.head.headers;
    let content = Content {
        id: text(headers, "x-message-id")?,
        session: text(headers, "x-session-id")?,
        content_type: text(headers, CONTENT_TYPE.as_str())?,
        properties: properties(headers)?,
        body: Bytes::new(),
    };
    let scheduled = text(headers, "x-schedule-at")?;
    let lives = text(headers, "x-time-to-live")?;
    let mut message = NewMessage {
        content,
        scheduled_ms: scheduled.as_deref().map(instant).transpose()?,
        time_to_live_ms: lives.as_deref().map(duration).transpose()?,
    };
    let (body, _share) = request.read_body().await?;
    // The message may stay in the queue for long, and a slice would keep the whole network buffer.
    message.content.body = Bytes::copy_from_slice(&body);
    let sent = queue.send(vec![message]).await?;
    let receipt = sent.first().map(Receipt::from);
    Ok(reply::json(StatusCode::CREATED, &receipt))
}

/// A message in a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchMessage<'a> {
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    body_base64: Option<String>,
    id: Option<String>,
    session: Option<String>,
    content_type: Option<String>,
    #[serde(default)]
    properties: Map<String, Value>,
    schedule_at: Option<String>,
    time_to_live: Option<String>,
}

/// Sends all messages or none.
pub(in crate::http) async fn batch(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let (body, _share) = request.read_body().await?;
    let example = "[{\"body\":{\"order\":1}},{\"body_base64\":\"AAE=\",\"id\":\"2\"}]";
    let batch: Vec<BatchMessage<'_>> = parse_json(&body, example)?;
    let messages: Result<Vec<_>, _> = batch.into_iter().map(BatchMessage::message).collect();
    let sent = queue.send(messages?).await?;
    let all = BatchReceipt {
        count: sent.len(),
        messages: sent.iter().map(Receipt::from).collect(),
    };
    Ok(reply::json(StatusCode::CREATED, &all))
}

#[derive(Serialize)]
struct BatchReceipt {
    count: usize,
    messages: Vec<Receipt>,
}

/// The sequence number of a sent message, and whether it is a duplicate.
#[derive(Serialize)]
struct Receipt {
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
}

impl From<&SendResult> for Receipt {
    fn from(sent: &SendResult) -> Receipt {
        Receipt {
            sequence: sent.seq,
            duplicate: sent.duplicate.then_some(true),
        }
    }
}

impl BatchMessage<'_> {
    fn message(self) -> Result<NewMessage, Error> {
        let (body, kind) = match (self.body, self.body_base64) {
            (Some(value), None) => {
                let kind = "application/json".to_owned();
                (Bytes::copy_from_slice(value.get().as_bytes()), Some(kind))
            }
            (None, Some(text)) => {
                let wrong = |_| Error::bad("body_base64 is no base64", "use the standard alphabet");
                (STANDARD.decode(text).map_err(wrong)?.into(), None)
            }
            (None, None) => (Bytes::new(), None),
            (Some(_), Some(_)) => {
                let message = "a message has one body";
                return Err(Error::bad(message, "give body or body_base64"));
            }
        };
        let scheduled_ms = self.schedule_at.as_deref().map(instant).transpose()?;
        let time_to_live_ms = self.time_to_live.as_deref().map(duration).transpose()?;
        Ok(NewMessage {
            content: Content {
                body,
                id: self.id,
                session: self.session,
                content_type: self.content_type.or(kind),
                properties: texts(self.properties),
            },
            scheduled_ms,
            time_to_live_ms,
        })
    }
}

/// Properties as texts; other values are written as JSON.
pub(super) fn texts(properties: Map<String, Value>) -> Vec<(String, String)> {
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let properties = properties.into_iter();
    properties
        .map(|(name, value)| (name, text(value)))
        .collect()
}

fn text(headers: &HeaderMap, name: &str) -> Result<Option<String>, Error> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let wrong = |_| Error::bad(format!("the header {name} is not text"), "use ASCII");
    Ok(Some(value.to_str().map_err(wrong)?.to_owned()))
}

fn properties(headers: &HeaderMap) -> Result<Vec<(String, String)>, Error> {
    let mut properties = Vec::new();
    for name in headers.keys() {
        if let Some(short) = name.as_str().strip_prefix(PROPERTY)
            && let Some(value) = text(headers, name.as_str())?
        {
            properties.push((short.to_owned(), value));
        }
    }
    Ok(properties)
}

fn instant(text: &str) -> Result<i64, Error> {
    let wrong = || {
        Error::bad(
            format!("`{text}` is no time"),
            "such as 2026-12-24T18:00:00Z",
        )
    };
    let instant = Instant::parse_iso(text.as_bytes()).ok_or_else(wrong)?;
    Ok(instant.to_unix_millis())
}

/// Milliseconds of `90s` or `7d`.
pub(in crate::http) fn duration(text: &str) -> Result<i64, Error> {
    let wrong = || Error::bad(format!("`{text}` is no time"), "such as 90s, 12h or 7d");
    let time = highwater_time::Duration::parse(text).map_err(|_| wrong())?;
    Some(time.ticks() / 10_000)
        .filter(|ms| *ms > 0)
        .ok_or_else(wrong)
}

/// Sequence numbers in a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sequences {
    sequences: Vec<u64>,
}

impl Sequences {
    pub(super) async fn read(request: &mut ApiRequest<'_>) -> Result<Vec<u64>, Error> {
        let body: Sequences = request.read_json("{\"sequences\":[7,8]}").await?;
        Ok(body.sequences)
    }
}
