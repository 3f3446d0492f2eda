//! Maps database errors to outcomes for rows.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::super::EndpointError;

#[derive(Debug)]
pub(super) enum Failure {
    /// It may succeed later.
    Unavailable(String),
    /// The server rejects some values.
    Data(String),
    /// The server rejects these rows.
    Refused { rows: Vec<u64>, reason: String },
    /// No rows are accepted until an operator intervenes.
    Unfit(String),
}

impl From<Failure> for EndpointError {
    fn from(failure: Failure) -> EndpointError {
        match failure {
            Failure::Unavailable(reason) | Failure::Data(reason) => {
                EndpointError::unavailable(reason)
            }
            Failure::Refused { rows, reason } => EndpointError::Refused { rows, reason },
            Failure::Unfit(reason) => EndpointError::unfit(reason),
        }
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Failure {
        Failure::Unfit(error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let Some(told) = error.as_db_error() else {
            return match error.is_closed() || source_is_io(&error) {
                true => Failure::Unavailable(whole(&error)),
                // An invalid setting or encoding: retrying does not help.
                false => Failure::Unfit(whole(&error)),
            };
        };
        let mut reason = format!("{} ({})", told.message(), told.code().code());
        if let Some(detail) = told.detail() {
            reason = format!("{reason}: {detail}");
        }
        sort(told.code(), reason)
    }
}

fn sort(code: &SqlState, reason: String) -> Failure {
    let class = code.code().get(..2).unwrap_or_default();
    match (class, code) {
        // A standby that will soon be the primary, a lock, a deadlock.
        (_, &SqlState::READ_ONLY_SQL_TRANSACTION | &SqlState::LOCK_NOT_AVAILABLE) => {
            Failure::Unavailable(reason)
        }
        // Connections, serialization conflicts, insufficient resources, a server that shuts down, I/O errors.
        ("08" | "40" | "53" | "57" | "58" | "XX", _) => Failure::Unavailable(reason),
        // Values that the types or constraints of the table do not allow; errors raised by triggers.
        ("22" | "23" | "P0" | "44", _) => Failure::Data(reason),
        _ => Failure::Unfit(reason),
    }
}

/// With the cause, which the library leaves out.
fn whole(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn source_is_io(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<std::io::Error>())
}
