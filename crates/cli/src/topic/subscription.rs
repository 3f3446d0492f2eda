//! Creates, changes and deletes subscriptions.

use serde_json::{Map, Value, json};

use super::{body, some_change};
use crate::exit::ExitStatus;
use crate::node_args::{Confirmation, NodeArgs};

/// Settings of a subscription. An absent one has its default at creation, and is unchanged by `set-subscription`.
#[derive(clap::Args)]
struct Settings {
    /// How long a received message stays locked, such as 60s
    #[arg(long)]
    lock: Option<String>,
    /// Deliveries before an unsettled message becomes a dead letter
    #[arg(long)]
    deliveries_max: Option<u32>,
    /// Time to live of a message, such as 7d, or `forever`
    #[arg(long)]
    time_to_live: Option<String>,
    /// Move expired messages to the dead letters
    #[arg(long)]
    dead_letter_expired: Option<bool>,
    /// The largest total size of the messages, in bytes
    #[arg(long)]
    bytes_max: Option<u64>,
}

impl Settings {
    fn body(self) -> Map<String, Value> {
        let expired = self.dead_letter_expired;
        body([
            ("lock", self.lock.map(Value::from)),
            ("deliveries_max", self.deliveries_max.map(Value::from)),
            ("time_to_live", self.time_to_live.map(Value::from)),
            ("dead_letter_expired", expired.map(Value::from)),
            ("bytes_max", self.bytes_max.map(Value::from)),
        ])
    }
}

#[derive(clap::Args)]
pub(crate) struct Create {
    topic: String,
    name: String,
    /// Messages belong to sessions; one receiver at a time gets the messages of a session, in order
    #[arg(long)]
    sessions: bool,
    /// Get only the messages that this condition selects, such as "grams > 100"; without it, all of them
    #[arg(long)]
    sql: Option<String>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    node: NodeArgs,
}

impl Create {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let mut body = self.settings.body();
        body.insert("name".into(), self.name.clone().into());
        body.insert("sessions".into(), self.sessions.into());
        if let Some(sql) = self.sql {
            body.insert("rules".into(), json!([{"name": "$Default", "sql": sql}]));
        }
        let path = format!("/api/topics/{}/subscriptions", self.topic);
        let subscription = self.node.post(&path, &body.into()).await?;
        self.node.print(&subscription, || {
            format!("subscription {} of topic {}", self.name, self.topic)
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct Set {
    topic: String,
    name: String,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    node: NodeArgs,
}

impl Set {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let body = some_change(self.settings.body())?;
        let path = format!("/api/topics/{}/subscriptions/{}", self.topic, self.name);
        let subscription = self.node.patch(&path, &body).await?;
        self.node.print(&subscription, || {
            format!("changed subscription {} of topic {}", self.name, self.topic)
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct Delete {
    topic: String,
    name: String,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    node: NodeArgs,
}

impl Delete {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let (topic, name) = (&self.topic, &self.name);
        let subject = format!("subscription {name} of topic {topic} and all of its messages");
        if !self.confirmation.confirm(&subject, name)? {
            return Ok(ExitStatus::Failure);
        }
        let path = format!("/api/topics/{topic}/subscriptions/{name}");
        self.node.delete(&path, "subscription", name).await
    }
}
