//! `highwater topic`: the topics of a running node with their subscriptions and rules, over HTTP.

mod manage;
mod rule;
mod subscription;

use crate::exit::ExitStatus;
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
