//! `highwater check`: compiles a query without running it and prints the diagnostics.

use std::io::{Write, stdout};
use std::path::PathBuf;

use highwater_env::disk;
use highwater_job::{Job, LoadError, project};
use highwater_query::{Catalog, Diagnostic, Severity, compile};

use crate::diagnostics;
use crate::exit::{ExitStatus, UsageError};

#[derive(clap::Args)]
pub(crate) struct Check {
    /// A query file, a job.toml, or the folder that holds one
    query: PathBuf,
    /// Print one JSON object per diagnostic, for editors
    #[arg(long)]
    json: bool,
}

/// A compiled query and its diagnostics.
struct CheckedQuery {
    name: String,
    text: String,
    diagnostics: Vec<Diagnostic>,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let checked = self.check()?;
        let has_errors = checked
            .diagnostics
            .iter()
            .any(|d| d.severity == Severity::Error);
        for diagnostic in &checked.diagnostics {
            if self.json {
                let diagnostic = diagnostics::json(diagnostic, &checked.name, &checked.text);
                writeln!(stdout(), "{diagnostic}")?;
            } else {
                writeln!(
                    stdout(),
                    "{}",
                    diagnostic.render(&checked.text, &checked.name)
                )?;
            }
        }
        if !has_errors && !self.json {
            writeln!(stdout(), "{}: the query is fine", checked.name)?;
        }
        Ok(ExitStatus::failure_if(has_errors))
    }

    fn check(&self) -> anyhow::Result<CheckedQuery> {
        let is_job = self.query.is_dir()
            || self.query.extension().is_some_and(|e| e == "toml")
            || project::is_project(&self.query);
        if !is_job {
            let name = self.query.display().to_string();
            let text = disk::read_to_string(&self.query)
                .map_err(|error| UsageError(format!("cannot read {name}: {error}")))?;
            let diagnostics = match compile(&text, &Catalog::open()) {
                Ok(compiled) => compiled.warnings,
                Err(errors) => errors,
            };
            return Ok(CheckedQuery {
                name,
                text,
                diagnostics,
            });
        }
        match Job::load(&self.query) {
            Ok(job) => Ok(CheckedQuery {
                name: job.query_name,
                text: job.query,
                diagnostics: job.warnings,
            }),
            Err(LoadError::Query {
                name,
                text,
                diagnostics,
                ..
            }) => Ok(CheckedQuery {
                name,
                text,
                diagnostics,
            }),
            Err(error) => Err(error.into()),
        }
    }
}
