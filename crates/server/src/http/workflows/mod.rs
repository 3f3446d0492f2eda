//! Workflows over HTTP: instances started, described and decided on, and failed ones lent to supervisors elsewhere.

pub(super) mod failed_instances;

use highwater_access::{Resource, Right};
use highwater_workflow::{
    Decision, DecisionError, Handle, JournalError, ListFilter, StartError, StartOutcome,
    Supervision,
};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::reply::{self, Reply};
use crate::text::{parameter, percent_decode};

/// The instances of one answer.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 10_000;

fn workflow<'a>(app: &'a App, name: &str) -> Result<&'a Handle, Error> {
    app.backend()?.workflows.find(name).ok_or_else(|| {
        let hint = format!("add [workflows.{name}] with file = \"{name}.toml\" to the settings");
        Error::new(
            Code::NotFound,
            format!("there is no workflow `{name}`"),
            hint,
        )
    })
}

pub(super) async fn start(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name, id] = request.variables();
    let workflow = workflow(request.app, name)?;
    let (input, _permit) = request.read_body().await?;
    if serde_json::from_slice::<serde::de::IgnoredAny>(&input).is_err() {
        return Err(Error::bad(
            "the input is not JSON",
            "send a JSON document, such as {}",
        ));
    }
    let id = percent_decode(id);
    let (status, state) = match workflow.start(&id, &input).await? {
        StartOutcome::New => (StatusCode::CREATED, "running"),
        StartOutcome::Existing(state) => (StatusCode::OK, state),
    };
    let facts = json!({"workflow": name, "id": id, "state": state});
    Ok(reply::json(status, &facts))
}

pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name, id] = request.variables();
    let workflow = workflow(request.app, name)?;
    let id = percent_decode(id);
    match workflow.show(&id).await? {
        Some(view) => Ok(reply::json(StatusCode::OK, &view)),
        None => Err(no_instance(name, &id)),
    }
}

pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let facts = |workflow: &Handle| {
        json!({
            "name": workflow.name(), "version": workflow.version().to_string(),
            "running": workflow.running(), "ended": workflow.ended(),
            "partitions": workflow.partitions(),
            "supervisor": match workflow.supervision() {
                Supervision::Here => "here",
                Supervision::Elsewhere => "elsewhere",
            },
        })
    };
    let workflows = request.app.backend()?.workflows.iter();
    let visible = |workflow: &&Handle| {
        let resource = Resource::Workflow(workflow.name());
        request.caller.may(Right::Listen, resource)
    };
    let workflows: Vec<Value> = workflows.filter(visible).map(facts).collect();
    Ok(reply::json(
        StatusCode::OK,
        &json!({"workflows": workflows}),
    ))
}

pub(super) async fn list_instances(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let (workflow, query) = (workflow(request.app, name)?, request.query());
    let states = parameter(query, "state").unwrap_or_default();
    let states = states.split(',').filter(|state| !state.is_empty());
    let limit = match parameter(query, "limit") {
        None => LIMIT_DEFAULT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|n| (1..=LIMIT_MAX).contains(n))
            .ok_or_else(|| {
                let hint = format!("a number from 1 to {LIMIT_MAX}");
                Error::bad(format!("limit=`{text}` is no limit"), hint)
            })?,
    };
    let filter = ListFilter {
        states: states.map(str::to_owned).collect(),
        limit,
    };
    let instances = workflow.list(&filter).await?;
    Ok(reply::json(
        StatusCode::OK,
        &json!({"instances": instances}),
    ))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionRequest {
    #[serde(default)]
    note: String,
    #[serde(default)]
    step: String,
}

/// Carries out the decision that `decision` makes of the note and the step in the body.
pub(super) async fn decide(
    mut request: ApiRequest<'_>,
    decision: fn(String, String) -> Decision,
) -> Result<Reply, Error> {
    let [name, id] = request.variables();
    let workflow = workflow(request.app, name)?;
    let example = "{\"note\":\"why\"}, and {\"step\":\"pay\"} to skip one";
    let DecisionRequest { note, step } = request.read_optional_json(example).await?;
    let note = note.chars().take(NOTE_CHARS_MAX).collect();
    let decision = decision(note, step);
    let id = percent_decode(id);
    match workflow.decide(&id, decision).await {
        Ok(view) => Ok(reply::json(StatusCode::OK, &view)),
        Err(DecisionError::Unknown) => match workflow.show(&id).await? {
            None => Err(no_instance(name, &id)),
            Some(view) => Err(conflict(&id, &format!("it is {}", view.state))),
        },
        Err(refused) => Err(conflict(&id, &refused.to_string())),
    }
}

/// Longer notes are cut.
const NOTE_CHARS_MAX: usize = 1000;

fn no_instance(name: &str, id: &str) -> Error {
    let hint = format!("start it: PUT /workflows/{name}/ID with its input");
    let message = format!("workflow `{name}` has no instance `{id}`");
    Error::new(Code::NotFound, message, hint)
}

fn conflict(id: &str, why: &str) -> Error {
    let hint =
        "a running instance can be cancelled; a parked one can be retried, skipped or resolved";
    Error::new(Code::Conflict, format!("`{id}`: {why}"), hint)
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Error {
        let (code, hint) = match &error {
            StartError::Id(_) => (Code::BadRequest, "choose another id"),
            StartError::TooLarge(_) => (Code::TooLarge, "send a reference instead of the data"),
            StartError::Full(_) => (Code::Full, "send again after the time in Retry-After"),
            StartError::Stopped => (Code::Stopped, "see the log of the node"),
        };
        Error::new(code, error.to_string(), hint)
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Error {
        Error::new(Code::Internal, error.to_string(), "see the log of the node")
    }
}
