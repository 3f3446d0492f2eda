//! Processors over HTTP: how they are, their circuits and their dead letters.

mod circuits;
mod letters;
mod resume;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_flow::Assignment;
use highwater_flow::circuit::CircuitState;
use highwater_log::{Place, StoredOffset};
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::app::App;
use super::auth::Caller;
use super::error::{Code, Error};
use super::read::ISOLATION;
use super::reply::{self, Reply};
use crate::keys::Right;
use crate::processors::{Entry, HandlerSpec, Processors};
use crate::text::percent_decode;

pub use resume::resume;

/// Whether a path below `/api` is for us, whatever the method.
pub fn is_known(parts: &[&str]) -> bool {
    matches!(
        parts,
        ["api", "processors" | "circuits" | "dead-letters"]
            | ["api", "processors" | "circuits" | "dead-letters", _]
            | ["api", "circuits", _, "open" | "close"]
            | ["api", "dead-letters", _, _]
    )
}

pub async fn route(
    app: &App,
    caller: &Caller<'_>,
    method: &Method,
    parts: &[&str],
    query: Option<&str>,
    body: Incoming,
) -> Result<Reply, Error> {
    let processors = some(app)?;
    let (get, post) = (method == Method::GET, method == Method::POST);
    let [_, what, rest @ ..] = parts else {
        return Err(refused(method));
    };
    let name = rest
        .first()
        .map(|name| percent_decode(name))
        .unwrap_or_default();
    if get && *what != "dead-letters" {
        caller.must(Right::Listen, None)?;
    }
    match (*what, rest) {
        ("processors", []) if get => list(app, processors).await,
        ("processors", [_]) if get => describe(app, named(processors, &name)?).await,
        ("circuits", []) if get => Ok(circuits::list(processors)),
        ("circuits", [_]) if get => circuits::describe(processors, &name),
        ("circuits", [_, action @ ("open" | "close")]) if post => {
            caller.must(Right::Manage, None)?;
            circuits::change(app, processors, &name, action, body).await
        }
        ("dead-letters", []) if get => {
            caller.must(Right::Listen, None)?;
            letters::count(processors).await
        }
        ("dead-letters", [_, rest @ ..]) => {
            let entry = named(processors, &name)?;
            let right = if get { Right::Listen } else { Right::Manage };
            caller.must(right, Some(entry.spec.dead.as_str()))?;
            match rest {
                [] if get => letters::list(entry, query).await,
                [id] if get => letters::show(entry, &percent_decode(id)).await,
                ["replay"] if post => letters::replay(app, processors, entry, body).await,
                ["purge"] if post => letters::purge(app, entry, body).await,
                _ => Err(refused(method)),
            }
        }
        _ => Err(refused(method)),
    }
}

fn refused(method: &Method) -> Error {
    let message = format!("this does not take {method}");
    Error::new(
        Code::MethodNotAllowed,
        message,
        "docs/processing.md lists what there is",
    )
}

pub(super) fn some(app: &App) -> Result<&Arc<Processors>, Error> {
    let none = || {
        Error::new(
            Code::NotFound,
            "this node has no processors",
            "add a [processors.NAME] table to the settings",
        )
    };
    app.backend()?.processors.as_ref().ok_or_else(none)
}

fn named<'a>(processors: &'a Processors, name: &str) -> Result<&'a Entry, Error> {
    let message = || format!("there is no processor `{name}`");
    let none = || Error::new(Code::NotFound, message(), "GET /api/processors lists them");
    processors.entry(name).ok_or_else(none)
}

async fn list(app: &App, processors: &Processors) -> Result<Reply, Error> {
    let mut all = Vec::new();
    for entry in processors.entries() {
        all.push(facts(app, entry).await?.0);
    }
    Ok(reply::json(StatusCode::OK, &json!({"processors": all})))
}

async fn describe(app: &App, entry: &Entry) -> Result<Reply, Error> {
    let (mut facts, places) = facts(app, entry).await?;
    facts["partitions"] = places.into();
    Ok(reply::json(StatusCode::OK, &facts))
}

/// What is known of a processor, and of the partitions of its hub.
async fn facts(app: &App, entry: &Entry) -> Result<(Value, Vec<Value>), Error> {
    let (spec, activity) = (&entry.spec, &entry.activity);
    let positions = positions(app, entry).await?;
    let here = activity.places();
    let trouble = |place: &Place| here.get(place).cloned().flatten();
    let places: Vec<Value> = positions
        .iter()
        .map(|position| {
            json!({
                "partition": position.place.partition, "offset": position.offset, "end": position.end,
                "behind": position.behind(), "here": here.contains_key(&position.place),
                "trouble": trouble(&position.place),
            })
        })
        .collect();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (handler, target) = match &spec.handler {
        HandlerSpec::Webhook { url, .. } => ("webhook", url.clone()),
        HandlerSpec::Command(command) => ("command", command.join(" ")),
    };
    let behind: i64 = positions.iter().map(Position::behind).sum();
    let facts = json!({
        "name": spec.name, "hub": spec.hub.as_str(), "group": spec.group,
        "handler": handler, "target": target, "dead": spec.dead.as_str(),
        "circuit": circuits::word(&entry.circuit.state()),
        "instance": match spec.assignment {
            Assignment::Numbered { ordinal, .. } => Some(ordinal),
            Assignment::Shared { .. } => None,
        },
        "partitions_here": here.len(), "behind": behind,
        "deliveries": count(&activity.deliveries), "failures": count(&activity.failures),
        "handled": count(&activity.handled), "dead_letters": count(&activity.dead),
        "restarts": count(&activity.restarts),
        "trouble": here.values().flatten().next(),
    });
    Ok((facts, places))
}

/// How far a processor has come with one partition.
pub(super) struct Position {
    pub place: Place,
    offset: Option<i64>,
    start: i64,
    end: i64,
}

impl Position {
    pub fn behind(&self) -> i64 {
        (self.end - self.offset.unwrap_or(self.start).max(self.start)).max(0)
    }
}

pub(super) async fn positions(app: &App, entry: &Entry) -> Result<Vec<Position>, Error> {
    let backend = app.backend()?;
    let hub = &entry.spec.hub;
    let Some(info) = backend.log.hub(hub.as_str()) else {
        return Ok(Vec::new());
    };
    let places: Vec<Place> = (0..info.partitions)
        .map(|partition| info.place(partition))
        .collect();
    let stored = match &backend.groups {
        Some(groups) => {
            groups
                .committed(entry.spec.group.clone(), Some(places), false)
                .await?
        }
        None => Vec::new(),
    };
    let position = |(place, stored): (Place, Option<StoredOffset>)| {
        let partition = backend.log.partition(hub.as_str(), place.partition)?;
        let bounds = partition.bounds();
        Some(Position {
            place,
            offset: stored.map(|stored| stored.offset.0),
            start: bounds.start.0,
            end: bounds.visible(ISOLATION).0,
        })
    };
    Ok(stored.into_iter().filter_map(position).collect())
}

/// 1 while nothing is delivered, for the metrics.
pub(super) fn is_open(entry: &Entry) -> u64 {
    u64::from(matches!(entry.circuit.state(), CircuitState::Open { .. }))
}
