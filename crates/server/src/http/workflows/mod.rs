//! Workflows over HTTP: instances started, described and decided on, and failed ones claimed by supervisors in other
//! processes.

pub(super) mod bulk_decision;
pub(super) mod failed_instances;

use highwater_access::{Resource, Right};
use highwater_workflow::{
    Handle, JournalError, ListCursor, ListFilter, OperatorCommand, OperatorCommandError, STATES,
    StartError, StartOutcome, Supervision,
};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::forward;
use super::read::unix_ms;
use super::reply::{self, Reply};
use crate::text::{parameter, percent_decode};

/// The instances of one answer.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 10_000;

pub(super) fn workflow(app: &App, name: &str) -> Result<Handle, Error> {
    app.backend()?.workflows.find(name).ok_or_else(|| {
        let hint = format!("add [workflows.{name}] with file = \"{name}.toml\" to the settings");
        Error::not_found(format!("there is no workflow `{name}`"), hint)
    })
}

pub(super) async fn start(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name, id] = request.variables();
    let workflow = workflow(request.app, name)?;
    let (input, _share) = request.read_body().await?;
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
        Some(view) => Ok(reply::ok(&view)),
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
    let workflows = request.app.backend()?.workflows.list();
    let visible = |workflow: &&Handle| {
        let resource = Resource::Workflow(workflow.name());
        request.caller.may(Right::Listen, resource)
    };
    let mut workflows: Vec<Value> = workflows.iter().filter(visible).map(facts).collect();
    let elsewhere = forward::gather(&request, "/api/workflows").await;
    workflows.extend(forward::rows(&elsewhere, "workflows").cloned());
    let mut body = forward::unreachable(&elsewhere);
    body["workflows"] = workflows.into();
    Ok(reply::ok(&body))
}

pub(super) async fn list_instances(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let (workflow, query) = (workflow(request.app, name)?, request.query());
    let limit = match field(query, "limit") {
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
    let text = |name| field(query, name);
    let filter = ListRequest {
        state: text("state"),
        version: text("version"),
        id: text("id"),
        from: text("from"),
        until: text("until"),
        after: text("after"),
    }
    .filter(limit)?;
    let page = workflow.list(&filter).await?;
    let next = page.next.map(|next| next.to_string());
    let body = json!({"instances": page.instances, "next": next});
    Ok(reply::ok(&body))
}

fn field(query: Option<&str>, name: &str) -> Option<String> {
    parameter(query, name).map(|text| text.into_owned())
}

/// Which instances a request is about, as texts.
#[derive(Default)]
pub(super) struct ListRequest {
    /// Names of states, with commas between them.
    pub(super) state: Option<String>,
    pub(super) version: Option<String>,
    pub(super) id: Option<String>,
    pub(super) from: Option<String>,
    pub(super) until: Option<String>,
    pub(super) after: Option<String>,
}

impl ListRequest {
    pub(super) fn filter(self, limit: usize) -> Result<ListFilter, Error> {
        let states = self.state.unwrap_or_default();
        let states = states.split(',').filter(|state| !state.is_empty());
        let states: Vec<String> = states.map(str::to_owned).collect();
        if let Some(unknown) = states.iter().find(|state| !STATES.contains(&&***state)) {
            let message = format!("`{unknown}` is no state of an instance");
            return Err(Error::bad(message, STATES.join(", ")));
        }
        let cursor = |text: String| {
            text.parse::<ListCursor>()
                .map_err(|error| Error::bad(error.to_string(), "take `next` of the page before"))
        };
        Ok(ListFilter {
            states,
            version: self.version,
            id: self.id,
            from_ms: unix_ms(self.from.as_deref())?,
            until_ms: unix_ms(self.until.as_deref())?,
            after: self.after.map(cursor).transpose()?,
            limit,
        })
    }
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
    decision: fn(String, String) -> OperatorCommand,
) -> Result<Reply, Error> {
    let [name, id] = request.variables();
    let workflow = workflow(request.app, name)?;
    let example = "{\"note\":\"why\"}, and {\"step\":\"pay\"} to skip one";
    let DecisionRequest { note, step } = request.read_optional_json(example).await?;
    let note = note.chars().take(NOTE_CHARS_MAX).collect();
    let decision = decision(note, step);
    let id = percent_decode(id);
    match workflow.decide(&id, decision).await {
        Ok(view) => Ok(reply::ok(&view)),
        Err(OperatorCommandError::Unknown) => match workflow.show(&id).await? {
            None => Err(no_instance(name, &id)),
            Some(view) => Err(conflict(&id, &format!("it is {}", view.state))),
        },
        Err(refused) => Err(conflict(&id, &refused.to_string())),
    }
}

/// Longer notes are cut.
const NOTE_CHARS_MAX: usize = 1000;

pub(super) fn no_instance(name: &str, id: &str) -> Error {
    let hint = format!("start it: PUT /workflows/{name}/ID with its input");
    let message = format!("workflow `{name}` has no instance `{id}`");
    Error::not_found(message, hint)
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
            StartError::Full(_) | StartError::FullOfInputs(_) => {
                (Code::Full, "send again after the time in Retry-After")
            }
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
