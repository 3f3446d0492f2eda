//! `highwater dlq`: lists, shows, replays and purges dead letters.

use std::io::Write;

use serde_json::{Value, json};

use crate::client::percent_encode;
use crate::exit::ExitStatus;
use crate::node_args::{Confirmation, NodeArgs, given, items, text};
use crate::runtime::block_on;

#[derive(clap::Subcommand)]
pub(crate) enum Dlq {
    /// Count the dead letters of every processor, or list those of one
    List(List),
    /// Show a dead letter: the event and every failed attempt
    Show(Show),
    /// Deliver dead letters again, to the handler that failed and to no other
    Replay(Replay),
    /// Delete dead letters
    Purge(Purge),
}

/// Selects dead letters; without a condition, all of them.
#[derive(clap::Args, serde::Serialize)]
struct DeadLetterFilter {
    /// The id of one event, such as orders/0@17
    #[arg(long)]
    id: Option<String>,
    /// Dead-lettered at this time or later, such as 2026-01-01T00:00:00Z
    #[arg(long)]
    from: Option<String>,
    /// Dead-lettered before this time
    #[arg(long)]
    until: Option<String>,
    /// The error contains this text
    #[arg(long)]
    reason: Option<String>,
    /// The key of the event
    #[arg(long)]
    #[serde(rename = "key")]
    event_key: Option<String>,
}

impl DeadLetterFilter {
    fn query(&self) -> String {
        let field = |(name, value): (&String, &Value)| {
            let value = value.as_str().unwrap_or_default();
            format!("&{name}={}", percent_encode(value))
        };
        given(self).iter().map(field).collect()
    }
}

#[derive(clap::Args)]
pub(crate) struct List {
    processor: Option<String>,
    #[command(flatten)]
    filter: DeadLetterFilter,
    /// List at most this many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    max: u64,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct Show {
    processor: String,
    /// The id of the event, such as orders/0@17
    id: String,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct Replay {
    processor: String,
    #[command(flatten)]
    filter: DeadLetterFilter,
    /// Only list the dead letters that would be replayed
    #[arg(long)]
    dry_run: bool,
    /// Also replay those that have reached the limit of replays
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(clap::Args)]
pub(crate) struct Purge {
    processor: String,
    #[command(flatten)]
    filter: DeadLetterFilter,
    /// Only list the dead letters that would be deleted
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    node: NodeArgs,
}

impl Dlq {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(async {
            match self {
                Dlq::List(command) => command.run().await,
                Dlq::Show(command) => command.run().await,
                Dlq::Replay(command) => command.run().await,
                Dlq::Purge(command) => command.run().await,
            }
        })
    }
}

impl List {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let Some(processor) = &self.processor else {
            return self.count().await;
        };
        let mut letters = Vec::new();
        let mut after = String::new();
        while (letters.len() as u64) < self.max {
            let max = (self.max - letters.len() as u64).min(1000);
            let query = format!("max={max}{after}{}", self.filter.query());
            let path = format!("{}?{query}", path(processor));
            let mut page = self.node.get(&path).await?;
            if let Value::Array(found) = page["letters"].take() {
                letters.extend(found);
            }
            match page["next"].as_i64() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        let letters = Value::from(letters);
        self.node.print_with(&letters, |out| {
            for letter in items(&letters) {
                writeln!(
                    out,
                    "{:24} {}  {:>3} tries  {}",
                    text(letter, "id"),
                    text(letter, "dead"),
                    letter["tries"].to_string(),
                    text(letter, "reason")
                )?;
            }
            Ok(())
        })
    }

    async fn count(&self) -> anyhow::Result<ExitStatus> {
        let counts = self.node.get("/api/dead-letters").await?["dead_letters"].take();
        self.node.print_with(&counts, |out| {
            for count in items(&counts) {
                writeln!(
                    out,
                    "{:24} {:>8} on hub {}",
                    text(count, "processor"),
                    count["letters"].to_string(),
                    text(count, "hub")
                )?;
            }
            Ok(())
        })
    }
}

impl Show {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let path = format!("{}/{}", path(&self.processor), percent_encode(&self.id));
        let letter = self.node.get(&path).await?;
        self.node.print_with(&letter, |out| {
            writeln!(
                out,
                "{} enqueued {}, dead-lettered {}, replayed {} times",
                text(&letter, "id"),
                text(&letter, "enqueued"),
                text(&letter, "dead"),
                letter["replays"]
            )?;
            for attempt in items(&letter["attempts"]) {
                let at = attempt["at"].as_str().unwrap_or("not tried");
                writeln!(
                    out,
                    "{:>4} {at}  {}",
                    attempt["number"].to_string(),
                    text(attempt, "reason")
                )?;
            }
            Ok(writeln!(out, "{}", letter["event"])?)
        })
    }
}

impl Replay {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let mut body = given(&self.filter);
        body.insert("dry_run".into(), self.dry_run.into());
        body.insert("force".into(), self.force.into());
        let path = format!("{}/replay", path(&self.processor));
        let replayed = post_all_pages(&self.node, &path, body.into()).await?;
        let failed = items(&replayed["failed"]).count();
        self.node.print_with(&replayed, |out| {
            if self.dry_run {
                return print_ids(out, &replayed["would_replay"]);
            }
            for failure in items(&replayed["failed"]) {
                writeln!(
                    out,
                    "{:24} {}",
                    text(failure, "id"),
                    text(failure, "reason")
                )?;
            }
            Ok(writeln!(
                out,
                "{} handled, {failed} failed again",
                replayed["handled"]
            )?)
        })?;
        Ok(ExitStatus::failure_if(failed > 0))
    }
}

impl Purge {
    async fn run(self) -> anyhow::Result<ExitStatus> {
        let subject = format!("dead letters of {}", self.processor);
        if !self.dry_run && !self.confirmation.confirm(&subject, &self.processor)? {
            return Ok(ExitStatus::Failure);
        }
        let mut body = given(&self.filter);
        body.insert("dry_run".into(), self.dry_run.into());
        let path = format!("{}/purge", path(&self.processor));
        let purged = post_all_pages(&self.node, &path, body.into()).await?;
        self.node.print_with(&purged, |out| match self.dry_run {
            true => print_ids(out, &purged["would_purge"]),
            false => Ok(writeln!(out, "{} purged", purged["purged"])?),
        })
    }
}

fn path(processor: &str) -> String {
    format!("/api/dead-letters/{}", percent_encode(processor))
}

fn print_ids(out: &mut impl Write, ids: &Value) -> anyhow::Result<()> {
    items(ids).try_for_each(|id| Ok(writeln!(out, "{}", id.as_str().unwrap_or_default())?))
}

/// Repeats a request until the last page and adds up the answers: one request handles a bounded number of dead letters.
async fn post_all_pages(node: &NodeArgs, path: &str, mut body: Value) -> anyhow::Result<Value> {
    let mut sum = json!({});
    loop {
        let page = node.post(path, &body).await?;
        for (name, value) in page.as_object().into_iter().flatten() {
            add(&mut sum[name], value);
        }
        match page["next"].as_i64() {
            Some(next) => body["after"] = next.into(),
            None => break,
        }
    }
    if let Some(sum) = sum.as_object_mut() {
        sum.remove("more");
        sum.remove("next");
    }
    Ok(sum)
}

/// Adds numbers, appends lists and replaces anything else.
fn add(sum: &mut Value, value: &Value) {
    match (&mut *sum, value) {
        (Value::Array(sum), Value::Array(more)) => sum.extend(more.iter().cloned()),
        (Value::Number(_), Value::Number(_)) => {
            *sum = (sum.as_u64().unwrap_or(0) + value.as_u64().unwrap_or(0)).into();
        }
        _ => *sum = value.clone(),
    }
}
