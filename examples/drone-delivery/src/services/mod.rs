//! The back-end services. Each has its own journal and knows nothing of the others.
//!
//! Two rules make them safe for callers that may crash, time out and retry:
//!
//! - The caller chooses the id; a repetition gets the same answer and has no further effect.
//! - What was undone stays undone. A cancellation closes its id even if there is nothing to cancel yet, because the
//!   request it undoes may still be in flight, and would otherwise take effect later.

pub mod account;
pub mod delivery;
pub mod drone;
pub mod history;
pub mod package;
pub mod third_party;

use highwater_env::Clock;
use hyper::StatusCode;

use crate::http::{Answer, Request};
use crate::model::month_of;

/// The id was cancelled before the request arrived.
fn closed() -> Answer {
    Answer::problem(StatusCode::GONE, "this was cancelled")
}

fn no_such_path() -> Answer {
    Answer::problem(StatusCode::NOT_FOUND, "this service has no such path")
}

fn bad(message: &str) -> Answer {
    Answer::problem(StatusCode::BAD_REQUEST, message)
}

fn now_ms(clock: &dyn Clock) -> i64 {
    clock.unix_millis()
}

/// The query of a monthly summary: an owner and a month in UTC.
struct OwnerMonth<'a> {
    owner: &'a str,
    month: (i16, i8),
}

impl<'a> OwnerMonth<'a> {
    const MISSING: &'static str = "ownerId, year and a month from 1 to 12 are needed";

    fn from_query(request: &Request<'a>) -> Option<OwnerMonth<'a>> {
        let number = |name| request.parameter(name)?.parse::<i16>().ok();
        let month = number("month").filter(|month| (1..=12).contains(month))?;
        Some(OwnerMonth {
            owner: request.parameter("ownerId")?,
            month: (number("year")?, month as i8),
        })
    }

    fn includes(&self, unix_ms: i64) -> bool {
        month_of(unix_ms) == self.month
    }
}
