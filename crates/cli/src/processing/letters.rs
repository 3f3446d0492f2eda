//! `highwater dlq`: dead letters, listed, shown, given to their handler once more, or purged.

use std::io::{Write, stdout};

use serde_json::{Value, json};

use super::{items, text};
use crate::ask::Ask;
use crate::block_on::block_on;
use crate::client::escape;
use crate::exit::Ending;
use crate::hub::confirmed;

#[derive(clap::Args)]
pub struct Dlq {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Count the dead letters of every processor, or list those of one
    List(List),
    /// Show one: the event, every error and when it was
    Show(Show),
    /// Give them to the handler that failed once more, and to nobody else
    Replay(Replay),
    /// Remove them for good
    Purge(Purge),
}

/// Which letters are meant; all of them if nothing is said.
#[derive(clap::Args)]
struct Which {
    /// The id of one event, such as orders/0@17
    #[arg(long)]
    id: Option<String>,
    /// Set aside at this time or later, such as 2026-01-01T00:00:00Z
    #[arg(long)]
    from: Option<String>,
    /// Set aside before this time
    #[arg(long)]
    until: Option<String>,
    /// An error that contains this text
    #[arg(long)]
    reason: Option<String>,
    /// The key of the event
    #[arg(long)]
    event_key: Option<String>,
}

impl Which {
    fn fields(&self) -> [(&'static str, &Option<String>); 5] {
        [
            ("id", &self.id),
            ("from", &self.from),
            ("until", &self.until),
            ("reason", &self.reason),
            ("key", &self.event_key),
        ]
    }

    fn query(&self) -> String {
        let given = self
            .fields()
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given
            .map(|(name, value)| format!("&{name}={}", escape(value)))
            .collect()
    }

    fn body(&self) -> Value {
        let mut body = json!({});
        for (name, value) in self.fields() {
            if let Some(value) = value {
                body[name] = value.clone().into();
            }
        }
        body
    }
}

#[derive(clap::Args)]
struct List {
    processor: Option<String>,
    #[command(flatten)]
    which: Which,
    /// How many at most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    max: u64,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Show {
    processor: String,
    /// The id of the event, such as orders/0@17
    id: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Replay {
    processor: String,
    #[command(flatten)]
    which: Which,
    /// Only say which it would be
    #[arg(long)]
    dry_run: bool,
    /// Also those that have been replayed as often as the settings allow
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    ask: Ask,
}

#[derive(clap::Args)]
struct Purge {
    processor: String,
    #[command(flatten)]
    which: Which,
    /// Only say which it would be
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for the name again
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Dlq {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(async {
            match self.what {
                What::List(command) => command.run().await,
                What::Show(command) => command.run().await,
                What::Replay(command) => command.run().await,
                What::Purge(command) => command.run().await,
            }
        })
    }
}

impl List {
    async fn run(self) -> anyhow::Result<Ending> {
        let Some(processor) = &self.processor else {
            return self.count().await;
        };
        let mut letters = Vec::new();
        let mut after = String::new();
        while (letters.len() as u64) < self.max {
            let max = (self.max - letters.len() as u64).min(1000);
            let query = format!("max={max}{after}{}", self.which.query());
            let mut page = self
                .ask
                .get(&format!("{}?{query}", path(processor)))
                .await?;
            if let Value::Array(found) = page["letters"].take() {
                letters.extend(found);
            }
            match page["next"].as_i64() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{}", Value::from(letters))?;
            return Ok(Ending::Well);
        }
        for letter in &letters {
            writeln!(
                out,
                "{:24} {}  {:>3} tries  {}",
                text(letter, "id"),
                text(letter, "dead"),
                letter["tries"].to_string(),
                text(letter, "reason")
            )?;
        }
        Ok(Ending::Well)
    }

    async fn count(&self) -> anyhow::Result<Ending> {
        let counts = self.ask.get("/api/dead-letters").await?["dead_letters"].take();
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{counts}")?;
            return Ok(Ending::Well);
        }
        for count in items(&counts) {
            writeln!(
                out,
                "{:24} {:>8} on hub {}",
                text(count, "processor"),
                count["letters"].to_string(),
                text(count, "hub")
            )?;
        }
        Ok(Ending::Well)
    }
}

impl Show {
    async fn run(self) -> anyhow::Result<Ending> {
        let letter = self
            .ask
            .get(&format!("{}/{}", path(&self.processor), escape(&self.id)))
            .await?;
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{letter}")?;
            return Ok(Ending::Well);
        }
        writeln!(
            out,
            "{} taken in {}, set aside {}, replayed {} times",
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
        writeln!(out, "{}", letter["event"])?;
        Ok(Ending::Well)
    }
}

impl Replay {
    async fn run(self) -> anyhow::Result<Ending> {
        let mut body = self.which.body();
        body["dry_run"] = self.dry_run.into();
        body["force"] = self.force.into();
        let path = format!("{}/replay", path(&self.processor));
        let done = all(&self.ask, &path, body).await?;
        let failed = items(&done["failed"]).count();
        if self.ask.json {
            writeln!(stdout(), "{done}")?;
        } else if self.dry_run {
            list(&done["would_replay"])?;
        } else {
            for failure in items(&done["failed"]) {
                writeln!(
                    stdout(),
                    "{:24} {}",
                    text(failure, "id"),
                    text(failure, "reason")
                )?;
            }
            writeln!(
                stdout(),
                "{} handled, {failed} failed again",
                done["handled"]
            )?;
        }
        Ok(if failed > 0 {
            Ending::Failed
        } else {
            Ending::Well
        })
    }
}

impl Purge {
    async fn run(self) -> anyhow::Result<Ending> {
        let what = format!("dead letters of {}", self.processor);
        if !self.yes && !self.dry_run && !confirmed(&what, &self.processor)? {
            eprintln!("nothing was purged");
            return Ok(Ending::Failed);
        }
        let mut body = self.which.body();
        body["dry_run"] = self.dry_run.into();
        let done = all(&self.ask, &format!("{}/purge", path(&self.processor)), body).await?;
        if self.ask.json {
            writeln!(stdout(), "{done}")?;
        } else if self.dry_run {
            list(&done["would_purge"])?;
        } else {
            writeln!(stdout(), "{} purged", done["purged"])?;
        }
        Ok(Ending::Well)
    }
}

fn path(processor: &str) -> String {
    format!("/api/dead-letters/{}", escape(processor))
}

fn list(ids: &Value) -> anyhow::Result<()> {
    for id in items(ids) {
        writeln!(stdout(), "{}", id.as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// Asks again until everything is done, since one request does no more than so much.
async fn all(ask: &Ask, path: &str, mut body: Value) -> anyhow::Result<Value> {
    let mut sum = json!({});
    loop {
        let done = ask.post(path, &body).await?;
        for (name, value) in done.as_object().into_iter().flatten() {
            add(&mut sum[name], value);
        }
        match done["next"].as_i64() {
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

fn add(sum: &mut Value, value: &Value) {
    match (&mut *sum, value) {
        (Value::Array(sum), Value::Array(more)) => sum.extend(more.iter().cloned()),
        (Value::Number(_), Value::Number(_)) => {
            *sum = (sum.as_u64().unwrap_or(0) + value.as_u64().unwrap_or(0)).into();
        }
        _ => *sum = value.clone(),
    }
}
