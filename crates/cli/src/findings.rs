//! What the compiler says about a query, as JSON for editors and other programs.

use highwater_job::Job;
use highwater_query::{Diagnostic, Severity};
use serde_json::{Value, json};

use crate::summary::place;

/// One finding about the query `text`, which stands in the file `name`.
pub fn json(finding: &Diagnostic, name: &str, text: &str) -> Value {
    let (line, column) = place(text, finding.span.start as usize);
    let (end_line, end_column) = place(text, finding.span.end as usize);
    json!({
        "file": name,
        "severity": match finding.severity { Severity::Error => "error", Severity::Warning => "warning" },
        "code": finding.code,
        "message": finding.message,
        "label": finding.label,
        "help": finding.help,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    })
}

/// The warnings about the query of a job.
pub fn warnings(job: &Job) -> Vec<Value> {
    let warnings = job.warnings.iter();
    warnings
        .map(|warning| json(warning, &job.query_name, &job.query))
        .collect()
}
