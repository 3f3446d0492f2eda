//! `highwater topic`: the topics of a running node with their subscriptions and rules, over HTTP.

mod manage;
mod rule;
mod subscription;

use crate::exit::ExitStatus;
use crate::node_args::{CreateArgs, DeleteArgs, NamedArgs, NodeArgs, SetArgs};
use crate::runtime::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum Topic {
    /// Create a topic
    Create(CreateArgs<manage::Settings>),
    /// List the topics and their subscriptions
    List(NodeArgs),
    /// Show the settings, subscriptions and rules of a topic
    Describe(NamedArgs),
    /// Change the settings of a topic
    Set(SetArgs<manage::Settings>),
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
            match self {
                Topic::Create(command) => command.run("topic").await,
                Topic::List(node) => manage::list(&node).await,
                Topic::Describe(topic) => manage::describe(&topic).await,
                Topic::Set(command) => command.run("topic").await,
                Topic::Delete(command) => {
                    let contents = "its subscriptions with all of their messages";
                    command.run("topic", contents).await
                }
                Topic::Subscribe(command) => command.run().await,
                Topic::SetSubscription(command) => command.run().await,
                Topic::Unsubscribe(command) => command.run().await,
                Topic::AddRule(command) => command.run().await,
                Topic::RemoveRule(command) => command.run().await,
            }
        })
    }
}
