//! Rows posted to a web service, at least once.
//!
//! Every row keeps its number for ever, and every request has the number of its first row: row `i` of a request is row
//! `first + i` of the output. The same rows may be split into requests differently when they are sent again, so a
//! receiver that needs each row once remembers the highest number it has processed. Requests are sent one after
//! another, so numbers go back only after a failure.
//!
//! A refused request is split in halves until the refused row is found.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_query::plan::Name;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};

use super::registry::read_timeout;
use super::state::{self, EndpointKind};
use super::{
    Endpoint, EndpointError, EndpointFuture, OpenResult, OutputContext, OutputKind, OutputSettings,
    OutsideAccess, Rows,
};
use crate::http::{self, HttpError};
use crate::json::JsonWriter;

/// The settings of an output to a web service.
#[derive(Clone)]
struct WebhookOutput {
    url: String,
    /// Sent with every request; may be secret, and are never shown.
    headers: Vec<(String, String)>,
    /// One row per line instead of one array of rows.
    lines: bool,
    /// Rows in one request.
    rows_max: usize,
    /// Bytes in one request, unless a single row is longer.
    bytes_max: usize,
    timeout: Duration,
    /// Certificates in PEM form to trust beside those of the system.
    ca: Option<String>,
}

impl WebhookOutput {
    fn new(url: impl Into<String>) -> WebhookOutput {
        WebhookOutput {
            url: url.into(),
            headers: Vec::new(),
            lines: false,
            rows_max: 1000,
            bytes_max: 1 << 20,
            timeout: Duration::from_secs(30),
            ca: None,
        }
    }
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "webhook",
    keys: &["url", "headers", "lines", "rows_max", "timeout"],
    read: |reader, section| {
        let url = reader.required_text(section, "url", "https://example.com/alerts")?;
        let mut output = WebhookOutput::new(url);
        output.headers = reader.pairs(section, "headers", "authorization = \"Bearer ..\"");
        output.lines = reader.boolean(section, "lines").unwrap_or(output.lines);
        let rows_max = reader.number(section, "rows_max");
        output.rows_max = rows_max.map_or(output.rows_max, |rows| rows as usize);
        output.timeout = read_timeout(reader, section).unwrap_or(output.timeout);
        Some(Arc::new(output))
    },
    missing_feature: None,
};

impl OutputSettings for WebhookOutput {
    fn check(&self, access: &OutsideAccess, _: &Path) -> Result<(), String> {
        let texts = self.headers.iter().map(|(_, value)| value);
        let mut texts = texts.chain([&self.url]);
        let checked = texts.try_for_each(|text| access.secrets.check_text(text));
        checked.map_err(|error| error.to_string())
    }

    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult {
        let secrets = &context.access.secrets;
        let url = secrets.resolve(&self.url).map_err(EndpointError::unfit)?;
        let url: Uri = url
            .parse()
            .map_err(|error| EndpointError::unfit(format!("`{}`: {error}", self.url)))?;
        let mut headers = HeaderMap::new();
        let kind = if self.lines {
            "application/x-ndjson"
        } else {
            "application/json"
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        for (name, value) in &self.headers {
            let wrong = || {
                EndpointError::unfit(format!(
                    "`{name}` or its value is not valid in an HTTP header"
                ))
            };
            let value = secrets.resolve(value).map_err(EndpointError::unfit)?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name).map_err(|_| wrong())?, value);
        }
        let options = http::Options {
            timeout: self.timeout,
            ca: self.ca.clone(),
            egress: context.access.egress.clone(),
            ..http::Options::default()
        };
        Ok(Box::new(WebhookEndpoint {
            client: http::Client::new(options),
            url,
            headers,
            id: context.id(),
            rows_max: self.rows_max.max(1),
            output: self.clone(),
            writer: JsonWriter::new(names),
            next: 0,
            lines: Vec::new(),
        }))
    }
}

impl fmt::Debug for WebhookOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookOutput")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

struct WebhookEndpoint {
    client: http::Client,
    url: Uri,
    headers: HeaderMap,
    /// `job/output`
    id: String,
    output: WebhookOutput,
    writer: JsonWriter,
    /// The current limit of rows in one request, lowered while searching for a refused row.
    rows_max: usize,
    next: u64,
    lines: Vec<u8>,
}

impl WebhookEndpoint {
    async fn post(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        loop {
            let left = rows.from(self.next);
            if left.is_empty() {
                return Ok(());
            }
            let first = rows.first + left.start as u64;
            let (body, count) = self.body(rows, left.start);
            let answer = self.client.send(self.request(first, count, body)?).await;
            match outcome(answer, self.url.host().unwrap_or_default()) {
                Outcome::Accepted => {
                    self.next = first + count as u64;
                    self.rows_max = (self.rows_max * 2).min(self.output.rows_max.max(1));
                }
                Outcome::Refused(_) if count > 1 => self.rows_max = count / 2,
                Outcome::Refused(reason) => {
                    let rows = vec![first];
                    return Err(EndpointError::Refused { rows, reason });
                }
                Outcome::Failed(error) => return Err(error),
            }
        }
    }

    /// The body for the rows from `start` on, as many as fit into one request, and their count.
    fn body(&mut self, rows: &Rows, start: usize) -> (Bytes, usize) {
        let end = (start + self.rows_max).min(rows.chunk.rows());
        self.lines.clear();
        self.lines.push(b'[');
        let mut count = 0;
        for row in start..end {
            let before = self.lines.len();
            self.writer
                .write_rows(&rows.chunk, row..row + 1, &mut self.lines);
            if count > 0 && self.lines.len() > self.output.bytes_max {
                self.lines.truncate(before);
                break;
            }
            count += 1;
            if !self.output.lines {
                let last = self.lines.len() - 1;
                self.lines[last] = b',';
            }
        }
        let body = match self.output.lines {
            true => &self.lines[1..],
            false => {
                let last = self.lines.len() - 1;
                self.lines[last] = b']';
                &self.lines[..]
            }
        };
        (Bytes::copy_from_slice(body), count)
    }

    fn request(
        &self,
        first: u64,
        count: usize,
        body: Bytes,
    ) -> Result<Request<Bytes>, EndpointError> {
        let last = first + count as u64 - 1;
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        let key = HeaderValue::from_str(&format!("{}/{first}-{last}", self.id));
        headers.insert("idempotency-key", key.map_err(EndpointError::unfit)?);
        headers.insert("highwater-first-row", HeaderValue::from(first));
        headers.insert("highwater-rows", HeaderValue::from(count));
        Ok(request)
    }
}

enum Outcome {
    Accepted,
    Refused(String),
    Failed(EndpointError),
}

fn outcome(answer: Result<Response<Bytes>, HttpError>, host: &str) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error @ HttpError::Request(_)) => return Outcome::Failed(EndpointError::unfit(error)),
        // The server may have accepted the rows, but the response is lost.
        Err(error) => return Outcome::Failed(EndpointError::unavailable(error)),
    };
    let status = answer.status();
    let body = String::from_utf8_lossy(answer.body());
    let body: String = body.chars().take(200).collect();
    let reason = format!("{host} answered {status}: {body}");
    match status {
        status if status.is_success() => Outcome::Accepted,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Outcome::Failed(unavailable(&answer, reason))
        }
        status if status.is_server_error() => Outcome::Failed(unavailable(&answer, reason)),
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::NOT_FOUND
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::PROXY_AUTHENTICATION_REQUIRED
        | StatusCode::GONE => Outcome::Failed(EndpointError::unfit(reason)),
        status if status.is_client_error() => Outcome::Refused(reason),
        // Neither accepted nor refused, such as a redirect.
        _ => Outcome::Failed(EndpointError::unfit(reason)),
    }
}

fn unavailable(answer: &Response<Bytes>, reason: String) -> EndpointError {
    let seconds = answer.headers().get(RETRY_AFTER);
    let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    EndpointError::Unavailable {
        reason,
        retry_after: seconds.map(Duration::from_secs),
    }
}

impl Endpoint for WebhookEndpoint {
    fn resume<'a>(&'a mut self, state: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        let next = state::to_number(EndpointKind::Webhook, state);
        Box::pin(std::future::ready(next.map(|next| self.next = next)))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()> {
        Box::pin(self.post(rows))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        let state = state::of_number(EndpointKind::Webhook, self.next);
        Box::pin(std::future::ready(Ok(state)))
    }
}
