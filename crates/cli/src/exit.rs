//! Exit codes and the error message on standard error.

use std::io;
use std::process::ExitCode;

use highwater_connect::EndpointError;
use highwater_job::{LoadError, RunError};

/// The result of a command that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Success,
    /// A check failed, such as a golden case.
    Failure,
    /// Events were lost to errors.
    DataLoss,
}

impl ExitStatus {
    pub(crate) fn failure_if(failed: bool) -> ExitStatus {
        match failed {
            true => ExitStatus::Failure,
            false => ExitStatus::Success,
        }
    }

    pub(crate) fn data_loss_if(lost: bool) -> ExitStatus {
        match lost {
            true => ExitStatus::DataLoss,
            false => ExitStatus::Success,
        }
    }
}

/// Wrong arguments, job file or query; the text says how.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub String);

pub(crate) fn code(result: anyhow::Result<ExitStatus>) -> ExitCode {
    let error = match result {
        Ok(ExitStatus::Success) => return ExitCode::SUCCESS,
        Ok(ExitStatus::Failure) => return ExitCode::from(1),
        Ok(ExitStatus::DataLoss) => return ExitCode::from(3),
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    let text = with_causes(&error);
    let prefix = if text.starts_with("error") {
        ""
    } else {
        "error: "
    };
    eprintln!("{prefix}{text}");
    ExitCode::from(if is_usage_error(&error) { 2 } else { 1 })
}

/// The error and its causes. A cause that the text before it already ends with is not repeated.
fn with_causes(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text.is_empty() {
            true => cause,
            false if text.ends_with(&cause) => text,
            false => format!("{text}: {cause}"),
        }
    })
}

fn is_usage_error(error: &anyhow::Error) -> bool {
    let is_wrong_job = |error: &LoadError| !matches!(error, LoadError::Files(_));
    error.downcast_ref::<UsageError>().is_some()
        || error.downcast_ref::<LoadError>().is_some_and(is_wrong_job)
        || matches!(error.downcast_ref::<RunError>(), Some(RunError::Load(error)) if is_wrong_job(error))
}

/// `highwater run .. | head` is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken_pipe)
        || matches!(
            error.downcast_ref::<RunError>(),
            Some(RunError::Output(EndpointError::Closed))
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_shown_once() {
        let shown =
            |text: &str| with_causes(&anyhow::anyhow!("no such file").context(text.to_owned()));
        assert_eq!(shown("cannot read x"), "cannot read x: no such file");
        assert_eq!(
            shown("cannot read x: no such file"),
            "cannot read x: no such file"
        );
    }
}
