//! Queues over HTTP: send, receive, settle, sessions, and the queues themselves.
//!
//! `docs/queues.md` is the guide. Everything answers when it would survive a crash. A queue and its
//! dead letters (`/queues/NAME/$deadletter/..`) take the same requests.

mod admin;
mod json;
mod receive;
mod send;
mod sessions;
mod settle;

use std::sync::Arc;

use highwater_queue::{Error as QueueError, Part, Queue, Queues, Refusal};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::app::App;
use super::auth::Caller;
use super::body;
use super::error::{Code, Error};
use super::reply::{self, Reply};
use super::route;
use crate::keys::Right;
use settle::Settle;

/// Whether a path is ours. A hub may be called `queues` and be sent to by the paths of Event Hubs.
pub fn is_ours(parts: &[&str]) -> bool {
    matches!(
        parts,
        ["queues", _, _] | ["queues", _, "$deadletter" | "sessions", _] | ["api", "queues", ..]
    )
}

pub async fn route(
    app: &Arc<App>,
    caller: &Caller<'_>,
    parts: &[&str],
    head: &Parts,
    body: Incoming,
) -> Result<Reply, Error> {
    let query = head.uri.query();
    let (post, get) = (head.method == Method::POST, head.method == Method::GET);
    match parts {
        ["queues", name, "messages"] if post => {
            caller.must(Right::Send, Some(name))?;
            send::one(app, &queue(app, name)?, head, body).await
        }
        ["queues", name, "batch"] if post => {
            caller.must(Right::Send, Some(name))?;
            send::batch(app, &queue(app, name)?, body).await
        }
        ["queues", name, "cancel"] if post => {
            caller.must(Right::Send, Some(name))?;
            settle::cancel(app, &queue(app, name)?, body).await
        }
        ["queues", name, "sessions", what] if post && sessions::is_known(what) => {
            caller.must(Right::Listen, Some(name))?;
            sessions::act(app, &queue(app, name)?, what, query, body).await
        }
        ["queues", name, "$deadletter", "resubmit"] if post => {
            caller.must(Right::Manage, Some(name))?;
            settle::resubmit(app, &queue(app, name)?, body).await
        }
        ["queues", name, what] => {
            of_part(app, caller, name, Part::Main, what, parts, head, body).await
        }
        ["queues", name, "$deadletter", what] => {
            of_part(
                app,
                caller,
                name,
                Part::DeadLetters,
                what,
                parts,
                head,
                body,
            )
            .await
        }
        ["api", "queues"] if get => admin::list(app, caller).await,
        ["api", "queues"] if post => admin::create(app, caller, body).await,
        ["api", "queues", name] if get => {
            caller.must(Right::Listen, Some(name))?;
            admin::describe(&queue(app, name)?).await
        }
        ["api", "queues", name] if head.method == Method::PATCH => {
            caller.must(Right::Manage, Some(name))?;
            admin::change(app, name, body).await
        }
        ["api", "queues", name] if head.method == Method::DELETE => {
            caller.must(Right::Manage, Some(name))?;
            queues(app)?.delete(name).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        _ => Err(route::nothing(head, parts)),
    }
}

/// What a queue and its dead letters have in common.
#[allow(
    clippy::too_many_arguments,
    reason = "it is the rest of the table above"
)]
async fn of_part(
    app: &Arc<App>,
    caller: &Caller<'_>,
    name: &str,
    part: Part,
    what: &str,
    parts: &[&str],
    head: &Parts,
    body: Incoming,
) -> Result<Reply, Error> {
    let query = head.uri.query();
    let post = head.method == Method::POST;
    match what {
        "messages" if head.method == Method::GET => {
            caller.must(Right::Listen, Some(name))?;
            receive::peek(app, &queue(app, name)?, part, query).await
        }
        "receive" if post => {
            caller.must(Right::Listen, Some(name))?;
            receive::receive(app, &queue(app, name)?, part, query, body).await
        }
        "deferred" if post => {
            caller.must(Right::Listen, Some(name))?;
            receive::deferred(app, &queue(app, name)?, part, query, body).await
        }
        "purge" if post => {
            caller.must(Right::Manage, Some(name))?;
            settle::purge(&queue(app, name)?, part).await
        }
        _ => match Settle::named(what).filter(|_| post) {
            Some(settle) => {
                caller.must(Right::Listen, Some(name))?;
                settle.act(app, &queue(app, name)?, body).await
            }
            None => Err(route::nothing(head, parts)),
        },
    }
}

fn queues(app: &App) -> Result<&Queues, Error> {
    let none = || Error::new(Code::NotFound, "this node has no queues", "");
    app.backend()?.queues.as_ref().ok_or_else(none)
}

fn queue(app: &App, name: &str) -> Result<Queue, Error> {
    let unknown = || {
        let hint = format!(
            "create it: POST /api/queues with {{\"name\":\"{name}\"}}, or highwater queue create"
        );
        Error::new(Code::NotFound, format!("there is no queue `{name}`"), hint)
    };
    queues(app)?.get(name).ok_or_else(unknown)
}

/// The body as JSON.
async fn read_json<T: DeserializeOwned>(
    app: &App,
    incoming: Incoming,
    example: &str,
) -> Result<T, Error> {
    let (body, _permit) = body::read(app, incoming).await?;
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the body cannot be read: {error}");
        Error::bad(message, format!("such as {example}"))
    })
}

impl From<QueueError> for Error {
    fn from(error: QueueError) -> Error {
        match error {
            QueueError::Refused(refusal) => refusal.into(),
            QueueError::Log(error) => error.into(),
            QueueError::Stopped(_) => Error::new(
                Code::Stopped,
                error.to_string(),
                "look at the log of the node",
            ),
            QueueError::RequestTooLarge { .. } => {
                Error::new(Code::TooLarge, error.to_string(), "send fewer at a time")
            }
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let (code, hint) = match &refusal {
            Refusal::LockLost => (Code::LockLost, "receive the message again"),
            Refusal::SessionLost => (Code::LockLost, "accept the session again"),
            Refusal::SessionTaken(_) => (Code::Locked, "wait until it is released: wait=30s"),
            Refusal::Full { .. } => (Code::Full, "receive what is there, or raise bytes_max"),
            Refusal::TooLarge { .. } => (Code::TooLarge, "raise message_bytes_max of the queue"),
            Refusal::NotThere { .. } => (Code::NotFound, "GET /queues/NAME/messages shows them"),
            Refusal::BySession => (Code::BadRequest, "POST /queues/NAME/sessions/accept"),
            Refusal::NoSession => (Code::BadRequest, "give it one: x-session-id"),
            Refusal::IdTooLong(_) | Refusal::WithoutSessions | Refusal::DeadAlready => {
                (Code::BadRequest, "docs/queues.md says what there is")
            }
        };
        Error::new(code, refusal.to_string(), hint)
    }
}
