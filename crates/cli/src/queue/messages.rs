//! Messages sent, received and looked at.

use std::io::{BufRead, Write, stdin, stdout};

use hyper::Method;
use serde_json::{Map, Value, json};

use super::path;
use super::settle::complain;
use crate::ask::Ask;
use crate::client::Client;
use crate::exit::Ending;

/// Messages in a request when they are read from lines.
const BATCH: usize = 500;

#[derive(clap::Args)]
pub struct Send {
    queue: String,
    /// One message; without it every line of standard input is one
    message: Option<String>,
    /// Its id, by which a repeat is known
    #[arg(long, requires = "message")]
    id: Option<String>,
    /// The session it belongs to, of all lines
    #[arg(long)]
    session: Option<String>,
    /// Not to be received before this time, such as 2026-12-24T18:00:00Z
    #[arg(long)]
    schedule_at: Option<String>,
    /// How long it is worth delivering, such as 90s
    #[arg(long)]
    time_to_live: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

impl Send {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let path = path(&self.queue, false, "batch");
        let mut client = Client::new(&self.ask.server)?;
        let mut send = async |messages: Vec<Value>| {
            let body = Value::from(messages);
            let answer = client.send_json(Method::POST, &path, &body).await?;
            answer.success()?.json()
        };
        let mut sequences: Vec<Value> = Vec::new();
        let mut sent = |answer: Value| {
            let messages = answer["messages"].as_array().cloned();
            sequences.extend(messages.unwrap_or_default());
        };
        match &self.message {
            Some(text) => sent(send(vec![self.message_of(text)]).await?),
            None => {
                let mut batch = Vec::with_capacity(BATCH);
                for line in stdin().lock().lines() {
                    batch.push(self.message_of(&line?));
                    if batch.len() == BATCH {
                        sent(send(std::mem::take(&mut batch)).await?);
                    }
                }
                if !batch.is_empty() {
                    sent(send(batch).await?);
                }
            }
        }
        let count = sequences.len();
        let answer = json!({"sent": count, "messages": sequences});
        self.ask.tell(&answer, || format!("sent {count}"))
    }

    /// What is JSON stays JSON; anything else is bytes.
    fn message_of(&self, text: &str) -> Value {
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
        let more = [
            ("id", &self.id),
            ("session", &self.session),
            ("schedule_at", &self.schedule_at),
            ("time_to_live", &self.time_to_live),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                message.insert(name.into(), value.clone().into());
            }
        }
        message.into()
    }
}

#[derive(clap::Args)]
pub struct Receive {
    queue: String,
    /// Messages, at most
    #[arg(long, default_value_t = 1)]
    max: u32,
    /// When there is nothing, wait this long for something
    #[arg(long, default_value = "0s")]
    wait: String,
    /// They are gone once received, whatever happens
    #[arg(long, conflicts_with = "complete")]
    delete: bool,
    /// Lock tokens of messages received before, which are done with
    #[arg(long, value_name = "TOKEN", num_args = 1..)]
    completed: Vec<String>,
    /// Lock tokens of messages received before, to be given back
    #[arg(long, value_name = "TOKEN", num_args = 1..)]
    abandoned: Vec<String>,
    /// Complete them after they are printed
    #[arg(long)]
    complete: bool,
    /// The dead letters instead
    #[arg(long)]
    dead_letters: bool,
    /// From this session, which is accepted for it and kept until its lock runs out
    #[arg(long, conflicts_with = "dead_letters")]
    session: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

impl Receive {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let mode = match self.delete {
            true => "delete",
            false => "lock",
        };
        let mut query = format!("?max={}&wait={}&mode={mode}", self.max, self.wait);
        if let Some(session) = &self.session {
            let name = percent(session);
            let accept = path(&self.queue, false, "sessions/accept");
            let accept = format!("{accept}?session={name}&wait={}", self.wait);
            let accepted = self.ask.post(&accept, &json!({})).await?;
            let token = accepted["token"].as_str().unwrap_or_default();
            query.push_str(&format!("&session={name}&session_token={token}"));
        }
        let receive = path(&self.queue, self.dead_letters, "receive") + &query;
        let handed_in = json!({"complete": self.completed, "abandon": self.abandoned});
        let got = self.ask.post(&receive, &handed_in).await?;
        print(&got)?;
        let tokens = got["messages"].as_array().into_iter().flatten();
        let tokens: Vec<&Value> = tokens.map(|message| &message["token"]).collect();
        if self.complete && !tokens.is_empty() {
            let complete = path(&self.queue, self.dead_letters, "complete");
            self.ask.post(&complete, &json!({"tokens": tokens})).await?;
        }
        Ok(complain(&got))
    }
}

fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let each = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(each).collect()
}

/// A line each.
fn print(answer: &Value) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    for message in answer["messages"].as_array().into_iter().flatten() {
        writeln!(out, "{message}")?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub struct Peek {
    queue: String,
    /// From this number on
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Messages, at most
    #[arg(long, default_value_t = 100)]
    max: u32,
    /// The dead letters instead
    #[arg(long)]
    dead_letters: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Peek {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let messages = path(&self.queue, self.dead_letters, "messages");
        let query = format!("?from={}&max={}", self.from, self.max);
        print(&self.ask.get(&(messages + &query)).await?)?;
        Ok(Ending::Well)
    }
}

#[derive(clap::Args)]
pub struct Deferred {
    queue: String,
    #[arg(required = true)]
    sequences: Vec<u64>,
    #[command(flatten)]
    ask: Ask,
}

impl Deferred {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let body = json!({"sequences": self.sequences});
        let path = path(&self.queue, false, "deferred");
        print(&self.ask.post(&path, &body).await?)?;
        Ok(Ending::Well)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_session_of_any_name_can_be_asked_for() {
        assert_eq!(super::percent("a b&c"), "a%20b%26c");
    }
}
