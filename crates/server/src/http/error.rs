//! Errors of requests: a stable code for programs, a message and a hint for people.

use std::time::Duration;

use highwater_env::BudgetExhausted;
use highwater_log::{AdminError, AppendError, GroupError, HubNameError, ReadError};
use hyper::StatusCode;
use serde_json::{Value, json};

/// Error codes. Clients may match on them, so they are stable.
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
    /// The lock of a message or session expired; another receiver may have it.
    LockLost,
    Locked,
    TooLarge,
    Full,
    /// The key has used more than its quota.
    OverQuota,
    NoRoom,
    Internal,
    Starting,
    Stopped,
    /// Another node owns the resource, and this one cannot forward the request.
    Misdirected,
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
            Code::OverQuota => ("over_quota", StatusCode::TOO_MANY_REQUESTS),
            Code::NoRoom => ("no_room", StatusCode::INSUFFICIENT_STORAGE),
            Code::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
            Code::Starting => ("starting", StatusCode::SERVICE_UNAVAILABLE),
            Code::Stopped => ("stopped", StatusCode::SERVICE_UNAVAILABLE),
            Code::Misdirected => ("misdirected", StatusCode::MISDIRECTED_REQUEST),
        }
    }

    /// Whether a retry may succeed, after a second unless the error says otherwise.
    pub fn retry(self) -> bool {
        matches!(self, Code::Full | Code::OverQuota | Code::Starting)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: Code,
    pub message: String,
    pub hint: String,
    /// More fields for the body of the answer.
    pub details: Option<Box<Value>>,
    pub retry_after: Duration,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            hint: hint.into(),
            details: None,
            retry_after: Duration::from_secs(1),
        }
    }

    pub fn bad(message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::new(Code::BadRequest, message, hint)
    }

    pub(crate) fn not_found(message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::new(Code::NotFound, message, hint)
    }

    pub(crate) fn over_quota(retry_after: Duration) -> Error {
        let message = "the key has used more than its quota";
        let hint = "send again after the time in Retry-After";
        Error {
            retry_after,
            ..Error::new(Code::OverQuota, message, hint)
        }
    }

    pub(crate) fn no_hub(name: &str) -> Error {
        let hint = format!(
            "create it: POST /api/hubs with {{\"name\":\"{name}\"}}, or highwater hub create"
        );
        Error::not_found(format!("there is no hub `{name}`"), hint)
    }

    pub fn to_json(&self) -> Value {
        let mut body = json!({
            "code": self.code.name(), "message": self.message, "hint": self.hint,
        });
        let details = self.details.as_deref().and_then(Value::as_object);
        if let (Some(details), Some(body)) = (details, body.as_object_mut()) {
            body.extend(details.clone());
        }
        body
    }
}

impl From<BudgetExhausted> for Error {
    fn from(error: BudgetExhausted) -> Error {
        let message = format!("too many requests and answers are in flight: {error}");
        Error::new(
            Code::Full,
            message,
            "send again after the time in Retry-After",
        )
    }
}

impl From<AppendError> for Error {
    fn from(error: AppendError) -> Error {
        let (code, hint) = match &error {
            AppendError::QueueFull { .. } | AppendError::Busy { .. } => {
                (Code::Full, "send again after the time in Retry-After")
            }
            AppendError::DiskFull { .. } => (
                Code::NoRoom,
                "free space on the disk of the node, or shorten the retention of hubs; then send again",
            ),
            AppendError::TooLarge { .. } => (
                Code::TooLarge,
                "send fewer events at a time, or raise batch_bytes_max of the hub",
            ),
            AppendError::Stopped { .. } => (
                Code::Stopped,
                "the disk failed: see the log of the node, repair the disk and restart the node",
            ),
            AppendError::OutcomeUnknown { .. } => (
                Code::Stopped,
                "the remote log does not answer: send again, with an id of your own to detect duplicates",
            ),
            AppendError::Fenced { .. } => (
                Code::Stopped,
                "another instance has taken it over: send to that one",
            ),
            AppendError::Deleted(_) => (Code::NotFound, "the hub was deleted meanwhile"),
            _ => (Code::Internal, "this is a bug: please report it"),
        };
        Error::new(code, error.to_string(), hint)
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        let (code, hint) = match &error {
            ReadError::OutOfRange {
                requested, start, ..
            } if requested < start => (Code::Trimmed, "retention removed it: read from=earliest"),
            ReadError::OutOfRange { .. } => {
                (Code::BadRequest, "that is past the end: read from=latest")
            }
            ReadError::Damaged { .. } => (Code::Stopped, "restore the file from a backup"),
            ReadError::Storage { .. } => (Code::Stopped, "see the log of the node"),
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
            AdminError::TooMany { .. } => (
                Code::Forbidden,
                "create it with POST /api/hubs, or raise auto_create_hubs_max or auto_create_partitions_max",
            ),
            AdminError::Storage(_) => (Code::Stopped, "see the log of the node"),
            AdminError::Partitions { .. } | AdminError::Shrink { .. } | AdminError::Settings(_) => {
                (Code::BadRequest, "docs/http.md has the settings of hubs")
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
            GroupError::Loading => (Code::Starting, "try again later"),
            GroupError::Storage(_) => (Code::Stopped, "see the log of the node"),
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
