//! The summary of a run, as text or JSON.

use std::fmt::Write;

use highwater_engine::DataError;
use highwater_job::{InputReport, Job, Report, data_errors};
use highwater_query::TextPosition;
use serde_json::{Value, json};

use crate::diagnostics;

/// The summary that `highwater run` prints to standard error.
pub(crate) fn text(job: &Job, report: &Report) -> String {
    let mut out = String::new();
    for input in &report.inputs {
        input_text(input, &mut out);
    }
    for output in &report.outputs {
        let _ = writeln!(out, "output {}: {} rows", output.name, output.rows);
        for note in &output.notes {
            let _ = writeln!(out, "  note: {note}");
        }
    }
    if report.dead_letters > 0 {
        let _ = writeln!(out, "dead letters: {}", report.dead_letters);
    }
    if report.errors.count > 0 {
        let _ = writeln!(
            out,
            "error: the query failed on {} rows, which were dropped:",
            report.errors.count
        );
        for sample in &report.errors.samples {
            let _ = writeln!(out, "  {}", located(job, sample));
        }
    }
    let remarks = &report.errors.warnings;
    if let Some(first) = &remarks.first {
        let _ = writeln!(
            out,
            "warning: the query corrected values in {} rows, first:",
            remarks.count
        );
        let _ = writeln!(out, "  {}", located(job, first));
    }
    out
}

/// An error with its position in the query and its time.
fn located(job: &Job, error: &DataError) -> String {
    let TextPosition { line, column, .. } = TextPosition::of(&job.query, error.span);
    let (name, time) = (&job.query_name, highwater_job::short_time(error.time));
    format!("{name}:{line}:{column} at {time}: {}", error.reason)
}

fn input_text(input: &InputReport, out: &mut String) {
    let time = &input.time;
    let _ = write!(
        out,
        "input {}: {} events read, {} kept",
        input.name,
        input.events(),
        time.kept
    );
    let parts = [
        ("late, adjusted", time.late_adjusted),
        ("late, dropped", time.late_dropped),
        ("early, adjusted", time.early_adjusted),
        ("early, dropped", time.early_dropped),
        ("out of order, adjusted", time.out_of_order_adjusted),
        ("out of order, dropped", time.out_of_order_dropped),
        ("lost to errors", input.errors.count()),
    ];
    for (name, count) in parts.iter().filter(|(_, count)| *count > 0) {
        let _ = write!(out, "; {count} {name}");
    }
    out.push('\n');
    for note in &input.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    for (kind, sum) in input.errors.iter() {
        let _ = writeln!(out, "  error: {} x {}", kind.name(), sum.count);
        for sample in &sum.samples {
            let _ = writeln!(out, "    {}", sample.located());
            if !sample.event.is_empty() {
                let _ = writeln!(out, "      | {}", sample.event.trim_end());
            }
        }
    }
}

pub(crate) fn json(job: &Job, report: &Report) -> Value {
    let inputs = report.inputs.iter().map(|input| {
        let time = &input.time;
        let errors = input.errors.iter().map(|(kind, sum)| {
            let samples = sum.samples.iter();
            let samples: Vec<Value> = samples
                .map(|t| json!({"file": t.file, "line": t.line, "reason": t.reason}))
                .collect();
            json!({"kind": kind.name(), "count": sum.count, "samples": samples})
        });
        json!({
            "name": input.name,
            "bytes": input.bytes,
            "events": input.events(),
            "kept": time.kept,
            "late_adjusted": time.late_adjusted,
            "late_dropped": time.late_dropped,
            "early_adjusted": time.early_adjusted,
            "early_dropped": time.early_dropped,
            "out_of_order_adjusted": time.out_of_order_adjusted,
            "out_of_order_dropped": time.out_of_order_dropped,
            "errors": errors.collect::<Vec<_>>(),
            "notes": input.notes,
        })
    });
    let outputs = report
        .outputs
        .iter()
        .map(|o| json!({"name": o.name, "rows": o.rows, "notes": o.notes}));
    let sample = |error: &DataError| {
        json!({
            "time": error.time.to_string(),
            "reason": error.reason,
            "span": [error.span.start, error.span.end],
        })
    };
    let samples = report.errors.samples.iter().map(sample);
    let remarks = &report.errors.warnings;
    json!({
        "inputs": inputs.collect::<Vec<_>>(),
        "outputs": outputs.collect::<Vec<_>>(),
        "query_errors": {"count": report.errors.count, "samples": samples.collect::<Vec<_>>()},
        "query_remarks": {"count": remarks.count, "samples": remarks.first.iter().map(sample).collect::<Vec<_>>()},
        "data_errors": report.inputs.iter().flat_map(data_errors).collect::<Vec<_>>(),
        "dead_letters": report.dead_letters,
        "lost_data": report.lost_data(),
        "warnings": diagnostics::warnings(job),
        "remarks": job.file.remarks,
    })
}
