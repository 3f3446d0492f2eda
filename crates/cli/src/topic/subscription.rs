//! Creates, changes and deletes subscriptions.

use serde_json::json;

use crate::exit::ExitStatus;
use crate::node_args::{Confirmation, NodeArgs, change, given};
use crate::queue::settings::DeliverySettings;

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
    settings: DeliverySettings,
    #[command(flatten)]
    node: NodeArgs,
}

impl Create {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let mut body = given(&self.settings);
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
    settings: DeliverySettings,
    #[command(flatten)]
    node: NodeArgs,
}

impl Set {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let body = change(&self.settings)?;
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
