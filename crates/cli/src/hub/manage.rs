//! `highwater hub grow`, `set` and `trim`: hubs changed while they are in use.

use std::io::{Write, stdout};

use hyper::Method;
use serde_json::{Value, json};

use super::{confirmed, kept};
use crate::ask::Ask;
use crate::client::{Client, Server};
use crate::exit::{BadRequest, Ending};

#[derive(clap::Args)]
pub struct Grow {
    name: String,
    /// How many it is to have; never fewer than it has
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
pub struct Set {
    name: String,
    /// How long events are kept at least, such as 12h or 7d, or `forever`
    #[arg(long)]
    retention: Option<String>,
    /// How much of a partition is kept at least, in bytes, or `unlimited`
    #[arg(long, value_parser = bytes)]
    retention_bytes: Option<Value>,
    /// What retention does: delete, or compact to the last event of each key
    #[arg(long, value_parser = ["delete", "compact"])]
    cleanup: Option<String>,
    /// The largest batch taken, in bytes
    #[arg(long)]
    batch_bytes_max: Option<u32>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
pub struct Trim {
    name: String,
    partition: u32,
    /// The first offset to keep, or a time such as 2026-01-01T00:00:00Z, or `latest` to keep nothing
    #[arg(long)]
    before: String,
    /// Do not ask for the name again
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    ask: Ask,
}

fn bytes(text: &str) -> Result<Value, String> {
    match text {
        "unlimited" => Ok(Value::Null),
        _ => (text.parse::<u64>().map(Value::from))
            .map_err(|_| "write a number of bytes, or unlimited".to_owned()),
    }
}

impl Grow {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let body = json!({"partitions": self.partitions});
        let hub = change(&self.ask.server, &self.name, &body).await?;
        match self.ask.json {
            true => writeln!(stdout(), "{hub}")?,
            false => writeln!(
                stdout(),
                "hub {} with {} partitions",
                self.name,
                hub["partitions"]
            )?,
        }
        Ok(Ending::Well)
    }
}

impl Set {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let mut body = serde_json::Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            body.extend(value.map(|value| (name.to_owned(), value)));
        };
        set("retention", self.retention.map(Value::from));
        set("retention_bytes", self.retention_bytes);
        set("cleanup", self.cleanup.map(Value::from));
        set("batch_bytes_max", self.batch_bytes_max.map(Value::from));
        if body.is_empty() {
            let what =
                "say what to set: --retention, --retention-bytes, --cleanup or --batch-bytes-max";
            return Err(BadRequest(what.into()).into());
        }
        let hub = change(&self.ask.server, &self.name, &body.into()).await?;
        match self.ask.json {
            true => writeln!(stdout(), "{hub}")?,
            false => writeln!(
                stdout(),
                "hub {}: {}, kept {}",
                self.name,
                hub["cleanup"].as_str().unwrap_or_default(),
                kept(&hub)
            )?,
        }
        Ok(Ending::Well)
    }
}

async fn change(server: &Server, name: &str, body: &Value) -> anyhow::Result<Value> {
    let path = format!("/api/hubs/{name}");
    let mut client = Client::new(server)?;
    let answer = client.send_json(Method::PATCH, &path, body).await?;
    answer.success()?.json()
}

impl Trim {
    pub async fn run(self) -> anyhow::Result<Ending> {
        let what = format!(
            "the events of partition {} of hub {} before {}",
            self.partition, self.name, self.before
        );
        if !self.yes && !confirmed(&what, &self.name)? {
            eprintln!("nothing was deleted");
            return Ok(Ending::Failed);
        }
        let path = format!("/api/hubs/{}/partitions/{}/trim", self.name, self.partition);
        let body = json!({"before": self.before});
        let answer = Client::new(&self.ask.server)?
            .send_json(Method::POST, &path, &body)
            .await?;
        let trimmed = answer.success()?.json()?;
        match self.ask.json {
            true => writeln!(stdout(), "{trimmed}")?,
            false => writeln!(
                stdout(),
                "partition {} of hub {} starts at {}",
                self.partition,
                self.name,
                trimmed["start"]
            )?,
        }
        Ok(Ending::Well)
    }
}
