//! `highwater init`: a project that runs and tests at once.
//!
//! The files are those of the folder `project`, as they are.

use std::io::{Write, stdout};
use std::path::PathBuf;

use crate::exit::{ExitStatus, UsageError};
use crate::write_file::write_file;

#[derive(clap::Args)]
pub(crate) struct Init {
    /// The folder of the project
    #[arg(default_value = ".")]
    folder: PathBuf,
}

/// The files of the project by path.
macro_rules! project {
    ($($path:literal,)*) => {
        &[$(($path, include_str!(concat!("project/", $path))),)*]
    };
}

const PROJECT: &[(&str, &str)] = project![
    "README.md",
    "highwater.toml",
    "jobs/averages/job.toml",
    "jobs/averages/query.saql",
    "cases/averages/job.toml",
    "cases/averages/input/readings.jsonl",
    "cases/averages/expected/averages.jsonl",
];

impl Init {
    /// Writes all files, or none if one exists.
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let taken = PROJECT
            .iter()
            .map(|(path, _)| self.folder.join(path))
            .find(|path| path.exists());
        if let Some(path) = taken {
            let message = format!("{} exists; give another folder", path.display());
            return Err(UsageError(message).into());
        }
        for (path, text) in PROJECT {
            write_file(&self.folder.join(path), text.as_bytes())?;
        }
        let folder = self.folder.display();
        let mut out = stdout().lock();
        writeln!(out, "made a project in {folder}; next:\n")?;
        if *self.folder != *"." {
            writeln!(out, "  cd {folder}")?;
        }
        writeln!(out, "  highwater test cases     # its golden case")?;
        writeln!(
            out,
            "  highwater up             # a node with its hubs and its job"
        )?;
        writeln!(out, "\nREADME.md continues from there.")?;
        Ok(ExitStatus::Success)
    }
}
