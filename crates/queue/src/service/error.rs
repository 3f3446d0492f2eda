use highwater_log::{AdminError, AppendError, HubNameError};

use crate::journal::JournalError;
use crate::machine::Refusal;
use crate::settings::SettingsError;

/// Why an operation on a queue failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The append failed. The kind decides whether the outcome is unknown.
    #[error(transparent)]
    Log(#[from] AppendError),
    #[error("the queue has stopped: {0}")]
    Stopped(String),
    #[error("the request has {bytes} bytes, and the limit is {max}")]
    RequestTooLarge { bytes: usize, max: usize },
}

impl Error {
    /// Whether a smaller request may succeed.
    pub(super) fn is_over_limit(&self) -> bool {
        matches!(
            self,
            Error::Refused(Refusal::Full { .. }) | Error::RequestTooLarge { .. }
        )
    }
}

/// Why messages cannot be forwarded as wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    #[error("there is no queue or topic `{0}` to forward to")]
    UnknownTarget(String),
    #[error("forwarding to `{target}` makes a circle, or a chain of more than {max} steps")]
    TooFar { target: String, max: usize },
}

/// Why a queue was not created, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    #[error("queue `{0}` exists already")]
    Exists(String),
    #[error("there is no queue `{0}`")]
    Unknown(String),
    #[error(
        "`{0}` cannot name a queue: use 1 to 200 letters, digits, dots, dashes and underscores"
    )]
    Name(String),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("`sessions` cannot be changed after a queue is created")]
    SessionsFixed,
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Queue(#[from] Error),
}

impl From<HubNameError> for CreateError {
    fn from(error: HubNameError) -> CreateError {
        CreateError::Name(error.0)
    }
}
