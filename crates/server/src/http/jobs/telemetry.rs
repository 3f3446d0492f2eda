//! The telemetry of a job beyond its status: its plan with figures, its latest data errors, and its last minutes.

use highwater_job::live::{Handle, JobStatus, StepFigures};
use highwater_job::{DataErrorSample, JobPart, JobStep, plan_steps};
use highwater_time::{Instant, TimePolicy, ViolationAction};
use serde_json::{Map, Value, json};

use super::{step, time};
use crate::http::verdict::millis;
use crate::jobs::{HISTORY_INTERVAL, HistoryPoint};

/// Adds `time`, `plan`, `data_errors` and `history`.
pub(super) fn add(
    handle: &Handle,
    status: &JobStatus,
    history: &[HistoryPoint],
    facts: &mut Map<String, Value>,
) {
    let (job, figures) = (handle.job(), handle.step_figures());
    facts.insert("time".into(), policy(&job.file.time));
    let steps = plan_steps(job);
    let plan = steps.iter().map(|of| plan_step(of, status, &figures));
    facts.insert("plan".into(), plan.collect());
    let errors = handle.data_errors();
    facts.insert(
        "data_errors".into(),
        errors.iter().map(data_error).collect(),
    );
    let points: Vec<Value> = history.iter().map(point).collect();
    let every = HISTORY_INTERVAL.as_millis() as u64;
    let history = json!({"every_ms": every, "points": points});
    facts.insert("history".into(), history);
}

/// As `[time]` of a job file.
fn policy(policy: &TimePolicy) -> Value {
    let early = policy.early_arrival.map(|early| early.to_string());
    let action = |action: ViolationAction| match action {
        ViolationAction::Adjust => "adjust",
        ViolationAction::Drop => "drop",
    };
    json!({
        "late_arrival": policy.late_arrival.to_string(),
        "out_of_order": policy.out_of_order.to_string(),
        "early_arrival": early.as_deref().unwrap_or("off"),
        "late_events": action(policy.late_events),
        "out_of_order_events": action(policy.out_of_order_events),
        "early_events": action(policy.early_events),
    })
}

/// The figures of one step.
pub(in crate::http) struct StepFacts {
    pub(in crate::http) rows: Option<u64>,
    pub(in crate::http) state_bytes: Option<u64>,
    /// Events held back, or rows that an output has not taken.
    pub(in crate::http) waiting: Option<u64>,
    pub(in crate::http) watermark: Option<Instant>,
}

pub(in crate::http) fn step_facts(
    of: &JobStep,
    status: &JobStatus,
    figures: &[StepFigures],
) -> StepFacts {
    let partitions = |input: usize| status.inputs.get(input).map(|input| &input.partitions[..]);
    let partitions = |input: usize| partitions(input).unwrap_or_default().iter();
    let output = |index: usize| status.outputs.get(index);
    let (rows, state_bytes, waiting) = match of.part {
        JobPart::Source(input) => {
            let events = partitions(input).map(|partition| partition.events).sum();
            (Some(events), None, None)
        }
        JobPart::Order(input) => {
            let kept = partitions(input).map(|partition| partition.time.kept).sum();
            let waiting = partitions(input).map(|partition| partition.waiting).sum();
            (Some(kept), None, Some(waiting))
        }
        JobPart::Node(node) => {
            let figures = figures.get(node).copied().unwrap_or_default();
            (Some(figures.rows), Some(figures.state_bytes), None)
        }
        JobPart::Output(index) => (
            output(index).map(|output| output.rows),
            None,
            output(index).map(|output| output.waiting),
        ),
    };
    let sources = of.sources.iter().flat_map(|input| partitions(*input));
    StepFacts {
        rows,
        state_bytes,
        waiting,
        watermark: sources.map(|partition| partition.watermark).min(),
    }
}

fn plan_step(of: &JobStep, status: &JobStatus, figures: &[StepFigures]) -> Value {
    let facts = step_facts(of, status, figures);
    let mut shown = step(of);
    shown["rows"] = facts.rows.into();
    shown["state_bytes"] = facts.state_bytes.into();
    shown["watermark"] = facts.watermark.and_then(time).into();
    shown["waiting"] = facts.waiting.into();
    shown
}

fn data_error(error: &DataErrorSample) -> Value {
    json!({
        "time": error.time.and_then(millis),
        "place": error.place,
        "input": error.input,
        "kind": error.kind,
        "text": error.reason,
        "event": error.event,
    })
}

fn point(point: &HistoryPoint) -> Value {
    json!({
        "time": point.time.to_unix_millis(),
        "events_per_second": point.events_per_second,
        "rows_per_second": point.rows_per_second,
        "watermark_delay_seconds": point.watermark_delay.map(|delay| delay.as_secs_f64()),
        "backlog": point.backlog,
        "moved_share": point.moved_share,
        "state_bytes": point.state_bytes,
    })
}
