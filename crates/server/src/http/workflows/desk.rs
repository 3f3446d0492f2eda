//! The desk at which supervisors of other processes get what failed, and report how undoing it went.

use highwater_workflow::Counter;
use highwater_workflow::supervise::{Desk, DeskError};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;

use super::{App, Caller, Code, Error, Reply, Right, body, find, reply};

pub async fn answer(
    app: &App,
    caller: &Caller<'_>,
    (name, partition): (&str, &str),
    verb: &str,
    asked: Incoming,
) -> Result<Reply, Error> {
    let workflow = find(app, caller, Right::Manage, name)?;
    let partition = partition.parse().map_err(|_| DeskError::Closed)?;
    let desk: Counter = workflow.desk(partition)?;
    let (bytes, _permit) = body::read(app, asked).await?;
    match verb {
        "claim" => {
            let offer = desk.claim(said(&bytes)?).await?;
            Ok(reply::json(StatusCode::OK, &offer))
        }
        "report" => {
            let taken = desk.report(said(&bytes)?).await?;
            Ok(reply::json(StatusCode::OK, &taken))
        }
        _ => {
            desk.give_back(said(&bytes)?).await?;
            Ok(reply::json(StatusCode::OK, &serde_json::json!({})))
        }
    }
}

fn said<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| {
        let hint = "docs/http.md has what supervisors say; `highwater workflow supervise` says it";
        Error::bad(error.to_string(), hint)
    })
}

impl From<DeskError> for Error {
    fn from(error: DeskError) -> Error {
        let (code, hint) = match &error {
            DeskError::Lost(_) => (Code::LockLost, "begin anew"),
            DeskError::Closed => (
                Code::NotFound,
                "write supervisor = \"elsewhere\" in the workflow's settings to have it lent out",
            ),
            DeskError::Unreadable(_) => (Code::BadRequest, "send events as the journal has them"),
            DeskError::Away(_) => (Code::Stopped, "the log of the node says why"),
        };
        Error::new(code, error.to_string(), hint)
    }
}
