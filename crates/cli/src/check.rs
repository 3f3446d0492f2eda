//! `highwater check`: what is wrong with a query, without running it.

use std::io::{Write, stdout};
use std::path::PathBuf;

use highwater_env::disk;
use highwater_job::{Job, LoadError};
use highwater_query::{Catalog, Diagnostic, Severity, compile};

use crate::exit::{BadRequest, Ending};
use crate::findings;

#[derive(clap::Args)]
pub struct Check {
    /// A query file, a job.toml, or the folder that holds one
    query: PathBuf,
    /// One JSON object per finding, for editors
    #[arg(long)]
    json: bool,
}

struct Checked {
    name: String,
    text: String,
    findings: Vec<Diagnostic>,
}

impl Check {
    pub fn run(self) -> anyhow::Result<Ending> {
        let checked = self.check()?;
        let wrong = checked
            .findings
            .iter()
            .any(|d| d.severity == Severity::Error);
        for finding in &checked.findings {
            if self.json {
                let finding = findings::json(finding, &checked.name, &checked.text);
                writeln!(stdout(), "{finding}")?;
            } else {
                writeln!(stdout(), "{}", finding.render(&checked.text, &checked.name))?;
            }
        }
        if !wrong && !self.json {
            writeln!(stdout(), "{}: the query is fine", checked.name)?;
        }
        Ok(if wrong { Ending::Failed } else { Ending::Well })
    }

    fn check(&self) -> anyhow::Result<Checked> {
        let is_job = self.query.is_dir() || self.query.extension().is_some_and(|e| e == "toml");
        if !is_job {
            let name = self.query.display().to_string();
            let text = disk::read_to_string(&self.query)
                .map_err(|error| BadRequest(format!("cannot read {name}: {error}")))?;
            let findings = match compile(&text, &Catalog::open()) {
                Ok(compiled) => compiled.warnings,
                Err(errors) => errors,
            };
            return Ok(Checked {
                name,
                text,
                findings,
            });
        }
        match Job::load(&self.query) {
            Ok(job) => Ok(Checked {
                name: job.query_name,
                text: job.query,
                findings: job.warnings,
            }),
            Err(LoadError::Query {
                name,
                text,
                diagnostics,
                ..
            }) => Ok(Checked {
                name,
                text,
                findings: diagnostics,
            }),
            Err(error) => Err(error.into()),
        }
    }
}
