//! The answer of the playground.

use std::collections::HashMap;
use std::time::Duration;

use highwater_engine::estimate;
use highwater_job::playground::{EventFate, EventOutcome, PlaygroundResult, RowSources};
use highwater_job::{Job, plan_steps};
use highwater_query::{Diagnostic, explain, lookback};
use highwater_time::{Instant, JudgedEvent};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::request::{AnsweredRequest, InputLines};
use crate::http::error::{Code, Error};
use crate::http::jobs::step;
use crate::http::verdict::{millis, verdict_fields};

/// The answer as JSON. Rows are as the outputs would write them.
pub(super) fn answer(
    result: &PlaygroundResult,
    asked: &AnsweredRequest,
    took: Duration,
) -> Result<Box<RawValue>, Error> {
    let AnsweredRequest { query, lines } = asked;
    let failed = result.problem.is_some() || result.diagnostics.iter().any(Diagnostic::is_error);
    let diagnostics = result.diagnostics.iter();
    let mut answer = json!({
        "ok": !failed,
        "diagnostics": diagnostics.map(|of| diagnostic(of, query)).collect::<Vec<_>>(),
        "problem": result.problem,
    });
    if let (Some(job), Some(answer)) = (&result.job, answer.as_object_mut()) {
        plan_fields(job, answer);
        let planned = job.plan.inputs.iter();
        let sizes = planned.zip(&result.inputs).map(|(input, size)| {
            json!({"name": input.name, "partitions": size.partitions, "events": size.events})
        });
        answer.insert("inputs".into(), sizes.collect());
        let lines = EventLines::of_job(result, lines);
        let mut offsets = HashMap::new();
        let fates = result.fates.iter().map(|of| {
            let offset = offsets.entry((of.input, of.partition)).or_insert(0);
            let shown = fate(of, &lines, *offset);
            *offset += 1;
            shown
        });
        answer.insert("events".into(), fates.collect());
        answer.insert("watermarks".into(), watermarks(&result.fates).into());
        let errors = result.failed_rows.iter().map(|failed| {
            json!({
                "input": failed.event.map(|(input, _)| input),
                "line": failed.event.map(|(input, event)| lines.of(input, event)),
                "text": failed.reason,
                "query_line": failed.position.line,
                "query_column": failed.position.column,
            })
        });
        answer.insert("errors".into(), errors.collect());
    }
    answer["elapsed_ms"] = (took.as_millis() as u64).into();
    with_outputs(result, &EventLines::of_job(result, lines), &answer)
}

/// Rows are put in as text, because a number of a row may have more digits than a JSON value of ours keeps.
fn with_outputs(
    result: &PlaygroundResult,
    lines: &EventLines<'_>,
    answer: &Value,
) -> Result<Box<RawValue>, Error> {
    let outputs = result.outputs.iter().map(|output| {
        let (name, rows) = (json!(output.name), output.rows.join(","));
        let sources = output.sources.iter().map(|of| sources(of.as_ref(), lines));
        let sources: Value = sources.collect();
        format!(
            r#"{{"name":{name},"count":{},"rows":[{rows}],"sources":{sources}}}"#,
            output.count
        )
    });
    let outputs: Vec<String> = outputs.collect();
    let mut text = answer.to_string();
    text.pop();
    text.push_str(&format!(r#","outputs":[{}]}}"#, outputs.join(",")));
    RawValue::from_string(text).map_err(|error| {
        let message = format!("a row is no JSON: {error}");
        Error::new(Code::Internal, message, "this is a bug: please report it")
    })
}

/// The events of a row as pairs of input and line; `null` if they are unknown.
fn sources(of: Option<&RowSources>, lines: &EventLines<'_>) -> Value {
    let Some(of) = of else {
        return Value::Null;
    };
    let events = of.events.iter();
    let events = events.map(|&(input, event)| json!([input, lines.of(input, event)]));
    json!({"events": events.collect::<Value>(), "count": of.count})
}

fn plan_fields(job: &Job, answer: &mut Map<String, Value>) {
    let back = lookback(&job.plan);
    // An event may arrive before its event time by the early bound.
    let by_arrival = job.file.time.early_arrival.map(|early| {
        highwater_time::Duration::from_ticks(back.ticks() + early.ticks()).to_string()
    });
    let state = estimate(&job.plan).into_iter().flat_map(|of| {
        let id = format!("step-{}", of.node.0);
        let items = of.items.into_iter();
        items.map(move |item| json!({"step": id, "text": item.description()}))
    });
    answer.insert("plan".into(), plan_steps(job).iter().map(step).collect());
    answer.insert("explain".into(), explain(&job.plan).into());
    answer.insert("state".into(), state.collect());
    answer.insert("lookback".into(), back.to_string().into());
    answer.insert("reads_back_by_arrival".into(), by_arrival.into());
}

fn diagnostic(diagnostic: &Diagnostic, query: &str) -> Value {
    let position = diagnostic.position(query);
    json!({
        "severity": if diagnostic.is_error() { "error" } else { "warning" },
        "code": diagnostic.code,
        "message": diagnostic.message,
        "line": position.line,
        "column": position.column,
        "length": position.length,
        "label": diagnostic.label,
        "hint": diagnostic.help,
    })
}

/// The lines of the events, per input of the plan.
struct EventLines<'a>(Vec<Option<&'a InputLines>>);

impl<'a> EventLines<'a> {
    fn of_job(result: &PlaygroundResult, lines: &'a [InputLines]) -> EventLines<'a> {
        let inputs = result.job.iter().flat_map(|job| &job.plan.inputs);
        let of = |name: &str| lines.iter().find(|of| of.input.eq_ignore_ascii_case(name));
        EventLines(inputs.map(|input| of(&input.name)).collect())
    }

    fn of(&self, input: usize, event: usize) -> u64 {
        let lines = self.0.get(input).copied().flatten();
        let line = lines.and_then(|of| of.lines.get(event));
        line.copied().unwrap_or(event as u64 + 1)
    }
}

fn fate(fate: &EventFate, lines: &EventLines<'_>, offset: u64) -> Value {
    let windows = fate.windows.iter();
    let windows = windows.map(|(start, end)| json!({"start": millis(*start), "end": millis(*end)}));
    let mut shown = json!({
        "input": fate.input,
        "line": lines.of(fate.input, fate.event),
        "partition": fate.partition,
        "offset": offset,
    });
    let (judged, reason) = match &fate.outcome {
        EventOutcome::Judged(judged) => (Some(judged), None),
        EventOutcome::Lost(reason) => (None, Some(reason)),
    };
    if let Some(shown) = shown.as_object_mut() {
        verdict_fields(judged, shown);
        shown.insert("substream".into(), fate.substream.clone().into());
        shown.insert("windows".into(), windows.collect());
        shown.insert("reason".into(), reason.cloned().into());
    }
    shown
}

/// The moves of the watermark of each partition, or of each substream.
fn watermarks(fates: &[EventFate]) -> Vec<Value> {
    let judged = fates.iter().filter_map(|fate| match &fate.outcome {
        EventOutcome::Judged(judged) => Some((fate, judged)),
        EventOutcome::Lost(_) => None,
    });
    let mut judged: Vec<(&EventFate, &JudgedEvent)> = judged.collect();
    judged.sort_by_key(|(_, judged)| judged.arrival);
    let mut reached: HashMap<(usize, usize, Option<&str>), Instant> = HashMap::new();
    let mut moves = Vec::new();
    for (fate, judged) in judged {
        let line = (fate.input, fate.partition, fate.substream.as_deref());
        let after = judged.watermark_after;
        if after.is_in_calendar() && reached.insert(line, after) != Some(after) {
            moves.push(json!({
                "input": fate.input,
                "partition": fate.partition,
                "substream": fate.substream,
                "arrived": judged.arrival.and_then(millis),
                "watermark": millis(after),
            }));
        }
    }
    moves
}
