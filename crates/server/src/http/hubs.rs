//! Hubs: listed, created, changed and deleted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use highwater_log::batch::{BatchError, TimestampType};
use highwater_log::{
    AdminError, AppendError, Bounds, CleanupPolicy, HubInfo, HubName, HubSettings, HubSpec, Offset,
    Partition,
};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, Backend};
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::json_answer::JsonAnswer;
use super::read::{StartPosition, find_partition};
use super::reply::{self, Reply};
use crate::sharded::ShardedHub;
use crate::text::time_text;
use highwater_access::{Resource, Right};

/// The hubs that the caller may listen to or manage.
pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let ApiRequest { app, caller, .. } = request;
    let visible = |hub: &Arc<HubInfo>| {
        let name = Resource::Hub(hub.name.as_str());
        !hub.name.is_internal()
            && (caller.may(Right::Listen, name) || caller.may(Right::Manage, name))
            && caller.may_see(hub.name.as_str())
    };
    let hubs = app.log()?.hubs();
    let hubs = hubs.iter().filter(|hub| visible(hub));
    let sharded = app.backend()?.sharded.iter();
    let sharded =
        sharded.filter(|sharded| caller.may(Right::Listen, Resource::Hub(sharded.name.as_str())));
    let mut answer = JsonAnswer::new(&app.budget)?;
    answer.rows("hubs", hubs.map(|hub| hub_json(hub)))?;
    answer.rows("sharded", sharded.map(ShardedHub::to_json))?;
    answer.finish()
}

pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let app = request.app;
    let [name] = request.variables();
    if let Some(sharded) = app.sharded(name)? {
        return Ok(reply::ok(&sharded.to_json()));
    }
    let hub = app.hub(name)?;
    let Backend { log, hub: disk, .. } = app.backend()?;
    let on_disk = disk.as_ref().map(|disk| disk.status_of(name));
    let on_disk = on_disk.unwrap_or_default();
    let partitions = (0..hub.partitions).filter_map(|number| log.partition(name, number));
    let bounds = join_all(partitions.map(|partition| partition.fetch_bounds())).await;
    let bounds = bounds.into_iter().collect::<Result<Vec<Bounds>, _>>()?;
    let facts_of = |(number, bounds): (usize, &Bounds)| {
        let mut hub_json = partition_facts(number, bounds);
        if let Some(status) = on_disk.get(number) {
            hub_json["segments"] = status.segments.into();
            hub_json["waiting_bytes"] = status.waiting_bytes.into();
            hub_json["stopped"] = status.stopped.clone().into();
        }
        hub_json
    };
    let mut answer = JsonAnswer::new(&app.budget)?;
    answer.fields(&hub_json(&hub))?;
    answer.rows("places", bounds.iter().enumerate().map(facts_of))?;
    answer.finish()
}

fn partition_facts(number: usize, bounds: &Bounds) -> Value {
    json!({
        "partition": number, "start": bounds.start.0, "end": bounds.end.0,
        "stable": bounds.stable.0, "bytes": bounds.bytes,
        "last": bounds.last_time.map(time_text),
    })
}

fn hub_json(hub: &HubInfo) -> Value {
    let settings = &hub.settings;
    json!({
        "name": hub.name.as_str(),
        "id": hub.id.to_string(),
        "partitions": hub.partitions,
        "cleanup": match settings.cleanup {
            CleanupPolicy::Delete => "delete",
            CleanupPolicy::Compact => "compact",
            CleanupPolicy::CompactDelete => "compact,delete",
        },
        "retention_seconds": settings.retention.map(|time| time.as_secs()),
        "retention_bytes": settings.retention_bytes,
        "batch_bytes_max": settings.batch_bytes_max,
        "timestamps": match settings.timestamps.kind {
            TimestampType::Create => "create",
            TimestampType::LogAppend => "append",
        },
        // A cluster does not tell it.
        "created": (hub.created_ms > 0)
            .then(|| time_text(highwater_log::EnqueueTime(hub.created_ms))),
    })
}

/// The settings of a hub to create or to change. A missing field has its default, or stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HubRequest {
    name: Option<String>,
    partitions: Option<u32>,
    cleanup: Option<String>,
    /// `"7d"`, or `"forever"`.
    retention: Option<String>,
    /// `null`: no limit.
    #[serde(default, deserialize_with = "nullable")]
    retention_bytes: Option<Option<u64>>,
    batch_bytes_max: Option<u32>,
}

/// Tells `null` from a missing field.
fn nullable<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// The partitions of a hub that is created without a number of them.
pub(crate) const PARTITIONS_DEFAULT: u32 = 4;

impl HubRequest {
    fn settings(&self, now: HubSettings) -> Result<HubSettings, Error> {
        let cleanup = match self.cleanup.as_deref() {
            None => now.cleanup,
            Some("delete") => CleanupPolicy::Delete,
            Some("compact") => CleanupPolicy::Compact,
            Some("compact,delete") => CleanupPolicy::CompactDelete,
            Some(other) => {
                let message = format!("cleanup cannot be `{other}`");
                return Err(Error::bad(message, "use delete, compact or compact,delete"));
            }
        };
        let given = [
            ("cleanup.policy", self.cleanup.is_some()),
            ("retention.ms", self.retention.is_some()),
            ("retention.bytes", self.retention_bytes.is_some()),
            ("max.message.bytes", self.batch_bytes_max.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        let mut settings = HubSettings {
            cleanup,
            retention: match &self.retention {
                Some(text) => retention(text)?,
                None => now.retention,
            },
            retention_bytes: self.retention_bytes.unwrap_or(now.retention_bytes),
            batch_bytes_max: self.batch_bytes_max.unwrap_or(now.batch_bytes_max),
            ..now
        };
        settings.set_for_hub(given.map(|(name, _)| name));
        Ok(settings)
    }
}

pub(super) async fn create(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let example = "{\"name\":\"telemetry\",\"partitions\":4,\"retention\":\"7d\"}";
    let wanted: HubRequest = request.read_json(example).await?;
    let Some(name) = &wanted.name else {
        let hint = format!("such as {example}");
        return Err(Error::bad("a hub needs a name", hint));
    };
    request.authorise(Resource::NewHub(name))?;
    let name = HubName::new(name)?;
    if name.is_internal() {
        let message = format!("`{name}` begins with `__`, which is reserved for the node");
        return Err(Error::bad(message, "choose another name"));
    }
    let spec = HubSpec {
        name,
        partitions: wanted.partitions.unwrap_or(PARTITIONS_DEFAULT),
        settings: wanted.settings(HubSettings::default())?,
    };
    request.charge_partitions(spec.partitions)?;
    let hub = request.app.log()?.create(spec).await?;
    Ok(reply::json(StatusCode::CREATED, &hub_json(&hub)))
}

/// Changes the fields in the body. Checks the number of partitions first, so that a refused request changes nothing.
pub(super) async fn change(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let wanted: HubRequest = request
        .read_json("{\"partitions\":8,\"retention\":\"1d\"}")
        .await?;
    let app = request.app;
    let [name] = request.variables();
    let mut hub = client_hub(app, name)?;
    if wanted.name.is_some() {
        let hint = "leave the name out, or make a new hub";
        return Err(Error::bad("a hub keeps its name", hint));
    }
    let partitions = wanted.partitions.unwrap_or(hub.partitions);
    let (have, max) = (hub.partitions, HubSpec::PARTITIONS_MAX);
    if partitions > max {
        let requested = partitions;
        return Err(AdminError::Partitions { requested, max }.into());
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
        request.charge_partitions(partitions - have)?;
        hub = log.grow(&hub.name, partitions).await?;
    }
    Ok(reply::ok(&hub_json(&hub)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trim {
    before: TrimPosition,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TrimPosition {
    Offset(i64),
    /// As `from` of a read.
    Text(String),
}

/// Deletes the beginning of a partition.
pub(super) async fn trim(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let example = "{\"before\":1000} or {\"before\":\"2026-01-01T00:00:00Z\"}";
    let wanted: Trim = request.read_json(example).await?;
    let partition = client_partition(&request)?;
    let before = match wanted.before {
        TrimPosition::Offset(offset) => StartPosition::Offset(Offset(offset)),
        TrimPosition::Text(text) => StartPosition::parse(&text)?,
    };
    let before = before.offset(&*partition).await?;
    let start = partition.trim(before).await?;
    let body = json!({"partition": partition.topic_partition().partition, "start": start.0});
    Ok(reply::ok(&body))
}

/// Writes a punctuation: nothing arrived in the partition up to now. Does nothing if an event arrives meanwhile.
pub(super) async fn punctuate(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let partition = client_partition(&request)?;
    let end = partition.bounds().end;
    let appended = match partition.punctuate(end).await {
        Err(AppendError::Malformed(BatchError::Control)) => {
            return Err(Error::bad(
                "the log is a cluster, which has no punctuations",
                "a job over a cluster writes punctuation to its time journal",
            ));
        }
        appended => appended?,
    };
    let body = json!({
        "partition": partition.topic_partition().partition,
        "offset": appended.map(|appended| appended.offset.0),
        "time": appended.map(|appended| time_text(appended.time)),
    });
    Ok(reply::ok(&body))
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

pub(super) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let hub = client_hub(request.app, name)?;
    request.app.log()?.delete(&hub.name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// The partition in the path, of a hub that clients may change.
fn client_partition(request: &ApiRequest<'_>) -> Result<Arc<dyn Partition>, Error> {
    let [name, id] = request.variables();
    let hub = client_hub(request.app, name)?;
    find_partition(request.app, &hub, id)
}

/// A hub that clients may change.
fn client_hub(app: &App, name: &str) -> Result<Arc<HubInfo>, Error> {
    let hub = app.hub(name)?;
    if hub.name.is_internal() {
        let message = format!("hub `{name}` belongs to the node");
        return Err(Error::new(Code::Forbidden, message, "choose another hub"));
    }
    Ok(hub)
}
