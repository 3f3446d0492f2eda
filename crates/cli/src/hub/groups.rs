//! `highwater hub groups`: consumer groups and their lag, and deleting one.

use std::io::Write;

use serde_json::Value;

use crate::client::percent_encode;
use crate::exit::ExitStatus;
use crate::node_args::{Columns, Confirmation, NodeArgs, items, text};

#[derive(clap::Args)]
pub(crate) struct Groups {
    /// Show one group with its committed offsets instead of listing all
    group: Option<String>,
    /// Delete the group and its committed offsets; it must have no members
    #[arg(long, requires = "group")]
    delete: bool,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    node: NodeArgs,
}

impl Groups {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        match &self.group {
            None => self.list().await,
            Some(group) if self.delete => self.delete(group).await,
            Some(group) => self.describe(group).await,
        }
    }

    async fn list(&self) -> anyhow::Result<ExitStatus> {
        let groups = self.node.get("/api/groups").await?["groups"].take();
        self.node.print_with(&groups, |out| {
            items(&groups).try_for_each(|group| Ok(writeln!(out, "{}", summary(group))?))
        })
    }

    async fn describe(&self, name: &str) -> anyhow::Result<ExitStatus> {
        let group = self.node.get(&path(name)).await?;
        self.node.print_with(&group, |out| {
            writeln!(out, "{}", summary(&group))?;
            let columns = Columns([24, -9, -14, -14, -14]);
            let names = ["hub", "partition", "offset", "end", "lag"];
            writeln!(out, "{}", columns.line(names))?;
            for position in items(&group["positions"]) {
                writeln!(out, "{}", columns.fields(position, names))?;
            }
            Ok(())
        })
    }

    async fn delete(&self, name: &str) -> anyhow::Result<ExitStatus> {
        let subject = format!("group {name} and its committed offsets");
        if !self.confirmation.confirm(&subject, name)? {
            return Ok(ExitStatus::Failure);
        }
        self.node.delete(&path(name), "group", name).await
    }
}

fn summary(group: &Value) -> String {
    format!(
        "{:24} {:>5} members, {}",
        text(group, "group"),
        items(&group["members"]).count(),
        text(group, "state")
    )
}

/// Group names may hold any character.
fn path(group: &str) -> String {
    format!("/api/groups/{}", percent_encode(group))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_group_name_is_one_segment_of_the_path() {
        assert_eq!(super::path("a b/ä"), "/api/groups/a%20b%2F%C3%A4");
    }
}
