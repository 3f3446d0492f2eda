//! `highwater hub grow`, `set` and `trim`: changes to a hub in use.

use serde_json::{Value, json};

use super::retention;
use crate::exit::{ExitStatus, UsageError};
use crate::node_args::{Confirmation, NodeArgs, given, text};

#[derive(clap::Args)]
pub(crate) struct Grow {
    name: String,
    /// The new number of partitions; a hub never shrinks
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct Set {
    name: String,
    /// Minimum time to keep events, such as 12h or 7d, or `forever`
    #[arg(long)]
    retention: Option<String>,
    /// Minimum size of a partition before events are removed, in bytes, or `unlimited`
    #[arg(long, value_parser = bytes)]
    retention_bytes: Option<Value>,
    /// Cleanup policy: delete old events, compact to the last event of each key, or both
    #[arg(long, value_parser = ["delete", "compact", "compact,delete"])]
    cleanup: Option<String>,
    /// The largest batch accepted, in bytes
    #[arg(long)]
    batch_bytes_max: Option<u32>,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct Trim {
    name: String,
    partition: u32,
    /// The first offset to keep, or a time such as 2026-01-01T00:00:00Z, or `latest` to keep nothing
    #[arg(long)]
    before: String,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    node: NodeArgs,
}

fn bytes(text: &str) -> Result<Value, String> {
    match text {
        "unlimited" => Ok(Value::Null),
        _ => (text.parse::<u64>().map(Value::from))
            .map_err(|_| "write a number of bytes, or unlimited".to_owned()),
    }
}

impl Grow {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let body = json!({"partitions": self.partitions});
        let hub = change(&self.node, &self.name, &body).await?;
        self.node.print(&hub, || {
            format!("hub {} with {} partitions", self.name, hub["partitions"])
        })
    }
}

impl Set {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let mut body = given(&json!({
            "retention": self.retention, "cleanup": self.cleanup, "batch_bytes_max": self.batch_bytes_max,
        }));
        if let Some(bytes) = self.retention_bytes {
            body.insert("retention_bytes".into(), bytes);
        }
        if body.is_empty() {
            let message = "nothing to set: give --retention, --retention-bytes, --cleanup or --batch-bytes-max";
            return Err(UsageError(message.into()).into());
        }
        let hub = change(&self.node, &self.name, &body.into()).await?;
        self.node.print(&hub, || {
            format!(
                "hub {}: cleanup {}, retention {}",
                self.name,
                text(&hub, "cleanup"),
                retention(&hub)
            )
        })
    }
}

async fn change(node: &NodeArgs, name: &str, body: &Value) -> anyhow::Result<Value> {
    node.patch(&format!("/api/hubs/{name}"), body).await
}

impl Trim {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let Trim {
            name,
            partition,
            before,
            ..
        } = &self;
        let subject = format!("the events of partition {partition} of hub {name} before {before}");
        if !self.confirmation.confirm(&subject, name)? {
            return Ok(ExitStatus::Failure);
        }
        let path = format!("/api/hubs/{name}/partitions/{partition}/trim");
        let trimmed = self.node.post(&path, &json!({"before": before})).await?;
        self.node.print(&trimmed, || {
            let start = &trimmed["start"];
            format!("partition {partition} of hub {name} starts at {start}")
        })
    }
}
