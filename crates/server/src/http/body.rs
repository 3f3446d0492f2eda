//! Reads a request's body: bounded, timed, and without copying when it came in one piece.

use bytes::{Bytes, BytesMut};
use highwater_env::MemoryShare;
use hyper::body::{Body, Incoming};
use std::future::poll_fn;
use std::pin::Pin;

use super::app::App;
use super::error::{Code, Error};

/// The body and its part of the budget, to hold until the request is answered.
pub(super) async fn read(app: &App, body: &mut Incoming) -> Result<(Bytes, MemoryShare), Error> {
    let reading = tokio::time::timeout(app.options.body_timeout, collect(app, body));
    reading.await.unwrap_or_else(|_| {
        Err(Error::new(
            Code::Timeout,
            format!(
                "the body did not arrive within {:?}",
                app.options.body_timeout
            ),
            "send it faster, or in smaller pieces",
        ))
    })
}

async fn collect(app: &App, body: &mut Incoming) -> Result<(Bytes, MemoryShare), Error> {
    let max = app.options.body_bytes_max;
    let announced = body.size_hint().exact();
    let announced = announced.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if announced.is_some_and(|bytes| bytes > max) {
        return Err(too_large(max));
    }
    let mut share = app.budget.try_take(announced.unwrap_or(0))?;
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(piece) = next(body).await? {
        let length = first.len() + joined.len() + piece.len();
        if length > max {
            return Err(too_large(max));
        }
        if announced.is_none() {
            share.grow(piece.len())?;
        }
        if first.is_empty() && joined.is_empty() {
            first = piece;
            continue;
        }
        if joined.is_empty() {
            joined.reserve(announced.unwrap_or(length));
            joined.extend_from_slice(&std::mem::take(&mut first));
        }
        joined.extend_from_slice(&piece);
    }
    Ok((
        if joined.is_empty() {
            first
        } else {
            joined.freeze()
        },
        share,
    ))
}

/// The next piece of data; trailers are skipped.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Error> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(_) => continue,
            },
            Some(Err(error)) => {
                let message = format!("the body broke off: {error}");
                return Err(Error::bad(message, "nothing was stored: send it again"));
            }
        }
    }
}

fn too_large(max: usize) -> Error {
    Error::new(
        Code::TooLarge,
        format!("the body is larger than {max} bytes"),
        "send fewer events at a time, or raise http.body_bytes_max",
    )
}
