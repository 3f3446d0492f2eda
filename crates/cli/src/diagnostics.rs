//! Diagnostics of a query as JSON, for editors and other programs.

use highwater_job::Job;
use highwater_query::{Diagnostic, Severity, Span, TextPosition};
use serde_json::{Value, json};

/// A diagnostic of the query `text` in the file `name`.
pub(crate) fn json(diagnostic: &Diagnostic, name: &str, text: &str) -> Value {
    let span = diagnostic.span;
    let start = TextPosition::of(text, span);
    let end = TextPosition::of(
        text,
        Span {
            start: span.end,
            ..span
        },
    );
    json!({
        "file": name,
        "severity": match diagnostic.severity { Severity::Error => "error", Severity::Warning => "warning" },
        "code": diagnostic.code,
        "message": diagnostic.message,
        "label": diagnostic.label,
        "help": diagnostic.help,
        "line": start.line,
        "column": start.column,
        "end_line": end.line,
        "end_column": end.column,
    })
}

/// The warnings of a job's query.
pub(crate) fn warnings(job: &Job) -> Vec<Value> {
    let warnings = job.warnings.iter();
    warnings
        .map(|warning| json(warning, &job.query_name, &job.query))
        .collect()
}
