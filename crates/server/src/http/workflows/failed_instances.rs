//! Lets supervisors in other processes claim failed instances, and takes their reports of compensations.

use highwater_workflow::LocalFailedInstances;
use highwater_workflow::supervise::{FailedInstanceError, FailedInstanceSource};
use serde::Deserialize;

use super::workflow;
use crate::http::dispatch::ApiRequest;
use crate::http::error::{Code, Error};
use crate::http::reply::{self, Reply};

pub(in crate::http) async fn claim(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let source = source(&request)?;
    let (body, _share) = request.read_body().await?;
    let offer = source.claim(parse(&body)?).await?;
    Ok(reply::ok(&offer))
}

pub(in crate::http) async fn report(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let source = source(&request)?;
    let (body, _share) = request.read_body().await?;
    let accepted = source.report(parse(&body)?).await?;
    Ok(reply::ok(&accepted))
}

pub(in crate::http) async fn release(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let source = source(&request)?;
    let (body, _share) = request.read_body().await?;
    source.release(parse(&body)?).await?;
    Ok(reply::ok(&serde_json::json!({})))
}

/// The failed instances of the workflow and partition in the path.
fn source(request: &ApiRequest<'_>) -> Result<LocalFailedInstances, Error> {
    let [name, partition] = request.variables();
    let workflow = workflow(request.app, name)?;
    let partition = partition.parse().map_err(|_| FailedInstanceError::Closed)?;
    Ok(workflow.failed_instances(partition)?)
}

fn parse<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| {
        let hint = "docs/http.md has the requests of supervisors; `highwater workflow supervise` sends them";
        Error::bad(error.to_string(), hint)
    })
}

impl From<FailedInstanceError> for Error {
    fn from(error: FailedInstanceError) -> Error {
        let (code, hint) = match &error {
            FailedInstanceError::Lost(_) => (Code::LockLost, "claim again"),
            FailedInstanceError::Closed => (
                Code::NotFound,
                "write supervisor = \"elsewhere\" in the workflow's settings to have it lent out",
            ),
            FailedInstanceError::Unreadable(_) => {
                (Code::BadRequest, "send events as the journal has them")
            }
            FailedInstanceError::Away(_) => (Code::Stopped, "see the log of the node"),
        };
        Error::new(code, error.to_string(), hint)
    }
}
