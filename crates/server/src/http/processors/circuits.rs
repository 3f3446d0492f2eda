//! Circuits: listed, described, opened and closed by hand.

use highwater_flow::CircuitStatus;
use highwater_flow::circuit::{CircuitEvent, CircuitState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{may_see, processors};
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::processors::Processors;
use crate::text::{percent_decode, time_text};

pub(in crate::http) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let circuits = processors(request.app)?.circuits().list();
    let visible = |circuit: &&CircuitStatus| may_see(&request, &circuit.name);
    let circuits: Vec<Value> = circuits.iter().filter(visible).map(circuit_json).collect();
    Ok(reply::ok(&json!({"circuits": circuits})))
}

pub(in crate::http) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    reply(processors(request.app)?, &percent_decode(name))
}

fn reply(processors: &Processors, name: &str) -> Result<Reply, Error> {
    let status = processors.circuits().get(name);
    let status = status.ok_or_else(|| none(name))?;
    Ok(reply::ok(&circuit_json(&status)))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ChangeRequest {
    why: Option<String>,
}

pub(in crate::http) async fn open(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let ChangeRequest { why } = read_change(&mut request).await?;
    let why = one_line(why.as_deref());
    change(&request, CircuitEvent::Opened { why }).await
}

pub(in crate::http) async fn close(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    read_change(&mut request).await?;
    change(&request, CircuitEvent::Closed).await
}

async fn read_change(request: &mut ApiRequest<'_>) -> Result<ChangeRequest, Error> {
    request
        .read_optional_json("{\"why\":\"maintenance\"}, or no body")
        .await
}

async fn change(request: &ApiRequest<'_>, event: CircuitEvent) -> Result<Reply, Error> {
    let processors = processors(request.app)?;
    let [name] = request.variables();
    let name = percent_decode(name);
    if processors.circuits().get(&name).is_none() {
        return Err(none(&name));
    }
    processors.circuits().append_event(&name, &event).await?;
    reply(processors, &name)
}

/// The reason on one line of at most 500 characters.
fn one_line(why: Option<&str>) -> String {
    let why = why.map(str::trim).filter(|why| !why.is_empty());
    let why = why.unwrap_or("opened by hand");
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    why.chars().take(500).map(plain).collect()
}

fn none(name: &str) -> Error {
    let message = format!("there is no circuit `{name}`");
    Error::not_found(message, "GET /api/circuits lists them")
}

pub(in crate::http) fn state_name(state: &CircuitState) -> &'static str {
    match state {
        CircuitState::Closed => "closed",
        CircuitState::HalfOpen { .. } => "half-open",
        CircuitState::Open { .. } => "open",
    }
}

fn circuit_json(status: &CircuitStatus) -> Value {
    let until = match &status.state {
        CircuitState::Open { until, .. } => until.map(time_text),
        _ => None,
    };
    let opening = status.opening.as_ref();
    let rule = &status.rule;
    json!({
        "name": status.name, "state": state_name(&status.state), "until": until,
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
