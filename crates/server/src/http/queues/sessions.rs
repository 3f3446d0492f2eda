//! Sessions: accepted, renewed, released, and their state.

use highwater_log::EnqueueTime;
use highwater_queue::{AcceptedSession, SessionLock};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::queue;
use super::receive::session_lock;
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::text::{parameter, time_text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockedSession {
    session: String,
    token: String,
    /// Any JSON; `null` removes the state, and without the field the state is only read.
    #[serde(default, deserialize_with = "present")]
    state: Option<Box<RawValue>>,
}

/// A field that is present, `null` included.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

impl LockedSession {
    async fn read(request: &mut ApiRequest<'_>) -> Result<LockedSession, Error> {
        let example = "{\"session\":\"customer-7\",\"token\":\"1f\"}";
        request.read_json(example).await
    }

    fn lock(self) -> Result<SessionLock, Error> {
        session_lock(self.session, &self.token)
    }
}

pub(in crate::http) async fn renew(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let lock = LockedSession::read(&mut request).await?.lock()?;
    let lock = queue.renew_session(lock).await?;
    Ok(reply::ok(&session_json(&lock)))
}

pub(in crate::http) async fn release(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let lock = LockedSession::read(&mut request).await?.lock()?;
    queue.release_session(lock).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Sets the state if the body has one, else answers with it.
pub(in crate::http) async fn state(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let mut session = LockedSession::read(&mut request).await?;
    let state = session.state.take();
    let lock = session.lock()?;
    match state {
        Some(state) => {
            let state = Some(state.get()).filter(|state| *state != "null");
            let state = state.map(|state| bytes::Bytes::copy_from_slice(state.as_bytes()));
            queue.set_session_state(lock, state).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        None => {
            let state = queue.session_state(lock).await?;
            Ok(reply::ok(&json!({"state": value(state)})))
        }
    }
}

pub(in crate::http) async fn accept(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let session = parameter(request.query(), "session").map(std::borrow::Cow::into_owned);
    let wait = request.wait()?;
    let accepted = tokio::select! {
        accepted = queue.accept(session, wait) => accepted?,
        () = request.app.stopped() => None,
    };
    let Some(AcceptedSession { lock, state }) = accepted else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    let mut body = session_json(&lock);
    body["state"] = value(state);
    Ok(reply::ok(&body))
}

fn session_json(lock: &SessionLock) -> Value {
    json!({
        "session": lock.session, "token": lock.to_string(),
        "locked_until": time_text(EnqueueTime(lock.until_ms)),
    })
}

/// States are JSON where they were set over HTTP.
fn value(state: Option<bytes::Bytes>) -> Value {
    let state = state.unwrap_or_default();
    serde_json::from_slice(&state).unwrap_or_default()
}
