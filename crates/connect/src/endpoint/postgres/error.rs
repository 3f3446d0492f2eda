//! What a failure of the database means for the rows.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::super::EndpointError;

#[derive(Debug)]
pub(super) enum Failure {
    /// It may work later.
    Unavailable(String),
    /// Some of the values are not taken.
    Data(String),
    /// These rows are not taken.
    Refused { rows: Vec<u64>, reason: String },
    /// Nothing is taken until somebody changes something.
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
                // Of a setting, of an encoding: nothing that time mends.
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
        // A standby that will be the primary soon, a lock, a deadlock.
        (_, &SqlState::READ_ONLY_SQL_TRANSACTION | &SqlState::LOCK_NOT_AVAILABLE) => {
            Failure::Unavailable(reason)
        }
        // Connections, conflicts with others, want of room, a server that stops or is stopped, its disk.
        ("08" | "40" | "53" | "57" | "58" | "XX", _) => Failure::Unavailable(reason),
        // Values that the types or the rules of the table do not allow; a trigger that says no.
        ("22" | "23" | "P0" | "44", _) => Failure::Data(reason),
        _ => Failure::Unfit(reason),
    }
}

/// With what lies behind it, which the library leaves out.
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
