//! `highwater queue`: queues of a running server, over HTTP.

mod manage;
mod messages;
mod settle;

use std::io::{Write, stdout};

use hyper::Method;
use serde_json::Value;

use crate::block_on::block_on;
use crate::client::{Client, Server};
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

/// Where to talk to, and how to answer.
#[derive(clap::Args)]
struct Ask {
    #[command(flatten)]
    server: Server,
    #[arg(long)]
    json: bool,
}

impl Ask {
    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let mut client = Client::new(&self.server)?;
        let answer = client.send_json(Method::POST, path, body).await?;
        answer.success()?.json()
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = Client::new(&self.server)?.get(path).await?;
        answer.success()?.json()
    }

    /// The whole answer with `--json`, otherwise a line for people.
    fn tell(&self, answer: &Value, line: impl FnOnce() -> String) -> anyhow::Result<Ending> {
        match self.json {
            true => writeln!(stdout(), "{answer}")?,
            false => writeln!(stdout(), "{}", line())?,
        }
        Ok(Ending::Well)
    }
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
