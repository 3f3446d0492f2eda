//! `highwater hub`: hubs of a running server, over HTTP.

mod groups;
mod lines;
mod manage;
mod send;
mod tail;

use std::io::{Write, stdout};

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::block_on::block_on;
use crate::client::Client;
use crate::exit::Ending;

#[derive(clap::Args)]
pub struct Hub {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Make a hub
    Create(Create),
    /// List the hubs
    List(List),
    /// Show a hub, its partitions and what they hold
    Describe(Named),
    /// Send events: one given here, or JSON lines from files or standard input
    Send(send::Send),
    /// Print events, and with -f go on printing those that come
    Tail(tail::Tail),
    /// Give a hub more partitions
    Grow(manage::Grow),
    /// Change how long events are kept, and how
    Set(manage::Set),
    /// Forget the beginning of a partition
    Trim(manage::Trim),
    /// Delete a hub and everything in it
    Delete(Delete),
    /// List consumer groups, show how far one is behind, or delete one
    Groups(groups::Groups),
}

#[derive(clap::Args)]
struct Create {
    name: String,
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    /// How long events are kept at least, such as 12h or 7d, or `forever`
    #[arg(long, default_value = "7d")]
    retention: String,
    /// How much of a partition is kept at least, in bytes
    #[arg(long)]
    retention_bytes: Option<u64>,
    /// What retention does: delete, or compact to the last event of each key
    #[arg(long, default_value = "delete", value_parser = ["delete", "compact"])]
    cleanup: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Named {
    name: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Delete {
    name: String,
    /// Do not ask for the name again
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Hub {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(async {
            match self.what {
                What::Create(command) => command.run().await,
                What::List(command) => command.run().await,
                What::Describe(command) => command.run().await,
                What::Send(command) => command.run().await,
                What::Tail(command) => command.run().await,
                What::Grow(command) => command.run().await,
                What::Set(command) => command.run().await,
                What::Trim(command) => command.run().await,
                What::Delete(command) => command.run().await,
                What::Groups(command) => command.run().await,
            }
        })
    }
}

impl Create {
    async fn run(self) -> anyhow::Result<Ending> {
        let mut body = json!({
            "name": self.name, "partitions": self.partitions,
            "retention": self.retention, "cleanup": self.cleanup,
        });
        if let Some(bytes) = self.retention_bytes {
            body["retention_bytes"] = bytes.into();
        }
        let hub = self.ask.post("/api/hubs", &body).await?;
        match self.ask.json {
            true => writeln!(stdout(), "{hub}")?,
            false => writeln!(
                stdout(),
                "hub {} with {} partitions",
                self.name,
                self.partitions
            )?,
        }
        Ok(Ending::Well)
    }
}

impl List {
    async fn run(self) -> anyhow::Result<Ending> {
        let mut answer = self.ask.get("/api/hubs").await?;
        let mut listed = |name: &str| match answer[name].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let mut hubs = listed("hubs");
        hubs.extend(listed("sharded"));
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{}", Value::from(hubs))?;
            return Ok(Ending::Well);
        }
        if hubs.is_empty() {
            eprintln!("there are no hubs; make one with: highwater hub create NAME");
        }
        for hub in hubs {
            let name = hub["name"].as_str().unwrap_or_default();
            match members(&hub) {
                Some(members) => writeln!(out, "{name:24} sharded over {}", members.join(", "))?,
                None => writeln!(
                    out,
                    "{name:24} {:>5} partitions, kept {}",
                    hub["partitions"].to_string(),
                    kept(&hub)
                )?,
            }
        }
        Ok(Ending::Well)
    }
}

/// The hubs that a name leads to, if it leads to several.
fn members(hub: &Value) -> Option<Vec<&str>> {
    let members = hub["hubs"].as_array()?;
    Some(members.iter().filter_map(Value::as_str).collect())
}

fn kept(hub: &Value) -> String {
    match hub["retention_seconds"].as_u64() {
        None => "forever".into(),
        Some(seconds) => highwater_time::Duration::from_secs(seconds as i64).to_string(),
    }
}

impl Named {
    async fn run(self) -> anyhow::Result<Ending> {
        let hub = self.ask.get(&format!("/api/hubs/{}", self.name)).await?;
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{hub}")?;
            return Ok(Ending::Well);
        }
        if let Some(members) = members(&hub) {
            writeln!(out, "{} is sharded over {}", self.name, members.join(", "))?;
            return Ok(Ending::Well);
        }
        let text = |name: &str| hub[name].as_str().unwrap_or_default().to_owned();
        writeln!(
            out,
            "hub {} made {}, {}, kept {}",
            self.name,
            text("created"),
            text("cleanup"),
            kept(&hub)
        )?;
        writeln!(
            out,
            "{:>9} {:>14} {:>14} {:>14} {:>8}  last event",
            "partition", "start", "end", "bytes", "segments"
        )?;
        for place in hub["places"].as_array().into_iter().flatten() {
            let number = |name: &str| place[name].to_string();
            writeln!(
                out,
                "{:>9} {:>14} {:>14} {:>14} {:>8}  {}",
                number("partition"),
                number("start"),
                number("end"),
                number("bytes"),
                number("segments"),
                place["last"].as_str().unwrap_or("never"),
            )?;
            if let Some(why) = place["stopped"].as_str() {
                writeln!(out, "{:>9} {why}", "")?;
            }
        }
        Ok(Ending::Well)
    }
}

impl Delete {
    async fn run(self) -> anyhow::Result<Ending> {
        let what = format!("hub {} and every event in it", self.name);
        if !self.yes && !confirmed(&what, &self.name)? {
            eprintln!("nothing was deleted");
            return Ok(Ending::Failed);
        }
        let path = format!("/api/hubs/{}", self.name);
        let mut client = Client::new(&self.ask.server)?;
        client
            .request(Method::DELETE, &path, &[], Bytes::new())
            .await?
            .success()?;
        match self.ask.json {
            true => writeln!(stdout(), "{}", json!({"deleted": self.name}))?,
            false => writeln!(stdout(), "deleted hub {}", self.name)?,
        }
        Ok(Ending::Well)
    }
}

pub fn confirmed(what: &str, name: &str) -> anyhow::Result<bool> {
    eprint!("This deletes {what}. Type {name} to go on: ");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim() == name)
}
