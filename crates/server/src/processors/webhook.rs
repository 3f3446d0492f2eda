//! The webhook handler: posts events, one a request as it came, or a batch as a JSON array.
//!
//! A status of 2xx means success. Headers identify the event, so that a receiver can detect duplicates:
//! `Idempotency-Key` and `Highwater-Id` stay the same in all deliveries of an event.

use bytes::Bytes;
use highwater_connect::http::{Client, HttpError};
use highwater_env::Clock;
use highwater_flow::{Delivery, Event, Failure, Handler};
use highwater_log::{BoxFuture, EnqueueTime};
use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Request, Response, Uri};
use std::sync::Arc;
use std::time::Duration;

use super::spec::{Secret, TransientFailures};
use super::{resolve_secrets, wire};
use crate::http::json::is_json;
use crate::text::time_text;

/// How much of an error answer becomes part of the reason.
const BODY_CHARS_MAX: usize = 200;

pub(super) struct Webhook {
    client: Client,
    url: Uri,
    transient: TransientFailures,
    /// The headers of every request.
    headers: HeaderMap,
    batched: bool,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    pub(super) fn new(
        client: Client,
        url: Uri,
        processor: &str,
        authorization: Option<&Secret>,
        transient: TransientFailures,
        batched: bool,
        clock: Arc<dyn Clock>,
    ) -> Result<Webhook, String> {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("highwater"));
        headers.insert("highwater-processor", value(processor)?);
        if let Some(Secret(text)) = authorization {
            let text = resolve_secrets(text)?;
            let mut text = value(&text).map_err(|_| "the authorization cannot be a header")?;
            text.set_sensitive(true);
            headers.insert(AUTHORIZATION, text);
        }
        Ok(Webhook {
            client,
            url,
            transient,
            headers,
            batched,
            clock,
        })
    }

    fn request(&self, deliveries: &[Delivery<Event>]) -> Result<Request<Bytes>, String> {
        let (headers, body) = self.content(deliveries)?;
        let request = Request::post(self.url.clone()).body(body);
        let mut request = request.map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn content(&self, deliveries: &[Delivery<Event>]) -> Result<(HeaderMap, Bytes), String> {
        let mut headers = self.headers.clone();
        let (Some(first), Some(last)) = (deliveries.first(), deliveries.last()) else {
            return Err("there is nothing to deliver".into());
        };
        let event = &first.event;
        let source = event.topic_partition();
        headers.insert("highwater-attempt", first.attempt.into());
        headers.insert("highwater-hub", value(source.hub.as_str())?);
        headers.insert("highwater-partition", source.partition.into());
        headers.insert("highwater-offset", event.offset().0.into());
        if self.batched {
            let id = format!("{}-{}", event.id(), last.event.offset());
            headers.insert("idempotency-key", value(&id)?);
            headers.insert("highwater-count", deliveries.len().into());
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return Ok((headers, array(deliveries)));
        }
        let id = value(&event.id().to_string())?;
        headers.insert("idempotency-key", id.clone());
        headers.insert("highwater-id", id);
        let enqueued = time_text(EnqueueTime(event.timestamp()));
        headers.insert("highwater-enqueued", value(&enqueued)?);
        let body = event.value().unwrap_or_default();
        let kind = match is_json(body) {
            true => "application/json",
            false => "application/octet-stream",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        add_event_headers(&mut headers, event);
        Ok((headers, Bytes::copy_from_slice(body)))
    }
}

/// Adds the key and the headers of the event, as far as they are valid in HTTP.
fn add_event_headers(headers: &mut HeaderMap, event: &Event) {
    if let Some(key) = event.key() {
        let plain = std::str::from_utf8(key)
            .ok()
            .and_then(|key| value(key).ok());
        let (name, key) = match plain {
            Some(plain) => ("highwater-key", Ok(plain)),
            None => ("highwater-key-base64", value(&base64(key))),
        };
        headers.extend(key.ok().map(|key| (HeaderName::from_static(name), key)));
    }
    for (name, content) in event.headers() {
        let content = HeaderValue::from_bytes(content.unwrap_or_default());
        match (name.eq_ignore_ascii_case("content-type"), content) {
            (true, Ok(content)) => drop(headers.insert(CONTENT_TYPE, content)),
            (false, Ok(content)) => {
                let name = HeaderName::from_bytes(format!("highwater-header-{name}").as_bytes());
                headers.extend(name.ok().map(|name| (name, content)));
            }
            (_, Err(_)) => {}
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn array(deliveries: &[Delivery<Event>]) -> Bytes {
    let mut out = Vec::with_capacity(deliveries.len() * 256);
    out.push(b'[');
    for (i, delivery) in deliveries.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        wire::write_delivery(&mut out, delivery);
    }
    out.push(b']');
    out.into()
}

fn value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("`{text}` cannot be a header"))
}

impl Handler for Webhook {
    fn handle(&self, deliveries: Vec<Delivery<Event>>) -> BoxFuture<Result<(), Failure>> {
        let request = self.request(&deliveries);
        let (client, transient) = (self.client.clone(), self.transient.clone());
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            let request = request.map_err(Failure::permanent)?;
            match client.send(request).await {
                Ok(answer) => outcome(&answer, &transient, clock.unix_nanos()),
                Err(error) => Err(transport_failure(&error, &transient)),
            }
        })
    }
}

fn transport_failure(error: &HttpError, transient: &TransientFailures) -> Failure {
    let is_transient = match error {
        HttpError::TimedOut { .. } => transient.timeout,
        HttpError::Connect { .. } | HttpError::Broken { .. } => transient.connection,
        HttpError::Request(_) | HttpError::TooLong { .. } => false,
    };
    match is_transient {
        true => Failure::transient(error),
        false => Failure::permanent(error),
    }
}

fn outcome(
    answer: &Response<Bytes>,
    transient: &TransientFailures,
    now_nanos: i128,
) -> Result<(), Failure> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let status = status.as_u16();
    let body = String::from_utf8_lossy(answer.body());
    let body: String = body.trim().chars().take(BODY_CHARS_MAX).collect();
    let reason = match body.is_empty() {
        true => format!("status {status}"),
        false => format!("status {status}: {body}"),
    };
    if !transient.includes_status(status) {
        return Err(Failure::permanent(reason));
    }
    let failure = Failure::transient(reason);
    Err(match retry_after(answer.headers(), now_nanos) {
        Some(delay) => failure.retry_after(delay),
        None => failure,
    })
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now_nanos: i128) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    let now = Duration::from_nanos(u64::try_from(now_nanos).ok()?);
    Some(at.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>) -> Response<Bytes> {
        let mut answer = Response::builder().status(status);
        if let Some(text) = retry_after {
            answer = answer.header(RETRY_AFTER, text);
        }
        answer.body(Bytes::from_static(b" no stock ")).unwrap()
    }

    // proves P2
    #[test]
    fn a_status_is_a_success_a_permanent_or_a_transient_failure() {
        let transient = TransientFailures::new(&["5xx".into(), "429".into()]);
        let outcome =
            |answer: &Response<Bytes>| super::outcome(answer, &transient, 784_111_777_000_000_000);
        assert_eq!(outcome(&answer(204, None)), Ok(()));
        assert_eq!(
            outcome(&answer(400, None)),
            Err(Failure::permanent("status 400: no stock"))
        );
        assert_eq!(
            outcome(&answer(302, None)),
            Err(Failure::permanent("status 302: no stock"))
        );
        let busy = Failure::transient("status 503: no stock");
        assert_eq!(outcome(&answer(503, None)), Err(busy.clone()));
        let seven = busy.retry_after(Duration::from_secs(7));
        assert_eq!(outcome(&answer(503, Some("7"))), Err(seven.clone()));
        let date = "Sun, 06 Nov 1994 08:49:44 GMT";
        assert_eq!(outcome(&answer(503, Some(date))), Err(seven));
    }
}
