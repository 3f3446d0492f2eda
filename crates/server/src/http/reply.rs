//! Answers: with a complete body, or with a live stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use highwater_env::{MemoryBudget, MemoryShare};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{
    CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use super::budget::metered;
use super::error::{Code, Error};
use super::serve::TOO_MANY;

pub(super) type Reply = Response<Payload>;

/// Larger answers take from the budget. A connection has one answer in flight, so smaller ones are bounded by the
/// number of connections.
const UNMETERED_BYTES_MAX: usize = 16 << 10;

/// The body of an answer.
pub(super) struct Payload {
    content: Content,
    share: Option<MemoryShare>,
}

enum Content {
    Whole(Option<Bytes>),
    /// Part of the program.
    Constant(Option<&'static [u8]>),
    Live(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// The answer of another node. An error closes the connection, so a truncated answer is not taken for a whole one.
    Relayed {
        body: Incoming,
        _permit: OwnedSemaphorePermit,
    },
}

impl Payload {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Payload {
        let bytes = Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty());
        Payload {
            content: Content::Whole(bytes),
            share: None,
        }
    }

    pub(super) fn constant(bytes: &'static [u8]) -> Payload {
        Payload {
            content: Content::Constant(Some(bytes)),
            share: None,
        }
    }

    pub(super) fn live(stream: impl Stream<Item = Bytes> + Send + 'static) -> Payload {
        Payload {
            content: Content::Live(Box::pin(stream)),
            share: None,
        }
    }

    /// The answer of another node; the permit is released with its last byte.
    pub(super) fn relayed(body: Incoming, permit: OwnedSemaphorePermit) -> Payload {
        Payload {
            content: Content::Relayed {
                body,
                _permit: permit,
            },
            share: None,
        }
    }

    /// Holds the share of the budget until the last byte is written to the socket.
    pub(super) fn holding(mut self, share: MemoryShare) -> Payload {
        self.share = Some(share);
        self
    }

    /// Adjusts the memory reserved for the answer to its size.
    pub(super) fn settle(&mut self, mut reserved: MemoryShare) -> Result<(), Error> {
        if reserved.bytes() > 0
            && let (Content::Whole(Some(bytes)), None) = (&self.content, &self.share)
            && bytes.len() > UNMETERED_BYTES_MAX
        {
            reserved.resize(bytes.len())?;
            self.share = Some(reserved);
        }
        Ok(())
    }

    /// Takes the bytes of a large answer from the budget, unless it holds a share.
    pub(super) fn charge(&mut self, budget: &MemoryBudget) -> Result<(), Error> {
        if let (Content::Whole(Some(bytes)), None) = (&self.content, &self.share)
            && bytes.len() > UNMETERED_BYTES_MAX
        {
            self.share = Some(budget.try_take(bytes.len())?);
        }
        Ok(())
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let share = self.share.take();
        let next = match &mut self.content {
            Content::Whole(bytes) => Poll::Ready(match (bytes.take(), share) {
                (Some(bytes), Some(share)) => Some(metered(bytes, share)),
                (bytes, _) => bytes,
            }),
            Content::Constant(bytes) => Poll::Ready(bytes.take().map(Bytes::from_static)),
            Content::Live(stream) => stream.as_mut().poll_next(context),
            Content::Relayed { body, .. } => return Pin::new(body).poll_frame(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Constant(bytes) => bytes.is_none(),
            Content::Live(_) => false,
            Content::Relayed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = match &self.content {
            Content::Whole(bytes) => bytes.as_ref().map_or(0, Bytes::len),
            Content::Constant(bytes) => bytes.map_or(0, <[u8]>::len),
            Content::Live(_) => return SizeHint::default(),
            Content::Relayed { body, .. } => return body.size_hint(),
        };
        SizeHint::with_exact(length as u64)
    }
}

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn empty(status: StatusCode) -> Reply {
    with(status, Payload::whole(Bytes::new()))
}

pub(super) fn json_bytes(status: StatusCode, bytes: impl Into<Bytes>) -> Reply {
    typed(status, JSON, Payload::whole(bytes))
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    json_bytes(status, bytes)
}

pub(super) fn ok(value: &impl Serialize) -> Reply {
    json(StatusCode::OK, value)
}

/// A page that runs no script and is shown in no frame.
pub(super) fn html(page: Payload) -> Reply {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let mut reply = typed(StatusCode::OK, kind, page);
    let policy = HeaderValue::from_static(
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    );
    reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    reply
}

pub(super) fn typed(status: StatusCode, kind: HeaderValue, payload: Payload) -> Reply {
    let mut reply = with(status, payload);
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn with(status: StatusCode, payload: Payload) -> Reply {
    let mut reply = Response::new(payload);
    *reply.status_mut() = status;
    reply
}

/// The answer to a client without a key on a connection that is kept for clients with one.
pub(super) fn too_many_connections() -> Reply {
    let payload = Payload::constant(TOO_MANY.as_bytes());
    let mut reply = typed(StatusCode::SERVICE_UNAVAILABLE, JSON, payload);
    let headers = reply.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

pub(super) fn error(error: &Error) -> Reply {
    let mut reply = json(error.code.status(), &error.to_json());
    if error.code.retry() {
        let seconds = error.retry_after.as_secs_f64().ceil().max(1.0) as u64;
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if error.code == Code::Unauthorized {
        let schemes = HeaderValue::from_static("Basic realm=\"highwater\", Bearer");
        reply.headers_mut().insert(WWW_AUTHENTICATE, schemes);
    }
    reply
}
