//! `highwater queue`: queues of a running server, over HTTP.

mod manage;
mod messages;
mod settle;

use crate::block_on::block_on;
use crate::exit::Ending;

#[derive(clap::Args)]
pub struct Queue {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Make a queue
    Create(manage::Create),
    /// List the queues and how many messages are where
    List(manage::List),
    /// Show a queue: its settings and how many messages are where
    Describe(manage::Describe),
    /// Change the settings of a queue
    Set(manage::Set),
    /// Send messages: one given here, or a line of standard input each
    Send(messages::Send),
    /// Receive messages and print them with their lock tokens, a line of JSON each
    Receive(messages::Receive),
    /// Look at messages without receiving them
    Peek(messages::Peek),
    /// Receive deferred messages by their numbers
    Deferred(messages::Deferred),
    /// Done with messages: they are gone
    Complete(settle::Complete),
    /// Give messages back
    Abandon(settle::Abandon),
    /// Set messages aside, to be received by number
    Defer(settle::Defer),
    /// Lock messages for longer
    Renew(settle::Renew),
    /// Make messages dead letters
    DeadLetter(settle::DeadLetter),
    /// Make dead letters messages again
    Resubmit(settle::Resubmit),
    /// Cancel scheduled messages
    Cancel(settle::Cancel),
    /// Remove all messages that nobody has locked
    Purge(manage::Purge),
    /// Delete a queue and everything in it
    Delete(manage::Delete),
}

/// The path of a queue, or of its dead letters.
fn path(queue: &str, dead_letters: bool, what: &str) -> String {
    match dead_letters {
        true => format!("/queues/{queue}/$deadletter/{what}"),
        false => format!("/queues/{queue}/{what}"),
    }
}

impl Queue {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(async {
            match self.what {
                What::Create(command) => command.run().await,
                What::List(command) => command.run().await,
                What::Describe(command) => command.run().await,
                What::Set(command) => command.run().await,
                What::Send(command) => command.run().await,
                What::Receive(command) => command.run().await,
                What::Peek(command) => command.run().await,
                What::Deferred(command) => command.run().await,
                What::Complete(command) => command.run().await,
                What::Abandon(command) => command.run().await,
                What::Defer(command) => command.run().await,
                What::Renew(command) => command.run().await,
                What::DeadLetter(command) => command.run().await,
                What::Resubmit(command) => command.run().await,
                What::Cancel(command) => command.run().await,
                What::Purge(command) => command.run().await,
                What::Delete(command) => command.run().await,
            }
        })
    }
}
