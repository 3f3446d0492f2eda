//! `highwater completions` and `highwater man`: files for shells and `man`, generated from the commands.

use std::io::{Write, stdout};

use clap_complete::Shell;
use clap_mangen::Man;

use crate::examples;
use crate::exit::ExitStatus;

#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell to write completions for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut examples::command(),
            "highwater",
            &mut script,
        );
        stdout().write_all(&script)?;
        Ok(ExitStatus::Success)
    }
}

#[derive(clap::Args)]
pub(crate) struct ManPage {
    /// The command to describe, such as `hub create` [default: highwater itself]
    command: Vec<String>,
}

impl ManPage {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let mut command = examples::command();
        command.build();
        for word in &self.command {
            let found = command.find_subcommand(word).cloned();
            command = found.ok_or_else(|| {
                crate::exit::UsageError(format!(
                    "highwater has no command `{}`",
                    self.command.join(" ")
                ))
            })?;
        }
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        stdout().write_all(&page)?;
        Ok(ExitStatus::Success)
    }
}
