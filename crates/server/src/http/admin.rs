//! Hubs and groups: what there is, made and removed.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::{Bounds, Cleanup, GroupInfo, HubInfo, HubName, HubSettings, HubSpec, Place};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, Backend};
use super::auth::Caller;
use super::body;
use super::error::{Code, Error};
use super::read::ISOLATION;
use super::reply::{self, Reply};
use crate::keys::Right;
use crate::text::time_text;

pub fn ready(app: &App) -> Result<Reply, Error> {
    let status = app.backend()?.hub.as_ref().map(|hub| hub.status());
    let partitions = status.iter().flat_map(|status| &status.partitions);
    // Anybody may ask, so why they have stopped is not told here.
    let stopped: Vec<String> = partitions
        .filter(|partition| partition.stopped.is_some())
        .map(|partition| partition.place.to_string())
        .collect();
    let body = json!({"ready": true, "stopped": stopped});
    Ok(reply::json(StatusCode::OK, &body))
}

/// The hubs that the caller may listen to or manage.
pub fn list(app: &App, caller: &Caller<'_>) -> Result<Reply, Error> {
    let seen = |hub: &Arc<HubInfo>| {
        let name = Some(hub.name.as_str());
        !hub.name.is_internal()
            && (caller.may(Right::Listen, name) || caller.may(Right::Manage, name))
    };
    let hubs: Vec<Value> = app
        .log()?
        .hubs()
        .iter()
        .filter(|hub| seen(hub))
        .map(|hub| facts(hub))
        .collect();
    Ok(reply::json(StatusCode::OK, &json!({"hubs": hubs})))
}

pub fn describe(app: &App, name: &str) -> Result<Reply, Error> {
    let hub = app.hub(name)?;
    let Backend { log, hub: disk, .. } = app.backend()?;
    let on_disk = disk.as_ref().map(|disk| disk.status_of(name));
    let on_disk = on_disk.unwrap_or_default();
    let mut facts = facts(&hub);
    let places: Vec<Value> = (0..hub.partitions)
        .filter_map(|number| log.partition(name, number))
        .enumerate()
        .map(|(number, partition)| {
            let mut place = place_facts(number, &partition.bounds());
            if let Some(status) = on_disk.get(number) {
                place["segments"] = status.segments.into();
                place["waiting_bytes"] = status.waiting_bytes.into();
                place["stopped"] = status.stopped.clone().into();
            }
            place
        })
        .collect();
    facts["places"] = places.into();
    Ok(reply::json(StatusCode::OK, &facts))
}

fn place_facts(number: usize, bounds: &Bounds) -> Value {
    json!({
        "partition": number, "start": bounds.start.0, "end": bounds.end.0,
        "stable": bounds.stable.0, "bytes": bounds.bytes,
        "last": bounds.last_time.map(time_text),
    })
}

fn facts(hub: &HubInfo) -> Value {
    let settings = &hub.settings;
    json!({
        "name": hub.name.as_str(),
        "id": hub.id.to_string(),
        "partitions": hub.partitions,
        "cleanup": match settings.cleanup {
            Cleanup::Delete => "delete",
            Cleanup::Compact => "compact",
        },
        "retention_seconds": settings.retention.map(|time| time.as_secs()),
        "retention_bytes": settings.retention_bytes,
        "batch_bytes_max": settings.batch_bytes_max,
        "created": time_text(highwater_log::EnqueueTime(hub.created_ms)),
    })
}

/// What a hub is asked to be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    #[serde(default = "partitions_default")]
    partitions: u32,
    cleanup: Option<String>,
    /// `"7d"`, or `"forever"`.
    retention: Option<String>,
    retention_bytes: Option<u64>,
    batch_bytes_max: Option<u32>,
}

fn partitions_default() -> u32 {
    4
}

pub async fn create(app: &App, caller: &Caller<'_>, incoming: Incoming) -> Result<Reply, Error> {
    let (body, _permit) = body::read(app, incoming).await?;
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|error| {
        let hint = "such as {\"name\":\"telemetry\",\"partitions\":4,\"retention\":\"7d\"}";
        Error::bad(format!("the hub cannot be read: {error}"), hint)
    })?;
    caller.must(Right::Manage, Some(&wanted.name))?;
    let spec = spec(wanted)?;
    let hub = app.log()?.create(spec).await?;
    Ok(reply::json(StatusCode::CREATED, &facts(&hub)))
}

fn spec(wanted: Wanted) -> Result<HubSpec, Error> {
    let name = HubName::new(&wanted.name)?;
    if name.is_internal() {
        let message = format!("`{name}` begins with `__`, which is for hubs of the node itself");
        return Err(Error::bad(message, "choose another name"));
    }
    let defaults = HubSettings::default();
    let cleanup = match wanted.cleanup.as_deref() {
        None | Some("delete") => Cleanup::Delete,
        Some("compact") => Cleanup::Compact,
        Some(other) => {
            let message = format!("cleanup cannot be `{other}`");
            return Err(Error::bad(message, "use delete or compact"));
        }
    };
    let settings = HubSettings {
        cleanup,
        retention: match &wanted.retention {
            Some(text) => retention(text)?,
            None => defaults.retention,
        },
        retention_bytes: wanted.retention_bytes,
        batch_bytes_max: wanted.batch_bytes_max.unwrap_or(defaults.batch_bytes_max),
    };
    Ok(HubSpec {
        name,
        partitions: wanted.partitions,
        settings,
    })
}

fn retention(text: &str) -> Result<Option<Duration>, Error> {
    if text == "forever" {
        return Ok(None);
    }
    let ticks = highwater_time::Duration::parse(text)
        .ok()
        .map(|time| time.ticks());
    let nanos = ticks.and_then(|ticks| u64::try_from(ticks).ok()?.checked_mul(100));
    let wrong = || {
        Error::bad(
            format!("retention cannot be `{text}`"),
            "such as 12h, 7d or forever",
        )
    };
    nanos
        .filter(|nanos| *nanos > 0)
        .map(|nanos| Some(Duration::from_nanos(nanos)))
        .ok_or_else(wrong)
}

pub async fn delete(app: &App, name: &str) -> Result<Reply, Error> {
    let hub = app.hub(name)?;
    if hub.name.is_internal() {
        let message = format!("hub `{name}` belongs to the node itself");
        return Err(Error::new(Code::Forbidden, message, "choose another hub"));
    }
    app.log()?.delete(&hub.name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

pub async fn groups(app: &App) -> Result<Reply, Error> {
    let groups = match &app.backend()?.groups {
        Some(groups) => groups.list().await,
        None => Vec::new(),
    };
    let groups: Vec<Value> = groups.iter().map(group_facts).collect();
    Ok(reply::json(StatusCode::OK, &json!({"groups": groups})))
}

/// A group with its stored positions and how far they are behind.
pub async fn group(app: &App, name: &str) -> Result<Reply, Error> {
    let unknown = || {
        let message = format!("there is no group `{name}`");
        Error::new(Code::NotFound, message, "GET /api/groups lists them")
    };
    let groups = app.backend()?.groups.as_ref().ok_or_else(unknown)?;
    let info = groups.describe(name.to_owned()).await.ok_or_else(unknown)?;
    let stored = groups.committed(name.to_owned(), None, false).await?;
    let log = app.log()?;
    let position = |(place, stored): (Place, Option<highwater_log::StoredOffset>)| {
        let offset = stored?.offset;
        let end = log
            .partition(place.hub.as_str(), place.partition)
            .map(|partition| partition.bounds().visible(ISOLATION));
        Some(json!({
            "hub": place.hub.as_str(), "partition": place.partition, "offset": offset.0,
            "end": end.map(|end| end.0), "lag": end.map(|end| (end.0 - offset.0).max(0)),
        }))
    };
    let positions: Vec<Value> = stored.into_iter().filter_map(position).collect();
    let mut facts = group_facts(&info);
    facts["positions"] = positions.into();
    Ok(reply::json(StatusCode::OK, &facts))
}

fn group_facts(group: &GroupInfo) -> Value {
    let members: Vec<Value> = group
        .members
        .iter()
        .map(|member| {
            json!({
                "member": member.member, "instance": member.instance,
                "client": member.client_id, "host": member.client_host,
            })
        })
        .collect();
    json!({
        "group": group.group, "state": format!("{:?}", group.state),
        "protocol": group.protocol, "members": members,
    })
}
