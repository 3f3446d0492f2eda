//! How a command ends.

use std::io;
use std::process::ExitCode;

use highwater_connect::SinkError;
use highwater_job::{LoadError, RunError};

/// How a command that got to its end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Well,
    /// Something that was to hold does not.
    Failed,
    /// Events were lost to errors.
    LostData,
}

/// The request was wrong: the text says how.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadRequest(pub String);

pub fn code(result: anyhow::Result<Ending>) -> ExitCode {
    let error = match result {
        Ok(Ending::Well) => return ExitCode::SUCCESS,
        Ok(Ending::Failed) => return ExitCode::from(1),
        Ok(Ending::LostData) => return ExitCode::from(3),
        Err(error) => error,
    };
    if reader_went_away(&error) {
        return ExitCode::SUCCESS;
    }
    let text = with_causes(&error);
    let prefix = if text.starts_with("error") {
        ""
    } else {
        "error: "
    };
    eprintln!("{prefix}{text}");
    ExitCode::from(if bad_request(&error) { 2 } else { 1 })
}

/// The error and what led to it; some errors tell their cause themselves.
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

fn bad_request(error: &anyhow::Error) -> bool {
    let load = |error: &LoadError| !matches!(error, LoadError::Files(_));
    error.downcast_ref::<BadRequest>().is_some()
        || error.downcast_ref::<LoadError>().is_some_and(load)
        || matches!(error.downcast_ref::<RunError>(), Some(RunError::Load(error)) if load(error))
}

/// `highwater run .. | head` is no failure.
fn reader_went_away(error: &anyhow::Error) -> bool {
    let pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(pipe)
        || matches!(
            error.downcast_ref::<RunError>(),
            Some(RunError::Sink(SinkError::Closed))
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let told =
            |text: &str| with_causes(&anyhow::anyhow!("no such file").context(text.to_owned()));
        assert_eq!(told("cannot read x"), "cannot read x: no such file");
        assert_eq!(
            told("cannot read x: no such file"),
            "cannot read x: no such file"
        );
    }
}
