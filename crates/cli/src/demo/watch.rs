//! Rows as they come: reads the hubs of the results and prints what is new, also over restarts.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_env::disk;
use serde_json::{Value, json};

use super::files::write;
use crate::client::{Client, Server};

/// Prints the rows of one job.
pub struct Watch {
    pub job: &'static str,
    pub server: Server,
    /// Remembers what was printed, so that a demo that is started again goes on there.
    pub memory: PathBuf,
    pub json: bool,
}

impl Watch {
    pub fn memory_of(folder: &Path, job: &str) -> PathBuf {
        folder.join("printed").join(job)
    }

    /// Until it is dropped.
    pub async fn run(self) -> anyhow::Result<()> {
        let mut client = Client::new(&self.server)?;
        let known = disk::read_to_string(&self.memory).ok();
        let mut next: i64 = known.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        loop {
            let path = format!(
                "/hubs/{}/partitions/0/messages?from={next}&wait=1s",
                self.job
            );
            let page = match client.get(&path).await?.success() {
                Ok(answer) => answer.json()?,
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
            };
            let messages = page["messages"].as_array();
            for message in messages.into_iter().flatten() {
                self.print(&message["value"])?;
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
