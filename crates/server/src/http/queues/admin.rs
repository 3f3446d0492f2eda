//! Queues: what there is, made, changed and described.

use std::time::Duration;

use highwater_queue::{CreateError, Queue, Settings, Stats};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::send::duration;
use super::{queue, queues, read_json};
use crate::http::app::App;
use crate::http::auth::Caller;
use crate::http::error::{Code, Error};
use crate::http::reply::{self, Reply};
use crate::keys::Right;

const EXAMPLE: &str = "{\"name\":\"orders\",\"lock\":\"60s\",\"deliveries_max\":10}";

/// The queues that the caller may listen to or manage.
pub async fn list(app: &App, caller: &Caller<'_>) -> Result<Reply, Error> {
    let mut facts = Vec::new();
    for queue in queues(app)?.list() {
        let name = Some(queue.name());
        if caller.may(Right::Listen, name) || caller.may(Right::Manage, name) {
            facts.push(queue_facts(queue.name(), &queue.stats().await?));
        }
    }
    Ok(reply::json(StatusCode::OK, &json!({"queues": facts})))
}

pub async fn describe(queue: &Queue) -> Result<Reply, Error> {
    let stats = queue.stats().await?;
    Ok(reply::json(
        StatusCode::OK,
        &queue_facts(queue.name(), &stats),
    ))
}

fn queue_facts(name: &str, stats: &Stats) -> Value {
    let (settings, counts, totals) = (&stats.settings, &stats.counts, &stats.totals);
    let seconds = |time: Duration| time.as_secs_f64();
    json!({
        "name": name,
        "lock_seconds": seconds(settings.lock),
        "deliveries_max": settings.deliveries_max,
        "time_to_live_seconds": settings.time_to_live.map(seconds),
        "dead_letter_expired": settings.dead_letter_expired,
        "duplicates_within_seconds": settings.duplicates_within.map(seconds),
        "sessions": settings.sessions,
        "bytes_max": settings.bytes_max,
        "message_bytes_max": settings.message_bytes_max,
        "active": counts.active, "scheduled": counts.scheduled, "deferred": counts.deferred,
        "locked": counts.locked, "dead_letters": counts.dead, "bytes": counts.bytes,
        "since_start": {
            "sent": totals.sent, "duplicates": totals.duplicates, "received": totals.received,
            "completed": totals.completed, "abandoned": totals.abandoned,
            "dead_lettered": totals.dead_lettered, "expired": totals.expired,
            "locks_lost": totals.locks_lost,
        },
    })
}

/// What a queue is asked to be, or to become: what is left out has its default, or stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
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
}

impl Wanted {
    fn settings(&self, now: Settings) -> Result<Settings, Error> {
        let time = |text: &str| Ok::<_, Error>(Duration::from_millis(duration(text)? as u64));
        let or_none = |text: &Option<String>, none: &str, now| match text.as_deref() {
            None => Ok(now),
            Some(text) if text == none => Ok(None),
            Some(text) => time(text).map(Some),
        };
        Ok(Settings {
            lock: self.lock.as_deref().map_or(Ok(now.lock), time)?,
            deliveries_max: self.deliveries_max.unwrap_or(now.deliveries_max),
            time_to_live: or_none(&self.time_to_live, "forever", now.time_to_live)?,
            dead_letter_expired: self.dead_letter_expired.unwrap_or(now.dead_letter_expired),
            duplicates_within: or_none(&self.duplicates_within, "off", now.duplicates_within)?,
            sessions: self.sessions.unwrap_or(now.sessions),
            bytes_max: self.bytes_max.unwrap_or(now.bytes_max),
            message_bytes_max: self.message_bytes_max.unwrap_or(now.message_bytes_max),
        })
    }
}

pub async fn create(app: &App, caller: &Caller<'_>, incoming: Incoming) -> Result<Reply, Error> {
    let wanted: Wanted = read_json(app, incoming, EXAMPLE).await?;
    let Some(name) = &wanted.name else {
        let hint = format!("such as {EXAMPLE}");
        return Err(Error::bad("a queue needs a name", hint));
    };
    caller.must(Right::Manage, Some(name))?;
    let settings = wanted.settings(Settings::default())?;
    let queue = queues(app)?.create(name, settings).await?;
    let stats = queue.stats().await?;
    let facts = queue_facts(queue.name(), &stats);
    Ok(reply::json(StatusCode::CREATED, &facts))
}

pub async fn change(app: &App, name: &str, incoming: Incoming) -> Result<Reply, Error> {
    let wanted: Wanted = read_json(app, incoming, "{\"lock\":\"30s\"}").await?;
    let queue = queue(app, name)?;
    if wanted.name.is_some() {
        let hint = "leave the name out, or make a new queue";
        return Err(Error::bad("a queue keeps its name", hint));
    }
    let settings = wanted.settings(queue.stats().await?.settings)?;
    queues(app)?.change(name, settings).await?;
    describe(&queue).await
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
            CreateError::SessionsFixed => (Code::BadRequest, "make another queue"),
            CreateError::Journal(_) => (Code::Stopped, "look at the log of the node"),
        };
        Error::new(code, error.to_string(), hint)
    }
}
