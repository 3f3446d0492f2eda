//! `highwater hub send`: one event, or files of events.
//!
//! A request without a response is retried, so an event may be stored twice when the connection is lost between the
//! append and the response (at least once). 429, 503 and 507 are retried too; other error statuses are not.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_retry::Backoff;
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::line_batches::{BatchLimits, LineBatch, read_batches};
use crate::client::{Client, HttpResponse};
use crate::exit::ExitStatus;
use crate::node_args::{NodeArgs, text};

#[derive(clap::Args)]
pub(crate) struct Send {
    hub: String,
    /// One event, sent as is; without it, JSON lines are read
    event: Option<String>,
    /// Files of JSON lines; `-` is standard input, which is the default
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "event")]
    files: Vec<PathBuf>,
    /// The partition key of all events: they go to one partition
    #[arg(long, conflicts_with = "partition")]
    partition_key: Option<String>,
    /// The partition of all events
    #[arg(long)]
    partition: Option<u32>,
    /// Concurrent requests; with 1 the order of the lines is kept
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    connections: u64,
    /// Maximum number of events in a request
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch: u64,
    /// Maximum number of retries of a request
    #[arg(long, default_value_t = 10)]
    retries: u32,
    #[command(flatten)]
    node: NodeArgs,
}

/// The largest request body, well below the limit of a node.
const BODY_BYTES: usize = 256 << 10;

/// Upper bound for `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

const BACKOFF: Backoff = Backoff::Exponential {
    first: Duration::from_millis(100),
    cap: Duration::from_millis(6400),
};

impl Send {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        match &self.event {
            Some(event) => self.send_one(event).await,
            None => self.send_lines().await,
        }
    }

    async fn send_one(&self, event: &str) -> anyhow::Result<ExitStatus> {
        let mut sender = self.sender("application/json")?;
        if serde_json::from_str::<serde::de::IgnoredAny>(event).is_err()
            || event.trim_start().starts_with('[')
        {
            sender.content_type = "text/plain";
        }
        let answer = sender.send(Bytes::from(event.to_owned())).await?.json()?;
        self.node.print(&answer, || {
            let (partition, offset) = (&answer["partition"], &answer["offset"]);
            let enqueued = text(&answer, "enqueued");
            format!("partition {partition} offset {offset} at {enqueued}")
        })
    }

    async fn send_lines(&self) -> anyhow::Result<ExitStatus> {
        let limits = BatchLimits {
            bytes: BODY_BYTES,
            events: self.batch,
        };
        let batches = Arc::new(Mutex::new(read_batches(self.files.clone(), limits)));
        let progress = progress();
        let mut tasks = JoinSet::new();
        for _ in 0..self.connections {
            let sender = self.sender("application/x-ndjson")?;
            tasks.spawn(sender.send_all(batches.clone(), progress.clone()));
        }
        let mut total = SentTotal::default();
        while let Some(sent) = tasks.join_next().await {
            // The first failure drops the other tasks, so that no line after it is sent.
            let sent = sent??;
            total.events += sent.events;
            total.bytes += sent.bytes;
        }
        progress.finish_and_clear();
        let SentTotal { events, bytes } = total;
        let summary = json!({"events": events, "bytes": bytes});
        self.node
            .print(&summary, || format!("sent {events} events, {bytes} bytes"))
    }

    fn sender(&self, content_type: &'static str) -> anyhow::Result<Sender> {
        Ok(Sender {
            client: self.node.client()?,
            path: match self.partition {
                None => format!("/hubs/{}/messages", self.hub),
                Some(partition) => format!("/hubs/{}/partitions/{partition}/messages", self.hub),
            },
            key: self.partition_key.clone(),
            content_type,
            retries: self.retries,
        })
    }
}

#[derive(Default)]
struct SentTotal {
    events: u64,
    bytes: u64,
}

/// The batches that all connections take from.
type SharedBatches = Arc<Mutex<mpsc::Receiver<anyhow::Result<LineBatch>>>>;

struct Sender {
    client: Client,
    path: String,
    key: Option<String>,
    content_type: &'static str,
    retries: u32,
}

impl Sender {
    /// Sends batches until there are no more.
    async fn send_all(
        mut self,
        batches: SharedBatches,
        progress: ProgressBar,
    ) -> anyhow::Result<SentTotal> {
        let mut total = SentTotal::default();
        loop {
            let next = batches.lock().await.recv().await;
            let Some(batch) = next else {
                return Ok(total);
            };
            let LineBatch { body, events } = batch?;
            total.bytes += body.len() as u64;
            self.send(body).await?;
            progress.inc(events);
            total.events += events;
        }
    }

    /// Sends a body, with retries.
    async fn send(&mut self, body: Bytes) -> anyhow::Result<HttpResponse> {
        let mut retries = 0;
        loop {
            let mut headers = vec![("content-type", self.content_type)];
            if let Some(key) = &self.key {
                headers.push(("x-partition-key", key));
            }
            let sent = self
                .client
                .request(Method::POST, &self.path, &headers, body.clone())
                .await;
            let mut wait = BACKOFF.after(retries + 1);
            let error = match sent {
                Ok(answer) if matches!(answer.status, 429 | 503 | 507) => {
                    wait = wait.max(answer.retry_after().min(RETRY_AFTER_MAX));
                    answer.into_error().into()
                }
                Ok(answer) => return Ok(answer.success()?),
                Err(error) => error,
            };
            if retries == self.retries {
                return Err(error);
            }
            tracing::debug!(%error, ?wait, "retrying a request");
            tokio::time::sleep(wait).await;
            retries += 1;
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
