//! Circuits: how they stand, opened and closed by hand.

use highwater_flow::CircuitStatus;
use highwater_flow::circuit::{CircuitEvent, CircuitState};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::app::App;
use super::super::body;
use super::super::error::{Code, Error};
use super::super::reply::{self, Reply};
use crate::processors::Processors;
use crate::text::time_text;

pub fn list(processors: &Processors) -> Reply {
    let circuits = processors.circuits().list();
    let circuits: Vec<Value> = circuits.iter().map(facts).collect();
    reply::json(StatusCode::OK, &json!({"circuits": circuits}))
}

pub fn describe(processors: &Processors, name: &str) -> Result<Reply, Error> {
    let status = processors.circuits().get(name);
    let status = status.ok_or_else(|| none(name))?;
    Ok(reply::json(StatusCode::OK, &facts(&status)))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Asked {
    why: Option<String>,
}

pub async fn change(
    app: &App,
    processors: &Processors,
    name: &str,
    action: &str,
    body: Incoming,
) -> Result<Reply, Error> {
    let (body, _permit) = body::read(app, body).await?;
    let asked = match body.is_empty() {
        true => Ok(Asked::default()),
        false => serde_json::from_slice(&body),
    };
    let asked = asked.map_err(|error| {
        Error::bad(
            format!("the body cannot be read: {error}"),
            "send {\"why\":\"maintenance\"} or nothing",
        )
    })?;
    if processors.circuits().get(name).is_none() {
        return Err(none(name));
    }
    let event = match action {
        "open" => CircuitEvent::Opened {
            why: why(asked.why.as_deref()),
        },
        _ => CircuitEvent::Closed,
    };
    processors.circuits().append_event(name, &event).await?;
    describe(processors, name)
}

/// On one line, and not too long.
fn why(asked: Option<&str>) -> String {
    let why = asked.map(str::trim).filter(|why| !why.is_empty());
    let why = why.unwrap_or("opened by hand");
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    why.chars().take(500).map(plain).collect()
}

fn none(name: &str) -> Error {
    let message = format!("there is no circuit `{name}`");
    Error::new(Code::NotFound, message, "GET /api/circuits lists them")
}

pub fn word(state: &CircuitState) -> &'static str {
    match state {
        CircuitState::Closed => "closed",
        CircuitState::HalfOpen { .. } => "half-open",
        CircuitState::Open { .. } => "open",
    }
}

fn facts(status: &CircuitStatus) -> Value {
    let until = match &status.state {
        CircuitState::Open { until, .. } => until.map(time_text),
        _ => None,
    };
    let opening = status.opening.as_ref();
    let rule = &status.rule;
    json!({
        "name": status.name, "state": word(&status.state), "until": until,
        "since": opening.map(|opening| time_text(opening.at)),
        "why": match &status.state {
            CircuitState::Open { why, .. } => Some(why),
            _ => opening.map(|opening| &opening.why),
        },
        "rule": {
            "failures": rule.failures_max, "window_seconds": rule.window.as_secs_f64(),
            "open_for_seconds": rule.open_for.map(|time| time.as_secs_f64()),
            "probes": rule.probes, "successes": rule.successes,
        },
    })
}
