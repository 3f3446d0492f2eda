//! Workflows over HTTP: start, look, decide; and the desk for supervisors elsewhere.

mod desk;

use std::sync::Arc;

use highwater_workflow::{
    Decision, Handle, JournalError, ListFilter, Refused, StartError, Started, Supervision,
};
use hyper::body::Incoming;
use hyper::http::request;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::App;
use super::auth::Caller;
use super::body;
use super::error::{Code, Error};
use super::reply::{self, Reply};
use crate::keys::Right;
use crate::text::{parameter, percent_decode};

/// How many instances are listed unless asked otherwise, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 10_000;

/// Whatever is below `/workflows` and `/api/workflows`; `None` is for nobody.
pub async fn route(
    app: &Arc<App>,
    caller: &Caller<'_>,
    parts: &[&str],
    head: &request::Parts,
    body: Incoming,
) -> Option<Result<Reply, Error>> {
    let is = |method: Method| head.method == method;
    let answer = match parts {
        ["workflows", name, id] if is(Method::PUT) => start(app, caller, name, id, body).await,
        ["workflows", name, id] | ["api", _, name, id] if is(Method::GET) => {
            show(app, caller, name, id).await
        }
        ["api", _] if is(Method::GET) => list_workflows(app, caller),
        ["api", _, name] if is(Method::GET) => list(app, caller, name, head.uri.query()).await,
        [
            "api",
            _,
            name,
            id,
            verb @ ("cancel" | "retry" | "skip" | "resolve"),
        ] if is(Method::POST) => decide(app, caller, (name, id), verb, body).await,
        [
            "api",
            _,
            name,
            "failed",
            partition,
            verb @ ("claim" | "report" | "return"),
        ] if is(Method::POST) => desk::answer(app, caller, (name, partition), verb, body).await,
        _ => return None,
    };
    Some(answer)
}

/// A key that is limited to hubs must name the workflow's own.
fn find<'a>(
    app: &'a App,
    caller: &Caller<'_>,
    right: Right,
    name: &str,
) -> Result<&'a Handle, Error> {
    caller.must(right, Some(&format!("__workflow.{name}")))?;
    app.backend()?.workflows.find(name).ok_or_else(|| {
        let hint = format!("add [workflows.{name}] with file = \"{name}.toml\" to the settings");
        Error::new(
            Code::NotFound,
            format!("there is no workflow `{name}`"),
            hint,
        )
    })
}

async fn start(
    app: &App,
    caller: &Caller<'_>,
    name: &str,
    id: &str,
    body: Incoming,
) -> Result<Reply, Error> {
    let workflow = find(app, caller, Right::Send, name)?;
    let (input, _permit) = body::read(app, body).await?;
    if serde_json::from_slice::<serde::de::IgnoredAny>(&input).is_err() {
        return Err(Error::bad(
            "the input is not JSON",
            "send a JSON document, such as {}",
        ));
    }
    let id = percent_decode(id);
    let (status, state) = match workflow.start(&id, &input).await? {
        Started::New => (StatusCode::CREATED, "running"),
        Started::Known(state) => (StatusCode::OK, state),
    };
    let facts = json!({"workflow": name, "id": id, "state": state});
    Ok(reply::json(status, &facts))
}

async fn show(app: &App, caller: &Caller<'_>, name: &str, id: &str) -> Result<Reply, Error> {
    let workflow = find(app, caller, Right::Listen, name)?;
    let id = percent_decode(id);
    match workflow.show(&id).await? {
        Some(view) => Ok(reply::json(StatusCode::OK, &view)),
        None => Err(no_instance(name, &id)),
    }
}

fn list_workflows(app: &App, caller: &Caller<'_>) -> Result<Reply, Error> {
    caller.must(Right::Listen, None)?;
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
    let workflows: Vec<Value> = app.backend()?.workflows.iter().map(facts).collect();
    Ok(reply::json(
        StatusCode::OK,
        &json!({"workflows": workflows}),
    ))
}

async fn list(
    app: &App,
    caller: &Caller<'_>,
    name: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let workflow = find(app, caller, Right::Listen, name)?;
    let states = parameter(query, "state").unwrap_or_default();
    let states = states.split(',').filter(|state| !state.is_empty());
    let limit = match parameter(query, "limit") {
        None => LIMIT,
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
struct Asked {
    #[serde(default)]
    note: String,
    #[serde(default)]
    step: String,
}

async fn decide(
    app: &App,
    caller: &Caller<'_>,
    (name, id): (&str, &str),
    verb: &str,
    body: Incoming,
) -> Result<Reply, Error> {
    let workflow = find(app, caller, Right::Manage, name)?;
    let (bytes, _permit) = body::read(app, body).await?;
    let asked = match bytes.trim_ascii() {
        [] => Asked::default(),
        bytes => serde_json::from_slice(bytes).map_err(|error| {
            Error::bad(
                error.to_string(),
                "send {\"note\":\"why\"}, and {\"step\":..} to skip",
            )
        })?,
    };
    let Asked { note, step } = asked;
    let note = note.chars().take(NOTE_CHARS_MAX).collect();
    let decision = match verb {
        "cancel" => Decision::Cancel { note },
        "retry" => Decision::Retry { note },
        "skip" => Decision::Skip { step, note },
        _ => Decision::Resolve { note },
    };
    let id = percent_decode(id);
    match workflow.decide(&id, decision).await {
        Ok(view) => Ok(reply::json(StatusCode::OK, &view)),
        Err(Refused::Unknown) => match workflow.show(&id).await? {
            None => Err(no_instance(name, &id)),
            Some(view) => Err(conflict(&id, &format!("it is {}", view.state))),
        },
        Err(refused) => Err(conflict(&id, &refused.to_string())),
    }
}

/// Of a note no more than this is kept.
const NOTE_CHARS_MAX: usize = 1000;

fn no_instance(name: &str, id: &str) -> Error {
    let hint = format!("start it: PUT /workflows/{name}/ID with its input");
    let message = format!("workflow `{name}` has no instance `{id}`");
    Error::new(Code::NotFound, message, hint)
}

fn conflict(id: &str, why: &str) -> Error {
    let hint =
        "what is running can be cancelled; what is parked can be retried, skipped or resolved";
    Error::new(Code::Conflict, format!("`{id}`: {why}"), hint)
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Error {
        let (code, hint) = match &error {
            StartError::Id(_) => (Code::BadRequest, "choose another id"),
            StartError::TooLarge(_) => (Code::TooLarge, "send a reference instead of the data"),
            StartError::Full(_) => (Code::Full, "send again after the time in Retry-After"),
            StartError::Stopped => (Code::Stopped, "the log of the node says why"),
        };
        Error::new(code, error.to_string(), hint)
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Error {
        Error::new(
            Code::Internal,
            error.to_string(),
            "the log of the node says more",
        )
    }
}
