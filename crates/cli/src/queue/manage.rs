//! Lists, describes and purges queues; their settings.

use std::io::Write;

use serde_json::json;

use super::path;
use super::settings::DeliverySettings;
use crate::exit::ExitStatus;
use crate::node_args::{Columns, Confirmation, NamedArgs, NodeArgs, items};

#[derive(clap::Args, serde::Serialize)]
pub(crate) struct Settings {
    #[command(flatten)]
    #[serde(flatten)]
    delivery: DeliverySettings,
    /// Duplicate detection window: drop a message whose id was seen within this time, such as 10m, or `off`
    #[arg(long)]
    duplicates_within: Option<String>,
    /// The largest message, in bytes
    #[arg(long)]
    message_bytes_max: Option<u32>,
}

#[derive(clap::Args, serde::Serialize)]
pub(crate) struct NewQueue {
    /// Messages belong to sessions; one receiver at a time gets the messages of a session, in order
    #[arg(long)]
    sessions: bool,
    #[command(flatten)]
    #[serde(flatten)]
    settings: Settings,
}

pub(crate) async fn list(node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    let queues = node.get("/api/queues").await?["queues"].take();
    node.print_with(&queues, |out| {
        if items(&queues).next().is_none() {
            eprintln!("there are no queues; create one with: highwater queue create NAME");
            return Ok(());
        }
        let columns = Columns([24, -12, -12, -12, -12, -12]);
        let mut names = [
            "queue",
            "active",
            "locked",
            "scheduled",
            "deferred",
            "dead_letters",
        ];
        writeln!(out, "{}", columns.line(names))?;
        names[0] = "name";
        for queue in items(&queues) {
            writeln!(out, "{}", columns.fields(queue, names))?;
        }
        Ok(())
    })
}

pub(crate) async fn describe(queue: &NamedArgs) -> anyhow::Result<ExitStatus> {
    let NamedArgs { name, node } = queue;
    let queue = node.get(&format!("/api/queues/{name}")).await?;
    node.print_with(&queue, |out| {
        for (name, value) in queue.as_object().into_iter().flatten() {
            match value.as_object() {
                None => writeln!(out, "{name:28} {value}")?,
                Some(parts) => {
                    for (part, value) in parts {
                        writeln!(out, "{:28} {value}", format!("{part}, {name}"))?;
                    }
                }
            }
        }
        Ok(())
    })
}

#[derive(clap::Args)]
pub(crate) struct Purge {
    name: String,
    /// Purge the dead letters instead of the messages
    #[arg(long)]
    dead_letters: bool,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    node: NodeArgs,
}

impl Purge {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let kind = match self.dead_letters {
            true => "dead letters",
            false => "messages",
        };
        let subject = format!("all {kind} of queue {}", self.name);
        if !self.confirmation.confirm(&subject, &self.name)? {
            return Ok(ExitStatus::Failure);
        }
        let path = path(&self.name, self.dead_letters, "purge");
        let purged = self.node.post(&path, &json!({})).await?;
        self.node
            .print(&purged, || format!("removed {} {kind}", purged["removed"]))
    }
}
