//! Queues made, listed, changed, emptied and deleted.

use std::io::{Write, stdout};

use bytes::Bytes;
use hyper::Method;
use serde_json::{Map, Value, json};

use super::path;
use crate::ask::Ask;
use crate::client::Client;
use crate::exit::{BadRequest, Ending};
use crate::hub::confirmed;

/// What can be set; what is left out has its default, or stays.
#[derive(clap::Args)]
struct Settings {
    /// How long a received message stays with its receiver, such as 60s
    #[arg(long)]
    lock: Option<String>,
    /// Deliveries after which a message that was not settled becomes a dead letter
    #[arg(long)]
    deliveries_max: Option<u32>,
    /// How long a message is worth delivering, such as 7d, or `forever`
    #[arg(long)]
    time_to_live: Option<String>,
    /// Keep messages that outlived their time as dead letters
    #[arg(long)]
    dead_letter_expired: Option<bool>,
    /// Drop a message whose id was seen within this time, such as 10m, or `off`
    #[arg(long)]
    duplicates_within: Option<String>,
    /// Bytes of messages that the queue holds
    #[arg(long)]
    bytes_max: Option<u64>,
    /// The largest message, in bytes
    #[arg(long)]
    message_bytes_max: Option<u32>,
}

impl Settings {
    fn body(self) -> Map<String, Value> {
        let settings = [
            ("lock", self.lock.map(Value::from)),
            ("deliveries_max", self.deliveries_max.map(Value::from)),
            ("time_to_live", self.time_to_live.map(Value::from)),
            (
                "dead_letter_expired",
                self.dead_letter_expired.map(Value::from),
            ),
            ("duplicates_within", self.duplicates_within.map(Value::from)),
            ("bytes_max", self.bytes_max.map(Value::from)),
            ("message_bytes_max", self.message_bytes_max.map(Value::from)),
        ];
        let given = settings
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

#[derive(clap::Args)]
pub struct Create {
    name: String,
    /// Messages belong to sessions, each received in order by one receiver at a time
    #[arg(long)]
    sessions: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    ask: Ask,
}

impl Create {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let mut body = self.settings.body();
        body.insert("name".into(), self.name.clone().into());
        body.insert("sessions".into(), self.sessions.into());
        let queue = self.ask.post("/api/queues", &body.into()).await?;
        self.ask.tell(&queue, || format!("queue {}", self.name))
    }
}

#[derive(clap::Args)]
pub struct Set {
    name: String,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    ask: Ask,
}

impl Set {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let body = self.settings.body();
        if body.is_empty() {
            let what = "say what to set, such as --lock 30s; --help lists it";
            return Err(BadRequest(what.into()).into());
        }
        let path = format!("/api/queues/{}", self.name);
        let mut client = Client::new(&self.ask.server)?;
        let answer = client.send_json(Method::PATCH, &path, &body.into()).await?;
        let queue = answer.success()?.json()?;
        self.ask
            .tell(&queue, || format!("queue {} is changed", self.name))
    }
}

#[derive(clap::Args)]
pub struct List {
    #[command(flatten)]
    ask: Ask,
}

/// The counts of a queue, in columns.
const COUNTS: [&str; 5] = ["active", "locked", "scheduled", "deferred", "dead_letters"];

impl List {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let queues = self.ask.get("/api/queues").await?["queues"].take();
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{queues}")?;
            return Ok(Ending::Well);
        }
        let queues = queues.as_array().cloned().unwrap_or_default();
        if queues.is_empty() {
            eprintln!("there are no queues; make one with: highwater queue create NAME");
            return Ok(Ending::Well);
        }
        let head = COUNTS.map(|name| format!("{name:>12}"));
        writeln!(out, "{:24} {}", "queue", head.join(" "))?;
        for queue in queues {
            let counts = COUNTS.map(|name| format!("{:>12}", queue[name].to_string()));
            let name = queue["name"].as_str().unwrap_or_default();
            writeln!(out, "{name:24} {}", counts.join(" "))?;
        }
        Ok(Ending::Well)
    }
}

#[derive(clap::Args)]
pub struct Describe {
    name: String,
    #[command(flatten)]
    ask: Ask,
}

impl Describe {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let queue = self.ask.get(&format!("/api/queues/{}", self.name)).await?;
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{queue}")?;
            return Ok(Ending::Well);
        }
        for (name, value) in queue.as_object().into_iter().flatten() {
            match value.as_object() {
                None => writeln!(out, "{name:28} {value}")?,
                Some(parts) => {
                    for (part, value) in parts {
                        writeln!(out, "{:28} {value}", format!("{part}, {name}"))?;
                    }
                }
            }
        }
        Ok(Ending::Well)
    }
}

#[derive(clap::Args)]
pub struct Purge {
    name: String,
    /// The dead letters instead
    #[arg(long)]
    dead_letters: bool,
    /// Do not ask for the name again
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Purge {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let kind = match self.dead_letters {
            true => "dead letters",
            false => "messages",
        };
        let what = format!("all {kind} of queue {}", self.name);
        if !self.yes && !confirmed(&what, &self.name)? {
            eprintln!("nothing was removed");
            return Ok(Ending::Failed);
        }
        let path = path(&self.name, self.dead_letters, "purge");
        let gone = self.ask.post(&path, &json!({})).await?;
        self.ask
            .tell(&gone, || format!("removed {} {kind}", gone["removed"]))
    }
}

#[derive(clap::Args)]
pub struct Delete {
    name: String,
    /// Do not ask for the name again
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Delete {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let what = format!("queue {} and every message in it", self.name);
        if !self.yes && !confirmed(&what, &self.name)? {
            eprintln!("nothing was deleted");
            return Ok(Ending::Failed);
        }
        let path = format!("/api/queues/{}", self.name);
        let mut client = Client::new(&self.ask.server)?;
        let deleted = client.request(Method::DELETE, &path, &[], Bytes::new());
        deleted.await?.success()?;
        let answer = json!({"deleted": self.name});
        self.ask
            .tell(&answer, || format!("deleted queue {}", self.name))
    }
}
