//! Rows as they come: reads the hubs of the results and prints what is new, also over restarts.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use highwater_env::disk;
use highwater_time::Instant;
use serde_json::{Value, json};

use super::files::{JOBS, write};
use crate::client::{Client, Server};

/// Between two looks at what does not answer by itself.
const PAUSE: Duration = Duration::from_millis(200);

/// Prints the rows of one job.
pub struct Watch {
    pub job: &'static str,
    pub server: Server,
    /// Remembers what was printed, so that a demo that is started again goes on there.
    pub memory: PathBuf,
    pub json: bool,
    /// No more rows will be written: it ends when it has printed those that are there.
    pub over: Arc<AtomicBool>,
}

/// Until all jobs have written every row up to a time; a job that failed keeps nobody waiting.
pub async fn settled(server: &Server, until: Instant) -> anyhow::Result<()> {
    let mut client = Client::new(server)?;
    for job in JOBS {
        let path = format!("/api/jobs/{}", job.name);
        while !is_settled(&client.get(&path).await?.success()?.json()?, until) {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

fn is_settled(status: &Value, until: Instant) -> bool {
    let watermark = status["watermark"].as_str().unwrap_or_default();
    let reached = Instant::parse_iso(watermark.as_bytes()).is_some_and(|time| time >= until);
    let outputs = status["outputs"].as_array();
    let written = outputs.is_some_and(|all| all.iter().all(|output| output["waiting"] == 0));
    (reached && written) || status["state"] == "failed"
}

impl Watch {
    pub fn memory_of(folder: &Path, job: &str) -> PathBuf {
        folder.join("printed").join(job)
    }

    /// Until all is over, or it is dropped.
    pub async fn run(self) -> anyhow::Result<()> {
        let mut client = Client::new(&self.server)?;
        let known = disk::read_to_string(&self.memory).ok();
        let mut next: i64 = known.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        loop {
            let over = self.over.load(Ordering::Acquire);
            let path = format!(
                "/hubs/{}/partitions/0/messages?from={next}&wait=1s",
                self.job
            );
            let page = match client.get(&path).await?.success() {
                Ok(answer) => answer.json()?,
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let messages = page["messages"].as_array().map_or(&[][..], Vec::as_slice);
            for message in messages {
                self.print(&message["value"])?;
            }
            if over && messages.is_empty() {
                return Ok(());
            }
            if let Some(end) = page["next"].as_i64().filter(|end| *end != next) {
                next = end;
                write(&self.memory, next.to_string().as_bytes())?;
            }
        }
    }

    fn print(&self, row: &Value) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        match self.json {
            true => writeln!(out, "{}", json!({"job": self.job, "row": row}))?,
            false => writeln!(out, "{:8} {row}", self.job)?,
        }
        Ok(out.flush()?)
    }
}
