//! A node of a benchmark's own: in this process, on this machine alone, gone when the benchmark is over.

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

pub struct Local {
    node: Node,
    pub server: Server,
    client: Client,
}

impl Local {
    /// A node that keeps its data in `folder`, with settings of its own.
    pub async fn start(folder: &Path, more: &[(&str, String)]) -> anyhow::Result<Local> {
        let all = [
            ("data", folder.display().to_string()),
            ("http.listen", "127.0.0.1:0".to_owned()),
            ("kafka.listen", "off".to_owned()),
        ];
        let flags = all.iter().chain(more);
        let sources = Sources {
            flags: flags
                .map(|(key, value)| ((*key).to_owned(), value.clone()))
                .collect(),
            ..Sources::default()
        };
        let node = Node::start(sources.load()?.config, Arc::new(RealClock::new())).await?;
        let server = Server::at(node.http_url().context("the node has no HTTP")?);
        Ok(Local {
            client: Client::new(&server)?,
            server,
            node,
        })
    }

    pub async fn stop(self) {
        drop(self.client);
        self.node.stop().await;
    }

    pub async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.client.get(path).await?.success()?.json()
    }

    /// Appends lines of JSON to a partition.
    pub async fn append(
        &mut self,
        hub: &str,
        partition: u64,
        lines: Vec<u8>,
    ) -> anyhow::Result<()> {
        append(&mut self.client, hub, partition, lines).await
    }

    pub async fn create_hub(&mut self, name: &str, partitions: u64) -> anyhow::Result<()> {
        let hub = json!({"name": name, "partitions": partitions});
        let made = self.client.send_json(Method::POST, "/api/hubs", &hub).await;
        made?.success()?;
        Ok(())
    }

    /// Hands over a job and starts it where its hubs begin.
    pub async fn start_job(&mut self, name: &str, file: &str) -> anyhow::Result<()> {
        let job = json!({"files": {"job.toml": file}, "start": "beginning"});
        let path = format!("/api/jobs/{name}");
        let put = self.client.send_json(Method::PUT, &path, &job).await;
        put?.success()?;
        Ok(())
    }

    /// What a job says of itself; one that has failed is an error.
    pub async fn job(&mut self, name: &str) -> anyhow::Result<Value> {
        let status = self.get(&format!("/api/jobs/{name}")).await?;
        anyhow::ensure!(status["state"] != "failed", "the job failed: {status}");
        Ok(status)
    }

    /// Stops a job, which saves its state.
    pub async fn stop_job(&mut self, name: &str) -> anyhow::Result<Value> {
        let path = format!("/api/jobs/{name}/stop");
        let stopped = self
            .client
            .request(Method::POST, &path, &[], Bytes::new())
            .await;
        stopped?.success()?.json()
    }
}

/// Appends lines of JSON to a partition.
pub async fn append(
    client: &mut Client,
    hub: &str,
    partition: u64,
    lines: Vec<u8>,
) -> anyhow::Result<()> {
    let path = format!("/hubs/{hub}/partitions/{partition}/messages");
    let kind = [("content-type", "application/x-ndjson")];
    let answer = client.request(Method::POST, &path, &kind, lines.into());
    answer.await?.success().context("the hub took no events")?;
    Ok(())
}

/// CPU seconds of this process so far.
pub fn cpu() -> f64 {
    usage().cpu.unwrap_or_default().as_secs_f64()
}

/// Does something with a folder that must not be there yet and is removed afterwards.
pub fn in_new_folder<T>(
    wanted: Option<&Path>,
    work: impl AsyncFnOnce(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let name = format!("highwater-bench-{}", std::process::id());
    let folder = wanted.map_or_else(|| std::env::temp_dir().join(name), Path::to_owned);
    anyhow::ensure!(!folder.exists(), "{} is there already", folder.display());
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(work(&folder));
    drop(runtime);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    done
}
