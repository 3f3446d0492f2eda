//! The circuits of the node.

use highwater_console::View;
use highwater_console::circuit::{Circuit, CircuitList, CircuitRule};
use highwater_flow::circuit::CircuitState;

use super::Context;
use super::processors::{may_deploy, visible};
use crate::http::error::Error;
use crate::http::processors::circuits::state_name;
use crate::http::processors::{self, Position};
use crate::processors::Entry;

/// Circuits of the page.
const ROWS_MAX: usize = 50;

pub(in crate::http) async fn list(context: &Context<'_>) -> Result<View, Error> {
    let mut entries = visible(context, context.app.backend()?);
    // Open ones first.
    entries.sort_by_key(|entry| entry.circuit.state() == CircuitState::Closed);
    let mut circuits = Vec::new();
    for entry in entries.iter().take(ROWS_MAX) {
        let positions = match entry.circuit.state() {
            CircuitState::Closed => None,
            _ => processors::positions(context.app, entry).await.ok(),
        };
        let behind = positions.map(|all| all.iter().map(Position::behind).sum::<i64>() as u64);
        circuits.push(circuit(context, entry, behind));
    }
    Ok(View::from(&CircuitList {
        more: entries.len().saturating_sub(circuits.len()) as u64,
        circuits,
    }))
}

pub(super) fn circuit(context: &Context<'_>, entry: &Entry, waiting: Option<u64>) -> Circuit {
    let name = &entry.spec.name;
    let state = entry.circuit.state();
    let backend = context.app.backend().ok();
    let all = backend.and_then(|backend| backend.processors.as_ref());
    let status = all.and_then(|all| all.circuits().get(name));
    let opening = status.and_then(|status| status.opening);
    let rule = &entry.spec.rule;
    let (until_ms, why) = match &state {
        CircuitState::Open { why, until, .. } => {
            (until.map(|until| until.0), Some(why.to_string()))
        }
        _ => (None, opening.as_ref().map(|opening| opening.why.clone())),
    };
    Circuit {
        name: name.clone(),
        state: state_name(&state),
        since_ms: opening.map(|opening| opening.at.0),
        until_ms,
        why,
        rule: CircuitRule {
            failures_max: rule.failures_max,
            window_seconds: rule.window.as_secs_f64(),
            open_for_seconds: rule.open_for.map(|time| time.as_secs_f64()),
            successes: rule.successes,
        },
        failures: context.app.console.figures.processor(name).failure_history,
        waiting,
        may_deploy: may_deploy(context, entry),
    }
}
