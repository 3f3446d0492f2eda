//! `highwater test`: golden cases.

use std::io::{Write, stdout};
use std::path::PathBuf;

use highwater_devtools::golden::{discover, run_case};
use serde_json::json;

use crate::exit::{BadRequest, Ending};

#[derive(clap::Args)]
pub struct Test {
    /// Folders to search for cases
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// One JSON object per case
    #[arg(long)]
    json: bool,
}

impl Test {
    pub fn run(self) -> anyhow::Result<Ending> {
        if let Some(missing) = self.folders.iter().find(|folder| !folder.is_dir()) {
            return Err(BadRequest(format!("{} is not a folder", missing.display())).into());
        }
        let found = discover(&self.folders);
        if found.is_empty() {
            return Err(BadRequest(
                "no golden case found; a case is a folder with a job.toml and an expected/ folder \
                 or an [expect] table"
                    .into(),
            )
            .into());
        }
        let mut failed = 0;
        for case in &found {
            let outcome = run_case(case, 1);
            failed += usize::from(outcome.is_err());
            self.show(&case.name, outcome.err().map(|failure| failure.0))?;
        }
        if !self.json {
            writeln!(stdout(), "{} passed, {failed} failed", found.len() - failed)?;
        }
        Ok(if failed > 0 {
            Ending::Failed
        } else {
            Ending::Well
        })
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
