//! Queues over HTTP: send, receive, settle, sessions, and the queues themselves.
//!
//! `docs/queues.md` is the guide. Every answer of success follows the durable append.

pub(super) mod admin;
mod json;
pub(super) mod receive;
pub(super) mod send;
pub(super) mod sessions;
pub(super) mod settle;

pub(super) use json::state_name;

use highwater_queue::{Error as QueueError, Queue, Queues, Refusal};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};

pub(super) fn queues(app: &App) -> Result<&Queues, Error> {
    let none = || Error::not_found("this node has no queues", "");
    app.backend()?.queues.as_ref().ok_or_else(none)
}

/// The queue in the path.
fn queue(request: &ApiRequest<'_>) -> Result<Queue, Error> {
    let [name] = request.variables();
    find_queue(request.app, name)
}

pub(super) fn find_queue(app: &App, name: &str) -> Result<Queue, Error> {
    let unknown = || {
        let hint = format!(
            "create it: POST /api/queues with {{\"name\":\"{name}\"}}, or highwater queue create"
        );
        Error::not_found(format!("there is no queue `{name}`"), hint)
    };
    queues(app)?.get(name).ok_or_else(unknown)
}

impl From<QueueError> for Error {
    fn from(error: QueueError) -> Error {
        match error {
            QueueError::Refused(refusal) => refusal.into(),
            QueueError::Log(error) => error.into(),
            QueueError::Stopped(_) => {
                Error::new(Code::Stopped, error.to_string(), "see the log of the node")
            }
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
            Refusal::SessionLocked(_) => (Code::Locked, "wait for it: wait=30s"),
            Refusal::Full { .. } => (Code::Full, "receive messages, or raise bytes_max"),
            Refusal::TooLarge { .. } => (Code::TooLarge, "raise message_bytes_max of the queue"),
            Refusal::NoSuchMessage { .. } => {
                (Code::NotFound, "GET /queues/NAME/messages shows them")
            }
            Refusal::NoMemory(exhausted) => return (*exhausted).into(),
            Refusal::SessionRequired => (Code::BadRequest, "POST /queues/NAME/sessions/accept"),
            Refusal::SessionIdRequired => (Code::BadRequest, "give it one: x-session-id"),
            Refusal::Forwards(_) => (Code::BadRequest, "or change forward_to of the queue"),
            Refusal::IdTooLong(_) | Refusal::SessionsDisabled | Refusal::AlreadyDeadLettered => {
                (Code::BadRequest, "docs/queues.md has the operations")
            }
            Refusal::RuleExists(_) => (Code::Exists, "choose another name, or replace the rule"),
            Refusal::NoSuchRule(_) => (Code::NotFound, "GET /api/topics/NAME lists them"),
            Refusal::TooManyRules(_) | Refusal::TooManyActions(_) => {
                (Code::BadRequest, "docs/servicebus.md has the rules")
            }
        };
        Error::new(code, refusal.to_string(), hint)
    }
}
