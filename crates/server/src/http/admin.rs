//! Hubs: what there is, made, changed and removed.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::{AdminError, Bounds, Cleanup, HubInfo, HubName, HubSettings, HubSpec, Offset};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, Backend};
use super::auth::Caller;
use super::body;
use super::error::{Code, Error};
use super::read::{From, numbered};
use super::reply::{self, Reply};
use crate::keys::Right;
use crate::sharded::Sharded;
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
    let sharded = app.backend()?.sharded.iter();
    let sharded: Vec<Value> = sharded
        .filter(|sharded| caller.may(Right::Listen, Some(sharded.name.as_str())))
        .map(Sharded::facts)
        .collect();
    let body = json!({"hubs": hubs, "sharded": sharded});
    Ok(reply::json(StatusCode::OK, &body))
}

pub fn describe(app: &App, name: &str) -> Result<Reply, Error> {
    if let Some(sharded) = app.sharded(name)? {
        return Ok(reply::json(StatusCode::OK, &sharded.facts()));
    }
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

/// What a hub is asked to be, or to become: what is left out has its default, or stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: Option<String>,
    partitions: Option<u32>,
    cleanup: Option<String>,
    /// `"7d"`, or `"forever"`.
    retention: Option<String>,
    /// `null` is without limit.
    #[serde(default, deserialize_with = "given")]
    retention_bytes: Option<Option<u64>>,
    batch_bytes_max: Option<u32>,
}

/// Tells a `null` from nothing at all.
fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Of a hub that is made without saying how many.
pub const PARTITIONS_DEFAULT: u32 = 4;

impl Wanted {
    async fn read(app: &App, incoming: Incoming, example: &str) -> Result<Wanted, Error> {
        let (body, _permit) = body::read(app, incoming).await?;
        serde_json::from_slice(&body).map_err(|error| {
            let hint = format!("such as {example}");
            Error::bad(format!("the hub cannot be read: {error}"), hint)
        })
    }

    fn settings(&self, now: HubSettings) -> Result<HubSettings, Error> {
        let cleanup = match self.cleanup.as_deref() {
            None => now.cleanup,
            Some("delete") => Cleanup::Delete,
            Some("compact") => Cleanup::Compact,
            Some(other) => {
                let message = format!("cleanup cannot be `{other}`");
                return Err(Error::bad(message, "use delete or compact"));
            }
        };
        Ok(HubSettings {
            cleanup,
            retention: match &self.retention {
                Some(text) => retention(text)?,
                None => now.retention,
            },
            retention_bytes: self.retention_bytes.unwrap_or(now.retention_bytes),
            batch_bytes_max: self.batch_bytes_max.unwrap_or(now.batch_bytes_max),
        })
    }
}

pub async fn create(app: &App, caller: &Caller<'_>, incoming: Incoming) -> Result<Reply, Error> {
    let example = "{\"name\":\"telemetry\",\"partitions\":4,\"retention\":\"7d\"}";
    let wanted = Wanted::read(app, incoming, example).await?;
    let Some(name) = &wanted.name else {
        let hint = format!("such as {example}");
        return Err(Error::bad("a hub needs a name", hint));
    };
    caller.must(Right::Manage, Some(name))?;
    let name = HubName::new(name)?;
    if name.is_internal() {
        let message = format!("`{name}` begins with `__`, which is for hubs of the node itself");
        return Err(Error::bad(message, "choose another name"));
    }
    let spec = HubSpec {
        name,
        partitions: wanted.partitions.unwrap_or(PARTITIONS_DEFAULT),
        settings: wanted.settings(HubSettings::default())?,
    };
    let hub = app.log()?.create(spec).await?;
    Ok(reply::json(StatusCode::CREATED, &facts(&hub)))
}

/// Changes what the body names. Whether the partitions can be is looked at first, so that a request
/// is refused before anything is changed.
pub async fn change(app: &App, name: &str, incoming: Incoming) -> Result<Reply, Error> {
    let wanted = Wanted::read(app, incoming, "{\"partitions\":8,\"retention\":\"1d\"}").await?;
    let mut hub = client_hub(app, name)?;
    if wanted.name.is_some() {
        let hint = "leave the name out, or make a new hub";
        return Err(Error::bad("a hub keeps its name", hint));
    }
    let partitions = wanted.partitions.unwrap_or(hub.partitions);
    let (have, max) = (hub.partitions, HubSpec::PARTITIONS_MAX);
    if partitions > max {
        let asked = partitions;
        return Err(AdminError::Partitions { asked, max }.into());
    }
    if partitions < have {
        let hub = hub.name.clone();
        return Err(AdminError::Shrink { hub, have }.into());
    }
    let settings = wanted.settings(hub.settings.clone())?;
    let log = app.log()?;
    if settings != hub.settings {
        hub = log.change(&hub.name, settings).await?;
    }
    if partitions > have {
        hub = log.grow(&hub.name, partitions).await?;
    }
    Ok(reply::json(StatusCode::OK, &facts(&hub)))
}

/// Up to where a partition is to be forgotten.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trim {
    before: Before,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Before {
    Offset(i64),
    /// As `from` of a read.
    Text(String),
}

/// Forgets the beginning of a partition, for good.
pub async fn trim(app: &App, name: &str, id: &str, incoming: Incoming) -> Result<Reply, Error> {
    let (body, _permit) = body::read(app, incoming).await?;
    let wanted: Trim = serde_json::from_slice(&body).map_err(|error| {
        let hint = "such as {\"before\":1000} or {\"before\":\"2026-01-01T00:00:00Z\"}";
        Error::bad(format!("the body cannot be read: {error}"), hint)
    })?;
    let hub = client_hub(app, name)?;
    let partition = numbered(app, &hub, id)?;
    let before = match wanted.before {
        Before::Offset(offset) => From::Offset(Offset(offset)),
        Before::Text(text) => From::parse(&text)?,
    };
    let before = before.offset(&*partition).await?;
    let start = partition.trim(before).await?;
    let body = json!({"partition": partition.place().partition, "start": start.0});
    Ok(reply::json(StatusCode::OK, &body))
}

/// Says in a partition that nothing came up to now, unless something does at this very moment.
pub async fn punctuate(app: &App, name: &str, id: &str) -> Result<Reply, Error> {
    let hub = client_hub(app, name)?;
    let partition = numbered(app, &hub, id)?;
    let end = partition.bounds().end;
    let appended = partition.punctuate(end).await?;
    let body = json!({
        "partition": partition.place().partition,
        "offset": appended.map(|appended| appended.offset.0),
        "time": appended.map(|appended| time_text(appended.time)),
    });
    Ok(reply::json(StatusCode::OK, &body))
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
    let hub = client_hub(app, name)?;
    app.log()?.delete(&hub.name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// A hub that clients may change.
fn client_hub(app: &App, name: &str) -> Result<Arc<HubInfo>, Error> {
    let hub = app.hub(name)?;
    if hub.name.is_internal() {
        let message = format!("hub `{name}` belongs to the node itself");
        return Err(Error::new(Code::Forbidden, message, "choose another hub"));
    }
    Ok(hub)
}
