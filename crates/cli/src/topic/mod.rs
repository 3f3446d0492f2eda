//! `highwater topic`: the topics of a running node with their subscriptions and rules, over HTTP.

mod manage;
mod rule;
mod subscription;

use serde_json::{Map, Value};

use crate::exit::{ExitStatus, UsageError};
use crate::node_args::{DeleteArgs, NodeArgs};
use crate::runtime::block_on;

#[derive(clap::Args)]
pub(crate) struct Topic {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a topic
    Create(manage::Create),
    /// List the topics and their subscriptions
    List(NodeArgs),
    /// Show the settings, subscriptions and rules of a topic
    Describe(manage::Describe),
    /// Change the settings of a topic
    Set(manage::Set),
    /// Delete a topic, its subscriptions and all of their messages
    Delete(DeleteArgs),
    /// Create a subscription, which gets the messages that are sent from now on
    Subscribe(subscription::Create),
    /// Change the settings of a subscription
    SetSubscription(subscription::Set),
    /// Delete a subscription and all of its messages
    Unsubscribe(subscription::Delete),
    /// Add a rule to a subscription, or replace one with --replace
    AddRule(rule::Add),
    /// Remove a rule of a subscription
    RemoveRule(rule::Remove),
}

impl Topic {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self.command {
                Command::Create(command) => command.run().await,
                Command::List(node) => manage::list(&node).await,
                Command::Describe(command) => command.run().await,
                Command::Set(command) => command.run().await,
                Command::Delete(command) => {
                    let contents = "its subscriptions with all of their messages";
                    command.run("topic", contents).await
                }
                Command::Subscribe(command) => command.run().await,
                Command::SetSubscription(command) => command.run().await,
                Command::Unsubscribe(command) => command.run().await,
                Command::AddRule(command) => command.run().await,
                Command::RemoveRule(command) => command.run().await,
            }
        })
    }
}

/// The settings that were given, as the body of a request.
fn body<const N: usize>(settings: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let given = settings
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    given.collect()
}

/// Refuses a change without any setting.
fn some_change(body: Map<String, Value>) -> Result<Value, UsageError> {
    match body.is_empty() {
        true => {
            let message =
                "nothing to set: give a setting such as --time-to-live 7d; --help lists them";
            Err(UsageError(message.into()))
        }
        false => Ok(body.into()),
    }
}
