//! The back ends. Each has its own journal and knows nothing of the others.
//!
//! Two rules make them safe to call by somebody who may die, time out and ask again:
//!
//! - The caller chooses the id, and a repeat has the same answer and no further effect.
//! - What has been undone stays undone. A cancellation closes its id even when there is nothing to
//!   cancel yet, because the request it undoes may still be under way, and would otherwise take hold
//!   after everybody has forgotten it.

pub mod account;
pub mod delivery;
pub mod drone;
pub mod history;
pub mod package;
pub mod third_party;

use hyper::StatusCode;

use crate::http::Answer;

/// The thing was undone before it was done, and must not be done now.
fn closed() -> Answer {
    Answer::problem(StatusCode::GONE, "this was cancelled")
}

fn no_such_path() -> Answer {
    Answer::problem(StatusCode::NOT_FOUND, "this service has no such path")
}

fn bad(message: &str) -> Answer {
    Answer::problem(StatusCode::BAD_REQUEST, message)
}
