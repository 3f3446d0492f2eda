//! Processors over HTTP, with their circuits and dead letters.

pub(super) mod circuits;
pub(super) mod dead_letters;
pub(super) mod resume;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use highwater_access::{Resource, Right};
use highwater_flow::Assignment;
use highwater_flow::circuit::CircuitState;
use highwater_log::TopicPartition;
use highwater_settings::redact_url;
use serde_json::{Value, json};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::Error;
use super::read::ISOLATION;
use super::reply::{self, Reply};
use crate::processors::{Entry, HandlerSpec, Processors};
use crate::text::percent_decode;

fn processors(app: &App) -> Result<&Arc<Processors>, Error> {
    let none = || {
        Error::not_found(
            "this node has no processors",
            "add a [processors.NAME] table to the settings",
        )
    };
    app.backend()?.processors.as_ref().ok_or_else(none)
}

/// The processor in the path.
fn entry<'a>(request: &ApiRequest<'a>, name: &str) -> Result<&'a Entry, Error> {
    find(request.app, &percent_decode(name))
}

pub(super) fn find<'a>(app: &'a App, name: &str) -> Result<&'a Entry, Error> {
    let message = || format!("there is no processor `{name}`");
    let none = || Error::not_found(message(), "GET /api/processors lists them");
    processors(app)?.entry(name).ok_or_else(none)
}

/// The kind of a handler, and its address or program without secrets.
pub(super) fn target(handler: &HandlerSpec) -> (&'static str, String) {
    match handler {
        HandlerSpec::Webhook { url, .. } => ("webhook", redact_url(url)),
        HandlerSpec::Command(command) => ("command", command.join(" ")),
    }
}

/// Whether the caller may see a processor.
fn may_see(request: &ApiRequest<'_>, processor: &str) -> bool {
    let resource = Resource::Deployment(processor);
    request.caller.may(Right::Listen, resource)
}

pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let mut all = Vec::new();
    let entries = processors(request.app)?.entries();
    for entry in entries
        .iter()
        .filter(|entry| may_see(&request, &entry.spec.name))
    {
        all.push(processor_json(request.app, entry).await?.0);
    }
    Ok(reply::ok(&json!({"processors": all})))
}

pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let (mut processor, partitions) = processor_json(request.app, entry(&request, name)?).await?;
    processor["partitions"] = partitions.into();
    Ok(reply::ok(&processor))
}

/// The facts of a processor, and of each partition of its hub.
async fn processor_json(app: &App, entry: &Entry) -> Result<(Value, Vec<Value>), Error> {
    let (spec, activity) = (&entry.spec, &entry.activity);
    let positions = positions(app, entry).await?;
    let here = activity.partitions();
    let partitions: Vec<Value> = positions
        .iter()
        .map(|position| {
            json!({
                "partition": position.of.partition, "offset": position.offset, "end": position.end,
                "behind": position.behind(), "here": here.contains_key(&position.of),
                "trouble": here.get(&position.of).cloned().flatten(),
            })
        })
        .collect();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (handler, target) = target(&spec.handler);
    let behind: i64 = positions.iter().map(Position::behind).sum();
    let processor = json!({
        "name": spec.name, "hub": spec.hub.as_str(), "group": spec.group,
        "handler": handler, "target": target, "dead": spec.dead.as_str(),
        "circuit": circuits::state_name(&entry.circuit.state()),
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
    Ok((processor, partitions))
}

/// The stored position of a processor in one partition.
pub(super) struct Position {
    pub(super) of: TopicPartition,
    pub(super) offset: Option<i64>,
    start: i64,
    pub(super) end: i64,
}

impl Position {
    pub(super) fn behind(&self) -> i64 {
        (self.end - self.offset.unwrap_or(self.start).max(self.start)).max(0)
    }
}

pub(super) async fn positions(app: &App, entry: &Entry) -> Result<Vec<Position>, Error> {
    let backend = app.backend()?;
    let hub = &entry.spec.hub;
    let Some(info) = backend.log.hub(hub.as_str()) else {
        return Ok(Vec::new());
    };
    let partitions: Vec<TopicPartition> = (0..info.partitions)
        .map(|partition| info.topic_partition(partition))
        .collect();
    let stored = match &backend.groups {
        Some(groups) => {
            groups
                .fetch_offsets(entry.spec.group.clone(), Some(partitions), false)
                .await?
        }
        None => Vec::new(),
    };
    let partitions = stored.into_iter().filter_map(|(of, stored)| {
        let partition = backend.log.partition(hub.as_str(), of.partition)?;
        Some((of, stored, partition))
    });
    let positions = partitions.map(|(of, stored, partition)| async move {
        let bounds = partition.fetch_bounds().await?;
        Ok(Position {
            of,
            offset: stored.map(|stored| stored.offset.0),
            start: bounds.start.0,
            end: bounds.visible(ISOLATION).0,
        })
    });
    join_all(positions).await.into_iter().collect()
}

/// Events in the partitions of this node that are not handled yet; `None` if the positions cannot be read.
pub(super) async fn behind_here(app: &App, entry: &Entry) -> Option<u64> {
    let here = entry.activity.partitions();
    let positions = positions(app, entry).await.ok()?;
    let own = positions
        .iter()
        .filter(|position| here.contains_key(&position.of));
    Some(own.map(|position| position.behind() as u64).sum())
}

/// Whether the circuit stops deliveries.
pub(super) fn is_open(entry: &Entry) -> bool {
    matches!(entry.circuit.state(), CircuitState::Open { .. })
}
