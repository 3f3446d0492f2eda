//! `highwater hub`: the hubs of a running node, over HTTP.

mod groups;
mod line_batches;
mod manage;
mod send;
mod tail;

use std::io::Write;

use serde_json::Value;

use crate::exit::ExitStatus;
use crate::node_args::{Columns, DeleteArgs, NamedArgs, NodeArgs, given, items, text};
use crate::runtime::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum Hub {
    /// Create a hub
    Create(Create),
    /// List the hubs
    List(NodeArgs),
    /// Show a hub, its partitions, their offsets and sizes
    Describe(NamedArgs),
    /// Send events: one from the command line, or JSON lines from files or standard input
    Send(send::Send),
    /// Print events; with -f, follow the hub
    Tail(tail::Tail),
    /// Add partitions to a hub
    Grow(manage::Grow),
    /// Change retention, cleanup policy or batch size of a hub
    Set(manage::Set),
    /// Delete the events of a partition before an offset or time
    Trim(manage::Trim),
    /// Delete a hub and all of its events
    Delete(DeleteArgs),
    /// List consumer groups, show the lag of one, or delete one
    Groups(groups::Groups),
}

#[derive(clap::Args, serde::Serialize)]
pub(crate) struct Create {
    name: String,
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    /// Minimum time to keep events, such as 12h or 7d, or `forever`
    #[arg(long, default_value = "7d")]
    retention: String,
    /// Minimum size of a partition before events are removed, in bytes
    #[arg(long)]
    retention_bytes: Option<u64>,
    /// Cleanup policy: delete old events, compact to the last event of each key, or both
    #[arg(long, default_value = "delete", value_parser = ["delete", "compact", "compact,delete"])]
    cleanup: String,
    #[command(flatten)]
    #[serde(skip)]
    node: NodeArgs,
}

impl Hub {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self {
                Hub::Create(command) => command.run().await,
                Hub::List(node) => list(&node).await,
                Hub::Describe(hub) => describe(&hub).await,
                Hub::Send(command) => command.run().await,
                Hub::Tail(command) => command.run().await,
                Hub::Grow(command) => command.run().await,
                Hub::Set(command) => command.run().await,
                Hub::Trim(command) => command.run().await,
                Hub::Delete(command) => command.run("hub", "all of its events").await,
                Hub::Groups(command) => command.run().await,
            }
        })
    }
}

impl Create {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let hub = self.node.post("/api/hubs", &given(&self).into()).await?;
        self.node.print(&hub, || {
            format!("hub {} with {} partitions", self.name, self.partitions)
        })
    }
}

async fn list(node: &NodeArgs) -> anyhow::Result<ExitStatus> {
    let response = node.get("/api/hubs").await?;
    let hubs = items(&response["hubs"]).chain(items(&response["sharded"]));
    let hubs: Value = hubs.cloned().collect();
    node.print_with(&hubs, |out| {
        if items(&hubs).next().is_none() {
            eprintln!("there are no hubs; create one with: highwater hub create NAME");
        }
        for hub in items(&hubs) {
            let name = text(hub, "name");
            match shard_members(hub) {
                Some(members) => writeln!(out, "{name:24} sharded over {}", members.join(", "))?,
                None => writeln!(
                    out,
                    "{name:24} {:>5} partitions, retention {}",
                    hub["partitions"].to_string(),
                    retention(hub)
                )?,
            }
        }
        Ok(())
    })
}

/// The hubs behind a sharded name; `None` for a plain hub.
fn shard_members(hub: &Value) -> Option<Vec<&str>> {
    let members = hub["hubs"].as_array()?;
    Some(members.iter().filter_map(Value::as_str).collect())
}

fn retention(hub: &Value) -> String {
    match hub["retention_seconds"].as_u64() {
        None => "forever".into(),
        Some(seconds) => highwater_time::Duration::from_secs(seconds as i64).to_string(),
    }
}

async fn describe(hub: &NamedArgs) -> anyhow::Result<ExitStatus> {
    let NamedArgs { name, node } = hub;
    let hub = node.get(&format!("/api/hubs/{name}")).await?;
    node.print_with(&hub, |out| {
        if let Some(members) = shard_members(&hub) {
            writeln!(out, "{} is sharded over {}", name, members.join(", "))?;
            return Ok(());
        }
        writeln!(
            out,
            "hub {} created {}, cleanup {}, retention {}",
            name,
            text(&hub, "created"),
            text(&hub, "cleanup"),
            retention(&hub)
        )?;
        let columns = Columns([-9, -14, -14, -14, -8]);
        let names = ["partition", "start", "end", "bytes", "segments"];
        writeln!(out, "{}  last event", columns.line(names))?;
        for partition in items(&hub["places"]) {
            let last = partition["last"].as_str().unwrap_or("never");
            writeln!(out, "{}  {last}", columns.fields(partition, names))?;
            if let Some(reason) = partition["stopped"].as_str() {
                writeln!(out, "{:>9} {reason}", "")?;
            }
        }
        Ok(())
    })
}
