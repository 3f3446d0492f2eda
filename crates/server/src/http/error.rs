//! What went wrong with a request: a stable code for programs, a message and a hint for people.

use highwater_log::{AdminError, AppendError, GroupError, HubNameError, ReadError};
use hyper::StatusCode;
use serde_json::{Value, json};

/// Stable: clients may match on these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    BadRequest,
    BadEvent,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    Timeout,
    Exists,
    Conflict,
    InUse,
    Trimmed,
    /// A message or a session that somebody else may have by now.
    LockLost,
    Locked,
    TooLarge,
    Full,
    NoRoom,
    Internal,
    Starting,
    Stopped,
}

impl Code {
    pub fn name(self) -> &'static str {
        self.parts().0
    }

    pub fn status(self) -> StatusCode {
        self.parts().1
    }

    fn parts(self) -> (&'static str, StatusCode) {
        match self {
            Code::BadRequest => ("bad_request", StatusCode::BAD_REQUEST),
            Code::BadEvent => ("bad_event", StatusCode::BAD_REQUEST),
            Code::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED),
            Code::Forbidden => ("forbidden", StatusCode::FORBIDDEN),
            Code::NotFound => ("not_found", StatusCode::NOT_FOUND),
            Code::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED),
            Code::NotAcceptable => ("not_acceptable", StatusCode::NOT_ACCEPTABLE),
            Code::Timeout => ("timeout", StatusCode::REQUEST_TIMEOUT),
            Code::Conflict => ("conflict", StatusCode::CONFLICT),
            Code::Exists => ("exists", StatusCode::CONFLICT),
            Code::InUse => ("in_use", StatusCode::CONFLICT),
            Code::Trimmed => ("trimmed", StatusCode::GONE),
            Code::LockLost => ("lock_lost", StatusCode::GONE),
            Code::Locked => ("locked", StatusCode::LOCKED),
            Code::TooLarge => ("too_large", StatusCode::PAYLOAD_TOO_LARGE),
            Code::Full => ("full", StatusCode::TOO_MANY_REQUESTS),
            Code::NoRoom => ("no_room", StatusCode::INSUFFICIENT_STORAGE),
            Code::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
            Code::Starting => ("starting", StatusCode::SERVICE_UNAVAILABLE),
            Code::Stopped => ("stopped", StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    /// Whether the same request may well succeed in a second.
    pub fn retry(self) -> bool {
        matches!(self, Code::Full | Code::Starting)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: Code,
    pub message: String,
    pub hint: String,
    /// More facts for the body of the answer.
    pub more: Option<Box<Value>>,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            hint: hint.into(),
            more: None,
        }
    }

    pub fn bad(message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::new(Code::BadRequest, message, hint)
    }

    pub fn no_hub(name: &str) -> Error {
        let hint = format!(
            "create it: POST /api/hubs with {{\"name\":\"{name}\"}}, or highwater hub create"
        );
        Error::new(Code::NotFound, format!("there is no hub `{name}`"), hint)
    }

    pub fn to_json(&self) -> Value {
        let mut body = json!({
            "code": self.code.name(), "message": self.message, "hint": self.hint,
        });
        let more = self.more.as_deref().and_then(Value::as_object);
        if let (Some(more), Some(body)) = (more, body.as_object_mut()) {
            body.extend(more.clone());
        }
        body
    }
}

impl From<AppendError> for Error {
    fn from(error: AppendError) -> Error {
        let (code, hint) = match &error {
            AppendError::QueueFull { .. } => {
                (Code::Full, "send again after the time in Retry-After")
            }
            AppendError::DiskFull { .. } => (
                Code::NoRoom,
                "make room on the disk of the node, or shorten the retention of hubs; then send again",
            ),
            AppendError::TooLarge { .. } => (
                Code::TooLarge,
                "send fewer events at a time, or raise batch_bytes_max of the hub",
            ),
            AppendError::Stopped { .. } => (
                Code::Stopped,
                "the disk failed: look at the log of the node, mend the disk and start it again",
            ),
            AppendError::OutcomeUnknown { .. } => (
                Code::Stopped,
                "the log of the node is elsewhere and does not answer: send again, with a number of your own if twice is too much",
            ),
            AppendError::Deleted(_) => (Code::NotFound, "the hub was deleted meanwhile"),
            _ => (Code::Internal, "this should not happen: please report it"),
        };
        Error::new(code, error.to_string(), hint)
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        let (code, hint) = match &error {
            ReadError::OutOfRange {
                requested, start, ..
            } if requested < start => (
                Code::Trimmed,
                "retention has removed it: read on from=earliest",
            ),
            ReadError::OutOfRange { .. } => {
                (Code::BadRequest, "that is past the end: read from=latest")
            }
            ReadError::Damaged { .. } => (Code::Stopped, "restore the file from a copy"),
            ReadError::Storage { .. } => (Code::Stopped, "look at the log of the node"),
            ReadError::Deleted(_) => (Code::NotFound, "the hub was deleted meanwhile"),
        };
        Error::new(code, error.to_string(), hint)
    }
}

impl From<AdminError> for Error {
    fn from(error: AdminError) -> Error {
        let (code, hint) = match &error {
            AdminError::Unknown(_) => (Code::NotFound, "GET /api/hubs lists them"),
            AdminError::Exists(_) => (Code::Exists, "choose another name, or use it as it is"),
            AdminError::Storage(_) => (Code::Stopped, "look at the log of the node"),
            AdminError::Partitions { .. } | AdminError::Shrink { .. } | AdminError::Settings(_) => {
                (Code::BadRequest, "docs/http.md says what a hub can be")
            }
        };
        Error::new(code, error.to_string(), hint)
    }
}

impl From<GroupError> for Error {
    fn from(error: GroupError) -> Error {
        let (code, hint) = match &error {
            GroupError::NotFound => (Code::NotFound, "GET /api/groups lists them"),
            GroupError::NotEmpty | GroupError::Subscribed => {
                (Code::InUse, "stop its members first")
            }
            GroupError::Loading => (Code::Starting, "ask again in a moment"),
            GroupError::Storage(_) => (Code::Stopped, "look at the log of the node"),
            _ => (Code::BadRequest, ""),
        };
        Error::new(code, error.to_string(), hint)
    }
}

impl From<HubNameError> for Error {
    fn from(error: HubNameError) -> Error {
        Error::bad(error.to_string(), "choose another name")
    }
}
