//! `highwater queue`: the queues of a running node, over HTTP.

mod manage;
mod messages;
pub(crate) mod settings;
mod settle;

use crate::exit::ExitStatus;
use crate::node_args::{CreateArgs, DeleteArgs, NamedArgs, NodeArgs, SetArgs};
use crate::runtime::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum Queue {
    /// Create a queue
    Create(CreateArgs<manage::NewQueue>),
    /// List the queues and their message counts
    List(NodeArgs),
    /// Show the settings and message counts of a queue
    Describe(NamedArgs),
    /// Change the settings of a queue
    Set(SetArgs<manage::Settings>),
    /// Send messages: one from the command line, or one for each line of standard input
    Send(messages::Send),
    /// Receive messages and print them with their lock tokens, one JSON object a line
    Receive(messages::Receive),
    /// Print messages without locking them
    Peek(messages::Peek),
    /// Receive deferred messages by sequence number
    Deferred(messages::Deferred),
    /// Complete messages: remove them from the queue
    Complete(settle::LockTokens),
    /// Abandon messages: release their locks, so that they are delivered again
    Abandon(settle::LockTokens),
    /// Defer messages, to be received by sequence number only
    Defer(settle::LockTokens),
    /// Renew the locks of messages
    Renew(settle::LockTokens),
    /// Move messages to the dead letters
    DeadLetter(settle::DeadLetter),
    /// Send dead letters to the queue again
    Resubmit(settle::SequenceNumbers),
    /// Cancel scheduled messages
    Cancel(settle::SequenceNumbers),
    /// Remove all messages that are not locked
    Purge(manage::Purge),
    /// Delete a queue and all of its messages
    Delete(DeleteArgs),
}

/// The path of an operation on a queue, or on its dead letters.
fn path(queue: &str, dead_letters: bool, operation: &str) -> String {
    match dead_letters {
        true => format!("/queues/{queue}/$deadletter/{operation}"),
        false => format!("/queues/{queue}/{operation}"),
    }
}

impl Queue {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self {
                Queue::Create(command) => command.run("queue").await,
                Queue::List(node) => manage::list(&node).await,
                Queue::Describe(queue) => manage::describe(&queue).await,
                Queue::Set(command) => command.run("queue").await,
                Queue::Send(command) => command.run().await,
                Queue::Receive(command) => command.run().await,
                Queue::Peek(command) => command.run().await,
                Queue::Deferred(command) => command.run().await,
                Queue::Complete(tokens) => tokens.settle("complete", "completed").await,
                Queue::Abandon(tokens) => tokens.settle("abandon", "abandoned").await,
                Queue::Defer(tokens) => tokens.settle("defer", "deferred").await,
                Queue::Renew(tokens) => tokens.settle("renew", "renewed").await,
                Queue::DeadLetter(command) => command.run().await,
                Queue::Resubmit(numbers) => numbers.post(true, "resubmit", "resubmitted").await,
                Queue::Cancel(numbers) => numbers.post(false, "cancel", "cancelled").await,
                Queue::Purge(command) => command.run().await,
                Queue::Delete(command) => command.run("queue", "all of its messages").await,
            }
        })
    }
}
