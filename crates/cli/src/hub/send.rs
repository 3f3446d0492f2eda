//! `highwater hub send`: one event, or files of them.
//!
//! What the server did not answer for is sent again, so an event may be stored twice when a
//! connection is lost between the append and the answer (at least once). What it has no room for now is
//! sent again later; what it refused is not.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::lines::{Limits, Pack, packs};
use crate::ask::Ask;
use crate::client::{Answer, Client};
use crate::exit::Ending;

#[derive(clap::Args)]
pub struct Send {
    hub: String,
    /// One event, sent as it is; without it JSON lines are read
    event: Option<String>,
    /// Files of JSON lines; `-` is standard input, which is also read when there are none
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "event")]
    files: Vec<PathBuf>,
    /// The key of all events: they go to one partition
    #[arg(long, conflicts_with = "partition")]
    partition_key: Option<String>,
    /// The partition of all events
    #[arg(long)]
    partition: Option<u32>,
    /// Requests under way at a time; with 1 the order of the lines is kept
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    connections: u64,
    /// Events in a request, at most
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch: u64,
    /// How often a request is sent again before giving up
    #[arg(long, default_value_t = 10)]
    retries: u32,
    #[command(flatten)]
    ask: Ask,
}

/// The largest body that is put together, well below what a server takes.
const BODY_BYTES: usize = 256 << 10;

/// However long a server asks us to wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

impl Send {
    pub async fn run(self) -> anyhow::Result<Ending> {
        match &self.event {
            Some(event) => self.one(event).await,
            None => self.many().await,
        }
    }

    async fn one(&self, event: &str) -> anyhow::Result<Ending> {
        let mut sender = self.sender("application/json")?;
        if serde_json::from_str::<serde::de::IgnoredAny>(event).is_err()
            || event.trim_start().starts_with('[')
        {
            sender.kind = "text/plain";
        }
        let answer = sender.send(Bytes::from(event.to_owned())).await?.json()?;
        match self.ask.json {
            true => writeln!(stdout(), "{answer}")?,
            false => writeln!(
                stdout(),
                "partition {} offset {} at {}",
                answer["partition"],
                answer["offset"],
                answer["enqueued"].as_str().unwrap_or_default(),
            )?,
        }
        Ok(Ending::Well)
    }

    async fn many(&self) -> anyhow::Result<Ending> {
        let limits = Limits {
            bytes: BODY_BYTES,
            events: self.batch,
        };
        let packs = Arc::new(Mutex::new(packs(self.files.clone(), limits)));
        let progress = progress();
        let mut tasks = JoinSet::new();
        for _ in 0..self.connections {
            let sender = self.sender("application/x-ndjson")?;
            tasks.spawn(drain(sender, packs.clone(), progress.clone()));
        }
        let mut total = (0, 0);
        while let Some(done) = tasks.join_next().await {
            // The first failure ends the others, so that no line after it is sent.
            let (events, bytes) = done??;
            total = (total.0 + events, total.1 + bytes);
        }
        progress.finish_and_clear();
        match self.ask.json {
            true => writeln!(stdout(), "{}", json!({"events": total.0, "bytes": total.1}))?,
            false => writeln!(stdout(), "sent {} events, {} bytes", total.0, total.1)?,
        }
        Ok(Ending::Well)
    }

    fn sender(&self, kind: &'static str) -> anyhow::Result<Sender> {
        Ok(Sender {
            client: Client::new(&self.ask.server)?,
            path: match self.partition {
                None => format!("/hubs/{}/messages", self.hub),
                Some(partition) => format!("/hubs/{}/partitions/{partition}/messages", self.hub),
            },
            key: self.partition_key.clone(),
            kind,
            retries: self.retries,
        })
    }
}

/// Sends packs until there are no more; answers with events and bytes.
async fn drain(
    mut sender: Sender,
    packs: Arc<Mutex<mpsc::Receiver<anyhow::Result<Pack>>>>,
    progress: ProgressBar,
) -> anyhow::Result<(u64, u64)> {
    let mut total = (0, 0);
    loop {
        let next = packs.lock().await.recv().await;
        let Some(pack) = next else {
            return Ok(total);
        };
        let pack = pack?;
        let bytes = pack.body.len() as u64;
        sender.send(pack.body).await?;
        progress.inc(pack.events);
        total = (total.0 + pack.events, total.1 + bytes);
    }
}

struct Sender {
    client: Client,
    path: String,
    key: Option<String>,
    kind: &'static str,
    retries: u32,
}

impl Sender {
    /// Sends until the server has answered for good.
    async fn send(&mut self, body: Bytes) -> anyhow::Result<Answer> {
        let mut tries = 0;
        loop {
            let mut headers = vec![("content-type", self.kind)];
            if let Some(key) = &self.key {
                headers.push(("x-partition-key", key));
            }
            let sent = self
                .client
                .request(Method::POST, &self.path, &headers, body.clone())
                .await;
            let mut wait = Duration::from_millis(100 << tries.min(6));
            let error = match sent {
                Ok(answer) if matches!(answer.status, 429 | 503 | 507) => {
                    wait = wait.max(answer.retry_after().min(RETRY_AFTER_MAX));
                    answer.into_error().into()
                }
                Ok(answer) => return Ok(answer.success()?),
                Err(error) => error,
            };
            if tries == self.retries {
                return Err(error);
            }
            tracing::debug!(%error, ?wait, "sending again");
            tokio::time::sleep(wait).await;
            tries += 1;
        }
    }
}

fn progress() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {human_pos} events, {per_sec}, {elapsed}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}
