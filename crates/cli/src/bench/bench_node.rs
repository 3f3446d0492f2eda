//! The node of a benchmark: in this process, on loopback, stopped when the benchmark ends.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use highwater_env::{RealClock, usage};
use highwater_server::config::Sources;
use highwater_server::node::Node;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Client, Server};
use crate::runtime::run_on;

pub(super) struct BenchNode {
    node: Node,
    pub server: Server,
    client: Client,
}

impl BenchNode {
    /// Starts a node with its data in `folder` and some more settings.
    pub(super) async fn start(
        folder: &Path,
        settings: &[(&str, String)],
    ) -> anyhow::Result<BenchNode> {
        let common = [
            ("data", folder.display().to_string()),
            ("http.listen", "127.0.0.1:0".to_owned()),
            ("kafka.listen", "off".to_owned()),
            ("amqp.listen", "off".to_owned()),
        ];
        let flags = common.iter().chain(settings);
        let sources = Sources {
            flags: flags
                .map(|(key, value)| ((*key).to_owned(), value.clone()))
                .collect(),
            ..Sources::default()
        };
        let node = Node::start(sources.load()?.config, Arc::new(RealClock::new())).await?;
        let server = Server::at(node.http_url().context("the node has no HTTP listener")?);
        Ok(BenchNode {
            client: Client::new(&server)?,
            server,
            node,
        })
    }

    pub(super) async fn stop(self) {
        drop(self.client);
        self.node.stop().await;
    }

    pub(super) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.client.get(path).await?.success()?.json()
    }

    /// Appends JSON lines to a partition.
    pub(super) async fn append(
        &mut self,
        hub: &str,
        partition: u64,
        lines: Vec<u8>,
    ) -> anyhow::Result<()> {
        append(&mut self.client, hub, partition, lines).await
    }

    pub(super) async fn create_hub(&mut self, name: &str, partitions: u64) -> anyhow::Result<()> {
        let hub = json!({"name": name, "partitions": partitions});
        let created = self.client.send_json(Method::POST, "/api/hubs", &hub).await;
        created?.success()?;
        Ok(())
    }

    /// Uploads a job and starts it at the beginning of its hubs.
    pub(super) async fn start_job(&mut self, name: &str, file: &str) -> anyhow::Result<()> {
        let job = json!({"files": {"job.toml": file}, "start": "beginning"});
        let path = format!("/api/jobs/{name}");
        let put = self.client.send_json(Method::PUT, &path, &job).await;
        put?.success()?;
        Ok(())
    }

    /// The status of a job; a failed job is an error.
    pub(super) async fn job_status(&mut self, name: &str) -> anyhow::Result<Value> {
        let status = self.get(&format!("/api/jobs/{name}")).await?;
        anyhow::ensure!(status["state"] != "failed", "the job failed: {status}");
        Ok(status)
    }

    /// Stops a job after a final checkpoint.
    pub(super) async fn stop_job(&mut self, name: &str) -> anyhow::Result<Value> {
        let path = format!("/api/jobs/{name}/stop");
        let stopped = self
            .client
            .request(Method::POST, &path, &[], Bytes::new())
            .await;
        stopped?.success()?.json()
    }
}

/// Appends JSON lines to a partition.
pub(super) async fn append(
    client: &mut Client,
    hub: &str,
    partition: u64,
    lines: Vec<u8>,
) -> anyhow::Result<()> {
    let path = format!("/hubs/{hub}/partitions/{partition}/messages");
    let kind = [("content-type", "application/x-ndjson")];
    let answer = client.request(Method::POST, &path, &kind, lines.into());
    answer.await?.success().context("the append failed")?;
    Ok(())
}

/// The CPU seconds of this process so far.
pub(super) fn cpu() -> f64 {
    usage().cpu.unwrap_or_default().as_secs_f64()
}

/// Runs `work` with a new folder and removes the folder afterwards.
pub(super) fn in_new_folder<T>(
    folder: Option<&Path>,
    work: impl AsyncFnOnce(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let name = format!("highwater-bench-{}", std::process::id());
    let folder = folder.map_or_else(|| std::env::temp_dir().join(name), Path::to_owned);
    anyhow::ensure!(!folder.exists(), "{} already exists", folder.display());
    let runtime = tokio::runtime::Runtime::new()?;
    let result = run_on(&runtime, Box::pin(work(&folder)));
    drop(runtime);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    result
}
