//! Runs one golden case.

use std::collections::BTreeMap;
use std::path::Path;

use highwater_env::disk;
use highwater_job::config::{JobFile, Order};
use highwater_job::{Job, Options, Outputs, project, run};
use serde_json::Value as Json;

use super::compare::compare_outputs;
use super::discover::CaseDir;

/// The reason of a failure, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseFailure(pub String);

/// Runs a case with this number of threads and compares its outputs.
pub fn run_case(case: &CaseDir, threads: usize) -> Result<(), CaseFailure> {
    if let Some(test) = case.test_index {
        return run_test_case(&case.test_file(), test, threads);
    }
    let file = JobFile::load(&case.dir).map_err(fail)?;
    let expect = file.expect.clone().unwrap_or_default();
    let loaded = Job::new(file);
    if let Some(expected) = &expect.error {
        return match loaded {
            Ok(_) => Err(fail("the query was accepted, but must be rejected")),
            Err(error) if error.to_string().contains(expected.as_str()) => Ok(()),
            Err(error) => Err(fail(format!(
                "the query was rejected, but not with {expected:?}:\n{error}"
            ))),
        };
    }
    let mut actual = run_job(&loaded.map_err(fail)?, threads)?;
    for (name, expected) in case.expected_texts().map_err(fail)? {
        let found = actual.keys().find(|key| key.eq_ignore_ascii_case(&name));
        let text = match found.cloned().and_then(|key| actual.remove(&key)) {
            Some(text) => text,
            None => return Err(fail(format!("the job has no output {name}"))),
        };
        compare_text(&name, &expected, &text)?;
    }
    let expected = case.expected_rows().map_err(fail)?;
    compare_outputs(&expected, &actual, expect.order).map_err(fail)
}

/// Runs one case of a Stream Analytics project's test configuration.
fn run_test_case(file: &Path, test: usize, threads: usize) -> Result<(), CaseFailure> {
    let cases = project::test_cases(file).map_err(fail)?;
    let Some(case) = cases.get(test) else {
        return Err(fail(format!("{} has no such case", file.display())));
    };
    let job = Job::new(project::test_job(file, case).map_err(fail)?).map_err(fail)?;
    let mut actual = run_job(&job, threads)?;
    let mut expected = BTreeMap::new();
    for output in &case.expected {
        if output.required {
            let rows = expected_rows(&output.file).map_err(fail)?;
            expected.insert(output.output.clone(), rows);
        } else {
            actual.retain(|name, _| !name.eq_ignore_ascii_case(&output.output));
        }
    }
    compare_outputs(&expected, &actual, Order::Any).map_err(fail)
}

/// The rows of a file as JSON lines. The file holds an array, or objects separated by white space.
fn expected_rows(file: &Path) -> Result<String, String> {
    let error_text = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = disk::read_to_string(file).map_err(|error| error_text(&error))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut lines = String::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Json>() {
        let rows = match value.map_err(|error| error_text(&error))? {
            Json::Array(rows) => rows,
            row => vec![row],
        };
        for row in rows {
            lines.push_str(&row.to_string());
            lines.push('\n');
        }
    }
    Ok(lines)
}

fn compare_text(name: &str, expected: &str, actual: &str) -> Result<(), CaseFailure> {
    let mut lines = expected.lines().zip(actual.lines()).zip(1..);
    if let Some(((expected, actual), line)) =
        lines.find(|((expected, actual), _)| expected != actual)
    {
        return Err(fail(format!(
            "output {name}: line {line} differs\n- {expected}\n+ {actual}"
        )));
    }
    let (expected, actual) = (expected.lines().count(), actual.lines().count());
    if expected != actual {
        return Err(fail(format!(
            "output {name}: expected {expected} lines, got {actual}"
        )));
    }
    Ok(())
}

/// Runs a job and returns the text that it writes, by output.
fn run_job(job: &Job, threads: usize) -> Result<BTreeMap<String, String>, CaseFailure> {
    let (outputs, collected) = Outputs::collected_as_declared(&job.file, &job.plan);
    let options = Options {
        threads,
        ..Options::default()
    };
    run(job, outputs, options).map_err(fail)?;
    let collected = std::mem::take(&mut *collected.lock().unwrap_or_else(|e| e.into_inner()));
    let names = job
        .plan
        .outputs
        .iter()
        .map(|output| (output.name.clone(), String::new()));
    let mut actual: BTreeMap<String, String> = names.collect();
    for (output, bytes) in collected {
        actual.insert(output, String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(actual)
}

fn fail(why: impl std::fmt::Display) -> CaseFailure {
    CaseFailure(why.to_string())
}
