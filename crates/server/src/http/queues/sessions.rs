//! Sessions: accepted, kept, given back, and the state that is left with them.

use highwater_log::EnqueueTime;
use highwater_queue::{Accepted, Queue, SessionLock};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::read_json;
use super::receive::{session_lock, waiting};
use crate::http::app::App;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::text::{parameter, time_text};

pub fn is_known(what: &str) -> bool {
    matches!(what, "accept" | "renew" | "release" | "state")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    session: String,
    token: String,
    /// Any JSON; `null` takes it away, and without it the state is only told.
    #[serde(default, deserialize_with = "given")]
    state: Option<Box<RawValue>>,
}

fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

pub async fn act(
    app: &App,
    queue: &Queue,
    what: &str,
    query: Option<&str>,
    body: Incoming,
) -> Result<Reply, Error> {
    if what == "accept" {
        return accept(app, queue, query).await;
    }
    let example = "{\"session\":\"customer-7\",\"token\":\"1f\"}";
    let held: Held = read_json(app, body, example).await?;
    let lock = session_lock(held.session, &held.token)?;
    match (what, held.state) {
        ("renew", _) => {
            let lock = queue.renew_session(lock).await?;
            Ok(reply::json(StatusCode::OK, &facts(&lock)))
        }
        ("release", _) => {
            queue.free_session(lock).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        (_, Some(state)) => {
            let state = Some(state.get()).filter(|state| *state != "null");
            let state = state.map(|state| bytes::Bytes::copy_from_slice(state.as_bytes()));
            queue.set_session_state(lock, state).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        (_, None) => {
            let state = queue.session_state(lock).await?;
            Ok(reply::json(StatusCode::OK, &json!({"state": value(state)})))
        }
    }
}

async fn accept(app: &App, queue: &Queue, query: Option<&str>) -> Result<Reply, Error> {
    let session = parameter(query, "session").map(std::borrow::Cow::into_owned);
    let wait = waiting(app, query)?;
    let accepted = tokio::select! {
        accepted = queue.accept(session, wait) => accepted?,
        () = app.stopped() => None,
    };
    let Some(Accepted { lock, state }) = accepted else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    let mut body = facts(&lock);
    body["state"] = value(state);
    Ok(reply::json(StatusCode::OK, &body))
}

fn facts(lock: &SessionLock) -> Value {
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
