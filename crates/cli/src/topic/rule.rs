//! Adds, replaces and removes rules of subscriptions.

use serde_json::{Map, Value, json};

use crate::client::percent_encode;
use crate::exit::{ExitStatus, UsageError};
use crate::node_args::{NodeArgs, given};

/// The subscription that a rule belongs to, and its name.
#[derive(clap::Args)]
struct RuleName {
    topic: String,
    subscription: String,
    name: String,
}

impl RuleName {
    fn rules(&self) -> String {
        let (topic, subscription) = (&self.topic, &self.subscription);
        format!("/api/topics/{topic}/subscriptions/{subscription}/rules")
    }

    fn path(&self) -> String {
        format!("{}/{}", self.rules(), percent_encode(&self.name))
    }
}

#[derive(clap::Args)]
pub(crate) struct Add {
    #[command(flatten)]
    of: RuleName,
    /// Select by a condition, such as "colour = 'red' AND grams > 100"
    #[arg(long)]
    sql: Option<String>,
    /// Select messages with this subject
    #[arg(long)]
    label: Option<String>,
    /// Select messages with this correlation id
    #[arg(long)]
    correlation_id: Option<String>,
    /// Select messages with this property, such as colour=red; may be repeated
    #[arg(long = "property", value_name = "NAME=TEXT")]
    properties: Vec<String>,
    /// Change the copy, such as "SET grams = grams / 1000.0; REMOVE colour"
    #[arg(long)]
    action: Option<String>,
    /// Replace the rule of this name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Add {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let correlation = self.correlation()?;
        let mut body =
            given(&json!({"sql": self.sql, "action": self.action, "correlation": correlation}));
        let rule = match self.replace {
            true => self.node.put(&self.of.path(), &body.into()).await?,
            false => {
                body.insert("name".into(), self.of.name.clone().into());
                self.node.post(&self.of.rules(), &body.into()).await?
            }
        };
        self.node.print(&rule, || {
            let RuleName {
                topic,
                subscription,
                name,
            } = &self.of;
            format!("rule {name} of subscription {subscription} of topic {topic}")
        })
    }

    /// The conditions of a correlation filter; `None` without any.
    fn correlation(&self) -> Result<Option<Map<String, Value>>, UsageError> {
        let mut conditions =
            given(&json!({"label": self.label, "correlation_id": self.correlation_id}));
        let mut properties = Map::new();
        for property in &self.properties {
            let Some((name, text)) = property.split_once('=') else {
                let message = format!("--property {property} has no value: write NAME=TEXT");
                return Err(UsageError(message));
            };
            properties.insert(name.to_owned(), text.into());
        }
        if !properties.is_empty() {
            conditions.insert("properties".into(), properties.into());
        }
        Ok((!conditions.is_empty()).then_some(conditions))
    }
}

#[derive(clap::Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    of: RuleName,
    #[command(flatten)]
    node: NodeArgs,
}

impl Remove {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        self.node
            .delete(&self.of.path(), "rule", &self.of.name)
            .await
    }
}
