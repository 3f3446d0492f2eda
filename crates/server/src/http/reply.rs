//! Answers: with a complete body, or with a live stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::budget::Permit;
use super::error::{Code, Error};

pub(super) type Reply = Response<Payload>;

/// The body of an answer.
pub(super) struct Payload {
    content: Content,
    /// Released when the last byte is written to the socket.
    permit: Option<Permit>,
}

enum Content {
    Whole(Option<Bytes>),
    Live(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Payload {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Payload {
        let bytes = Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty());
        Payload {
            content: Content::Whole(bytes),
            permit: None,
        }
    }

    pub(super) fn live(stream: impl Stream<Item = Bytes> + Send + 'static) -> Payload {
        Payload {
            content: Content::Live(Box::pin(stream)),
            permit: None,
        }
    }

    pub(super) fn holding(mut self, permit: Permit) -> Payload {
        self.permit = Some(permit);
        self
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = match &mut self.content {
            Content::Whole(bytes) => Poll::Ready(bytes.take()),
            Content::Live(stream) => stream.as_mut().poll_next(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Live(_) => SizeHint::default(),
        }
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

/// A page that runs no script and is shown in no frame.
pub(super) fn html(page: impl Into<Bytes>) -> Reply {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let mut reply = typed(StatusCode::OK, kind, Payload::whole(page));
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

pub(super) fn error(error: &Error) -> Reply {
    let mut reply = json(error.code.status(), &error.to_json());
    if error.code.retry() {
        reply
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if error.code == Code::Unauthorized {
        let schemes = HeaderValue::from_static("Basic realm=\"highwater\", Bearer");
        reply.headers_mut().insert(WWW_AUTHENTICATE, schemes);
    }
    reply
}
