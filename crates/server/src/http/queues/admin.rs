//! Queues: listed, created, changed, described and deleted.

use std::time::Duration;

use highwater_log::EnqueueTime;
use highwater_queue::{Counts, CreateError, Queue, QueueStats, Settings};
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::send::duration;
use super::{queue, queues};
use crate::http::auth;
use crate::http::dispatch::{ApiRequest, parse_json};
use crate::http::error::{Code, Error};
use crate::http::forward;
use crate::http::json_answer::JsonAnswer;
use crate::http::reply::{self, Reply};
use crate::owners::OwnedKind;
use crate::text::time_text;
use highwater_access::{Resource, Right};

const EXAMPLE: &str = "{\"name\":\"orders\",\"lock\":\"60s\",\"deliveries_max\":10}";

/// The queues that the caller may listen to or manage.
pub(in crate::http) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (app, caller) = (request.app, &request.caller);
    let mut answer = JsonAnswer::new(&app.budget)?;
    answer.begin_rows("queues")?;
    for queue in queues(app)?.list() {
        let name = Resource::Queue(queue.name());
        if caller.may(Right::Listen, name) || caller.may(Right::Manage, name) {
            answer.row(&queue_facts(queue.name(), &queue.stats().await?))?;
        }
    }
    let elsewhere = forward::gather(&request, "/api/queues").await;
    for row in forward::rows(&elsewhere, "queues") {
        answer.row(row)?;
    }
    answer.end_rows()?;
    answer.fields(&forward::unreachable(&elsewhere))?;
    answer.finish()
}

pub(in crate::http) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    reply(StatusCode::OK, &queue(&request)?).await
}

async fn reply(status: StatusCode, queue: &Queue) -> Result<Reply, Error> {
    let facts = queue_facts(queue.name(), &queue.stats().await?);
    Ok(reply::json(status, &facts))
}

fn queue_facts(name: &str, stats: &QueueStats) -> Value {
    let totals = &stats.totals;
    let mut facts = settings_facts(name, &stats.settings, &[]);
    add_counts(&mut facts, &stats.counts);
    facts["oldest_active"] = json!(stats.oldest_ready_ms.map(|at| time_text(EnqueueTime(at))));
    facts["since_start"] = json!({
        "sent": totals.sent, "duplicates": totals.duplicates, "received": totals.received,
        "completed": totals.completed, "abandoned": totals.abandoned,
        "dead_lettered": totals.dead_lettered, "expired": totals.expired,
        "locks_lost": totals.locks_lost,
    });
    facts
}

/// Name and settings of a queue, topic or subscription, but for the settings that it does not have.
pub(in crate::http) fn settings_facts(name: &str, settings: &Settings, without: &[&str]) -> Value {
    let seconds = |time: Duration| time.as_secs_f64();
    let mut facts = json!({
        "name": name,
        "lock_seconds": seconds(settings.lock),
        "deliveries_max": settings.deliveries_max,
        "time_to_live_seconds": settings.time_to_live.map(seconds),
        "dead_letter_expired": settings.dead_letter_expired,
        "duplicates_within_seconds": settings.duplicates_within.map(seconds),
        "sessions": settings.sessions,
        "bytes_max": settings.bytes_max,
        "message_bytes_max": settings.message_bytes_max,
        "forward_to": settings.forward_to,
        "forward_dead_letters_to": settings.forward_dead_letters_to,
        "auto_delete_on_idle_seconds": settings.auto_delete_on_idle.map(seconds),
    });
    if let Some(facts) = facts.as_object_mut() {
        facts.retain(|name, _| !without.contains(&name.trim_end_matches("_seconds")));
    }
    facts
}

/// Adds the messages by state.
pub(in crate::http) fn add_counts(facts: &mut Value, counts: &Counts) {
    for (name, count) in [
        ("active", counts.active),
        ("scheduled", counts.scheduled),
        ("deferred", counts.deferred),
        ("locked", counts.locked),
        ("dead_letters", counts.dead),
        ("bytes", counts.bytes),
    ] {
        facts[name] = count.into();
    }
}

/// The settings of a queue, a topic or a subscription to create or to change. A missing field has its default, or
/// stays.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct QueueRequest {
    name: Option<String>,
    lock: Option<String>,
    deliveries_max: Option<u32>,
    /// Or `"forever"`.
    time_to_live: Option<String>,
    dead_letter_expired: Option<bool>,
    /// Or `"off"`.
    duplicates_within: Option<String>,
    sessions: Option<bool>,
    bytes_max: Option<u64>,
    message_bytes_max: Option<u32>,
    /// Or `""`.
    forward_to: Option<String>,
    /// Or `""`.
    forward_dead_letters_to: Option<String>,
    /// Or `"never"`.
    auto_delete_on_idle: Option<String>,
}

impl QueueRequest {
    /// The name of the new entity of `kind`, such as a queue.
    pub(in crate::http) fn new_name(&self, kind: &str, example: &str) -> Result<&str, Error> {
        let missing = || {
            Error::bad(
                format!("a {kind} needs a name"),
                format!("such as {example}"),
            )
        };
        self.name.as_deref().ok_or_else(missing)
    }

    pub(in crate::http) fn refuse_name(&self, kind: &str) -> Result<(), Error> {
        match self.name {
            None => Ok(()),
            Some(_) => {
                let hint = format!("leave the name out, or make a new {kind}");
                Err(Error::bad(format!("a {kind} keeps its name"), hint))
            }
        }
    }

    /// Refuses settings that the `kind` does not have.
    pub(in crate::http) fn refuse(&self, kind: &str, settings: &[&str]) -> Result<(), Error> {
        let given = json!(self);
        match settings.iter().find(|name| !given[**name].is_null()) {
            None => Ok(()),
            Some(name) => {
                let message = format!("a {kind} has no `{name}`");
                Err(Error::bad(message, "docs/http.md has its settings"))
            }
        }
    }

    pub(in crate::http) fn settings(&self, now: Settings) -> Result<Settings, Error> {
        let time = |text: &str| Ok::<_, Error>(Duration::from_millis(duration(text)? as u64));
        let or_none = |text: &Option<String>, none: &str, now| match text.as_deref() {
            None => Ok(now),
            Some(text) if text == none => Ok(None),
            Some(text) => time(text).map(Some),
        };
        let target = |name: &Option<String>, now: Option<String>| match name {
            None => now,
            Some(name) => Some(name.clone()).filter(|name| !name.is_empty()),
        };
        Ok(Settings {
            forward_to: target(&self.forward_to, now.forward_to),
            forward_dead_letters_to: target(
                &self.forward_dead_letters_to,
                now.forward_dead_letters_to,
            ),
            lock: self.lock.as_deref().map_or(Ok(now.lock), time)?,
            deliveries_max: self.deliveries_max.unwrap_or(now.deliveries_max),
            time_to_live: or_none(&self.time_to_live, "forever", now.time_to_live)?,
            dead_letter_expired: self.dead_letter_expired.unwrap_or(now.dead_letter_expired),
            duplicates_within: or_none(&self.duplicates_within, "off", now.duplicates_within)?,
            sessions: self.sessions.unwrap_or(now.sessions),
            bytes_max: self.bytes_max.unwrap_or(now.bytes_max),
            message_bytes_max: self.message_bytes_max.unwrap_or(now.message_bytes_max),
            auto_delete_on_idle: or_none(
                &self.auto_delete_on_idle,
                "never",
                now.auto_delete_on_idle,
            )?,
        })
    }
}

/// Checks new targets of forwarding. The node sends forwarded messages, so the caller must be allowed to manage the
/// target, too; an unchanged target was checked when it was set. Nodes that share queues do not forward: the target may
/// be elsewhere.
pub(in crate::http) fn check_forwarding(
    request: &ApiRequest<'_>,
    now: &Settings,
    wanted: &Settings,
) -> Result<(), Error> {
    let targets = [
        (&now.forward_to, &wanted.forward_to),
        (
            &now.forward_dead_letters_to,
            &wanted.forward_dead_letters_to,
        ),
    ];
    if wanted.auto_delete_on_idle.is_some() && request.app.backend()?.owners.is_some() {
        let message = "nodes over a cluster do not delete idle queues";
        return Err(Error::bad(message, "docs/remote.md has what they share"));
    }
    let changed = targets.into_iter().filter(|(now, wanted)| now != wanted);
    for target in changed.filter_map(|(_, wanted)| wanted.as_ref()) {
        if request.app.backend()?.owners.is_some() {
            let message = "nodes over a cluster do not forward messages";
            return Err(Error::bad(message, "docs/remote.md has what they share"));
        }
        auth::require(&request.caller, Right::Manage, Resource::Queue(target))?;
    }
    Ok(())
}

pub(in crate::http) async fn create(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (body, _share) = request.read_body().await?;
    let wanted: QueueRequest = parse_json(&body, EXAMPLE)?;
    let name = wanted.new_name("queue", EXAMPLE)?;
    request.authorise(Resource::Queue(name))?;
    request.app.check_entity_name(name)?;
    let settings = wanted.settings(Settings::default())?;
    check_forwarding(&request, &Settings::default(), &settings)?;
    if let Some(reply) = forward::by_name(&request, OwnedKind::Queue, name, &body).await? {
        return Ok(reply);
    }
    request.charge_partitions(1)?;
    let _naming = request.app.entity_names.lock().await;
    request.app.check_entity_is_new(name)?;
    let queue = queues(request.app)?.create(name, settings).await?;
    reply(StatusCode::CREATED, &queue).await
}

pub(in crate::http) async fn change(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let wanted: QueueRequest = request.read_json("{\"lock\":\"30s\"}").await?;
    wanted.refuse_name("queue")?;
    let queue = queue(&request)?;
    let now = queue.stats().await?.settings;
    let settings = wanted.settings(now.clone())?;
    check_forwarding(&request, &now, &settings)?;
    queues(request.app)?.change(queue.name(), settings).await?;
    reply(StatusCode::OK, &queue).await
}

pub(in crate::http) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    queues(request.app)?.delete(name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

impl From<CreateError> for Error {
    fn from(error: CreateError) -> Error {
        let (code, hint) = match error {
            CreateError::Queue(error) => return error.into(),
            CreateError::Admin(error) => return error.into(),
            CreateError::Exists(_) => (Code::Exists, "choose another name, or use it as it is"),
            CreateError::Unknown(_) => (Code::NotFound, "GET /api/queues lists them"),
            CreateError::Name(_) => (Code::BadRequest, "choose another name"),
            CreateError::Settings(_) => (Code::BadRequest, "docs/queues.md has the limits"),
            CreateError::Forward(_) => (
                Code::BadRequest,
                "docs/queues.md has the rules of forwarding",
            ),
            CreateError::SessionsFixed => (Code::BadRequest, "make another queue"),
            CreateError::Journal(_) => (Code::Stopped, "see the log of the node"),
        };
        Error::new(code, error.to_string(), hint)
    }
}
