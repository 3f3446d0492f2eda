//! Sends, receives and peeks at messages.

use std::io::{BufRead, Write, stdin, stdout};

use hyper::Method;
use serde_json::{Map, Value, json};

use super::path;
use super::settle::report_failures;
use crate::client::percent_encode;
use crate::exit::ExitStatus;
use crate::node_args::{NodeArgs, given, items};

/// Messages in a request when they are read from standard input.
const BATCH: usize = 500;

#[derive(clap::Args)]
pub(crate) struct Send {
    queue: String,
    /// One message; without it, every line of standard input is one
    message: Option<String>,
    /// The message id, for duplicate detection
    #[arg(long, requires = "message")]
    id: Option<String>,
    /// The session of the message, or of all lines
    #[arg(long)]
    session: Option<String>,
    /// Deliver no earlier than this time, such as 2026-12-24T18:00:00Z
    #[arg(long)]
    schedule_at: Option<String>,
    /// Time to live, such as 90s
    #[arg(long)]
    time_to_live: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
}

impl Send {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let path = path(&self.queue, false, "batch");
        let mut client = self.node.client()?;
        let mut send = async |messages: Vec<Value>| {
            let body = Value::from(messages);
            let response = client.send_json(Method::POST, &path, &body).await?;
            response.success()?.json()
        };
        let mut sequences: Vec<Value> = Vec::new();
        let mut add_sent =
            |response: Value| sequences.extend(items(&response["messages"]).cloned());
        match &self.message {
            Some(text) => add_sent(send(vec![self.message(text)]).await?),
            None => {
                let mut batch = Vec::with_capacity(BATCH);
                for line in stdin().lock().lines() {
                    batch.push(self.message(&line?));
                    if batch.len() == BATCH {
                        add_sent(send(std::mem::take(&mut batch)).await?);
                    }
                }
                if !batch.is_empty() {
                    add_sent(send(batch).await?);
                }
            }
        }
        // A message whose id was seen before is accepted and dropped.
        let duplicates = sequences.iter().filter(|one| one["duplicate"] == true);
        let duplicates = duplicates.count();
        let sent = sequences.len() - duplicates;
        let response = json!({"sent": sent, "duplicates": duplicates, "messages": sequences});
        self.node.print(&response, || match duplicates {
            0 => format!("sent {sent}"),
            1 => format!("sent {sent}, 1 duplicate dropped"),
            _ => format!("sent {sent}, {duplicates} duplicates dropped"),
        })
    }

    /// JSON is sent as JSON, anything else as bytes.
    fn message(&self, text: &str) -> Value {
        use base64::Engine;
        let mut message = Map::new();
        match serde_json::from_str::<Value>(text) {
            Ok(value) => message.insert("body".into(), value),
            Err(_) => {
                let bytes = base64::engine::general_purpose::STANDARD.encode(text);
                message.insert("content_type".into(), "text/plain".into());
                message.insert("body_base64".into(), bytes.into())
            }
        };
        message.extend(given(&json!({
            "id": self.id, "session": self.session, "schedule_at": self.schedule_at,
            "time_to_live": self.time_to_live,
        })));
        message.into()
    }
}

#[derive(clap::Args)]
pub(crate) struct Receive {
    queue: String,
    /// Receive at most this many messages
    #[arg(long, default_value_t = 1)]
    max: u32,
    /// Wait this long for the first message
    #[arg(long, default_value = "0s")]
    wait: String,
    /// Receive and delete: the messages are removed at once, without a lock (at most once)
    #[arg(long, conflicts_with = "complete")]
    delete: bool,
    /// Complete these messages in the same request
    #[arg(long, value_name = "TOKEN", num_args = 1..)]
    completed: Vec<String>,
    /// Abandon these messages in the same request
    #[arg(long, value_name = "TOKEN", num_args = 1..)]
    abandoned: Vec<String>,
    /// Complete the messages after they are printed
    #[arg(long)]
    complete: bool,
    /// Use the dead letters instead of the messages
    #[arg(long)]
    dead_letters: bool,
    /// Accept this session and receive from it; the session stays locked until its lock expires
    #[arg(long, conflicts_with = "dead_letters")]
    session: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
}

impl Receive {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let mode = match self.delete {
            true => "delete",
            false => "lock",
        };
        let mut query = format!("?max={}&wait={}&mode={mode}", self.max, self.wait);
        if let Some(session) = &self.session {
            let name = percent_encode(session);
            let accept = path(&self.queue, false, "sessions/accept");
            let accept = format!("{accept}?session={name}&wait={}", self.wait);
            let accepted = self.node.post(&accept, &json!({})).await?;
            let token = accepted["token"].as_str().unwrap_or_default();
            query.push_str(&format!("&session={name}&session_token={token}"));
        }
        let receive = path(&self.queue, self.dead_letters, "receive") + &query;
        let settled = json!({"complete": self.completed, "abandon": self.abandoned});
        let received = self.node.post(&receive, &settled).await?;
        print(&received)?;
        let tokens = items(&received["messages"]);
        let tokens: Vec<&Value> = tokens.map(|message| &message["token"]).collect();
        if self.complete && !tokens.is_empty() {
            let complete = path(&self.queue, self.dead_letters, "complete");
            self.node
                .post(&complete, &json!({"tokens": tokens}))
                .await?;
        }
        Ok(report_failures(&received))
    }
}

/// Prints one message a line.
fn print(response: &Value) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    for message in items(&response["messages"]) {
        writeln!(out, "{message}")?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct Peek {
    queue: String,
    /// Start at this sequence number
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Print at most this many messages
    #[arg(long, default_value_t = 100)]
    max: u32,
    /// Use the dead letters instead of the messages
    #[arg(long)]
    dead_letters: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Peek {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let messages = path(&self.queue, self.dead_letters, "messages");
        let query = format!("?from={}&max={}", self.from, self.max);
        print(&self.node.get(&(messages + &query)).await?)?;
        Ok(ExitStatus::Success)
    }
}

#[derive(clap::Args)]
pub(crate) struct Deferred {
    queue: String,
    /// Sequence numbers of the messages
    #[arg(required = true)]
    sequences: Vec<u64>,
    #[command(flatten)]
    node: NodeArgs,
}

impl Deferred {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let body = json!({"sequences": self.sequences});
        let path = path(&self.queue, false, "deferred");
        print(&self.node.post(&path, &body).await?)?;
        Ok(ExitStatus::Success)
    }
}
