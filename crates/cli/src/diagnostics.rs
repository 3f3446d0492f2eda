//! Diagnostics of a query as JSON, for editors and other programs.

use highwater_job::Job;
use highwater_query::{Diagnostic, Severity};
use serde_json::{Value, json};

use crate::summary::line_and_column;

/// A diagnostic of the query `text` in the file `name`.
pub(crate) fn json(diagnostic: &Diagnostic, name: &str, text: &str) -> Value {
    let (line, column) = line_and_column(text, diagnostic.span.start as usize);
    let (end_line, end_column) = line_and_column(text, diagnostic.span.end as usize);
    json!({
        "file": name,
        "severity": match diagnostic.severity { Severity::Error => "error", Severity::Warning => "warning" },
        "code": diagnostic.code,
        "message": diagnostic.message,
        "label": diagnostic.label,
        "help": diagnostic.help,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    })
}

/// The warnings of a job's query.
pub(crate) fn warnings(job: &Job) -> Vec<Value> {
    let warnings = job.warnings.iter();
    warnings
        .map(|warning| json(warning, &job.query_name, &job.query))
        .collect()
}
