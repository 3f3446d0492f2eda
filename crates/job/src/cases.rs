//! Golden cases: a folder with a job, its inputs and what must come out.

use std::collections::BTreeMap;

use crate::config::JobFile;
use crate::golden::{self, CaseDir};
use crate::load::Job;
use crate::outputs::Outputs;
use crate::run::{Options, run};

/// Why a case failed, as text for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseFailure(pub String);

/// Runs one case.
pub fn check(case: &CaseDir, threads: usize) -> Result<(), CaseFailure> {
    let fail = |text: String| CaseFailure(text);
    let file = JobFile::load(&case.dir).map_err(|error| fail(error.to_string()))?;
    let expect = file.expect.clone().unwrap_or_default();
    let loaded = Job::new(file);
    if let Some(wanted) = &expect.error {
        return match loaded {
            Ok(_) => Err(fail(
                "the query was accepted, but should be rejected".into(),
            )),
            Err(error) if error.to_string().contains(wanted.as_str()) => Ok(()),
            Err(error) => Err(fail(format!(
                "the query was rejected, but not with {wanted:?}:\n{error}"
            ))),
        };
    }
    let job = loaded.map_err(|error| fail(error.to_string()))?;
    let (outputs, collected) = Outputs::collected(&job.plan);
    let options = Options {
        threads,
        ..Options::default()
    };
    run(&job, outputs, options).map_err(|error| fail(error.to_string()))?;
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
    let expected = case.expected().map_err(|error| fail(error.to_string()))?;
    golden::compare_outputs(&expected, &actual, expect.order)
        .map_err(|mismatch| fail(mismatch.to_string()))
}
