//! `highwater test`: runs golden cases.

use std::io::{Write, stdout};
use std::path::PathBuf;

use highwater_devtools::golden::{discover, run_case};
use serde_json::json;

use crate::exit::{ExitStatus, UsageError};

#[derive(clap::Args)]
pub(crate) struct Test {
    /// Folders to search for golden cases
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// Print one JSON object per case
    #[arg(long)]
    json: bool,
}

impl Test {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        if let Some(missing) = self.folders.iter().find(|folder| !folder.is_dir()) {
            return Err(UsageError(format!("{} is not a folder", missing.display())).into());
        }
        let cases = discover(&self.folders);
        if cases.is_empty() {
            return Err(UsageError(
                "no golden case found; a case is a folder with a job.toml and an expected/ folder \
                 or an [expect] table"
                    .into(),
            )
            .into());
        }
        let mut failed = 0;
        for case in &cases {
            let result = run_case(case, 1);
            failed += usize::from(result.is_err());
            self.show(&case.name, result.err().map(|failure| failure.0))?;
        }
        if !self.json {
            writeln!(stdout(), "{} passed, {failed} failed", cases.len() - failed)?;
        }
        Ok(ExitStatus::failure_if(failed > 0))
    }

    fn show(&self, name: &str, failure: Option<String>) -> std::io::Result<()> {
        let mut out = stdout().lock();
        match (self.json, failure) {
            (true, failure) => {
                let passed = failure.is_none();
                writeln!(
                    out,
                    "{}",
                    json!({"case": name, "passed": passed, "diff": failure})
                )
            }
            (false, None) => writeln!(out, "ok    {name}"),
            (false, Some(text)) => {
                writeln!(out, "FAIL  {name}")?;
                text.lines()
                    .try_for_each(|line| writeln!(out, "      {line}"))
            }
        }
    }
}
