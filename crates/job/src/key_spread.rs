//! Whether several combiners can share a job by the keys of its outputs.
//!
//! The combiner of a row is the one that has all rows of its partition of the output, so that each partition has one
//! writer and its rows are in the order of one combiner.

use std::fmt::Write as _;

use highwater_engine::KeyRoutes;
use highwater_query::plan::Name;

use crate::config::{OnError, OnFailure};
use crate::load::Job;

/// How many combiners a shared job has.
pub(crate) fn combiners(job: &Job) -> usize {
    let state = job.file.live.state.as_ref();
    state.map_or(1, |state| state.combiners)
}

/// The keys by which combiners share the job. The error is the reason why not.
pub(crate) fn key_routes(job: &Job) -> Result<KeyRoutes, String> {
    let file = &job.file;
    if file.on_error == OnError::DeadLetter && file.dead_letter.is_some() {
        return Err("rows that fail in combiners become dead letters, which have one order".into());
    }
    let mut columns = Vec::new();
    for (statement, output) in job.plan.outputs.iter().enumerate() {
        let declared = file.output(&output.name);
        if declared.is_some_and(|output| output.on_failure == OnFailure::DeadLetter) {
            let name = &output.name;
            return Err(format!(
                "the rows that output \"{name}\" refuses become dead letters, which have one order"
            ));
        }
        columns.push(key_column(job, statement)?);
    }
    job.physical.key_routes(&columns)
}

/// The key of an output, and its column among those of the statement.
fn key_column(job: &Job, statement: usize) -> Result<usize, String> {
    let output = &job.plan.outputs[statement];
    let declared = job.file.output(&output.name);
    let key = declared.and_then(|declared| declared.settings.partition_key());
    let key = key.ok_or_else(|| format!("output \"{}\" has no `key`", output.name))?;
    let names = job.plan.column_names(output.from);
    let mut found = names.iter().enumerate();
    // Of equal names the leftmost counts, and the fields of `*` are not known.
    let found = found.find_map(|(column, name)| match name {
        Name::Field(name) if name == key => Some(Some(column)),
        Name::Spread => Some(None),
        _ => None,
    });
    found.flatten().ok_or_else(|| {
        format!(
            "the query does not name the key `{key}` of output \"{}\" before any `*`",
            output.name
        )
    })
}

/// The inputs of the state of several combiners; `None` for one.
pub(crate) fn combiners_and_keys(job: &Job) -> Option<String> {
    let combiners = combiners(job);
    if combiners == 1 {
        return None;
    }
    let mut text = format!("{combiners} combiners\n");
    for output in &job.file.outputs {
        if let Some(key) = output.settings.partition_key() {
            let _ = writeln!(text, "{} by {key}", output.name);
        }
    }
    Some(text)
}
