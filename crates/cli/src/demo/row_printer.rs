//! Reads the output hubs of the demo's jobs and prints new rows, also after a restart of the demo.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use highwater_env::disk;
use highwater_time::Instant;
use serde_json::{Value, json};

use super::files::JOBS;
use crate::client::{Client, Server};
use crate::write_file::write_file;

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Prints the rows of one job.
pub(super) struct RowPrinter {
    pub job: &'static str,
    pub server: Server,
    /// Holds the offset of the next row to print, so that a restarted demo resumes there. `None`: only new rows are
    /// printed.
    pub position_file: Option<PathBuf>,
    pub json: bool,
    /// All rows are written: the printer ends after the last stored row.
    pub complete: Arc<AtomicBool>,
}

/// Waits until all jobs have written every row up to a time, or failed.
pub(super) async fn wait_until_written(server: &Server, until: Instant) -> anyhow::Result<()> {
    let mut client = Client::new(server)?;
    for job in JOBS {
        let path = format!("/api/jobs/{}", job.name);
        while !is_written(&client.get(&path).await?.success()?.json()?, until) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

fn is_written(status: &Value, until: Instant) -> bool {
    let watermark = status["watermark"].as_str().unwrap_or_default();
    let reached = Instant::parse_iso(watermark.as_bytes()).is_some_and(|time| time >= until);
    let outputs = status["outputs"].as_array();
    let written = outputs.is_some_and(|all| all.iter().all(|output| output["waiting"] == 0));
    (reached && written) || status["state"] == "failed"
}

impl RowPrinter {
    pub(super) fn position_file(folder: &Path, job: &str) -> PathBuf {
        folder.join("printed").join(job)
    }

    /// Prints rows until `complete`.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut client = Client::new(&self.server)?;
        let mut next = self.first_position();
        loop {
            let complete = self.complete.load(Ordering::Acquire);
            let path = format!(
                "/hubs/{}/partitions/0/messages?from={next}&wait=1s",
                self.job
            );
            let page = match client.get(&path).await?.success() {
                Ok(answer) => answer.json()?,
                Err(_) => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
            };
            let messages = page["messages"].as_array().map_or(&[][..], Vec::as_slice);
            for message in messages {
                self.print(&message["value"])?;
            }
            if complete && messages.is_empty() {
                return Ok(());
            }
            if let Some(end) = page["next"].as_i64() {
                next = end.to_string();
                if let Some(file) = self.position_file.as_ref().filter(|_| !messages.is_empty()) {
                    write_file(file, next.as_bytes())?;
                }
            }
        }
    }

    fn first_position(&self) -> String {
        let Some(file) = &self.position_file else {
            return "latest".to_owned();
        };
        let position = disk::read_to_string(file).ok();
        let offset: i64 = position
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0);
        offset.to_string()
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
