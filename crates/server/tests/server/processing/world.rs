//! A node with one processor, and a client of it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::RealClock;
use highwater_server::node::Node;
use serde_json::Value;
use tempfile::TempDir;

use crate::{http, whole_node};

pub(crate) struct World {
    node: Option<Node>,
    folder: TempDir,
    settings: String,
}

/// Short delays between attempts, so that tests need not wait.
pub(crate) const QUICK: &str =
    "retry = { delay = \"fixed\", first = \"10ms\", tries = 3 }\ncheckpoint = { events = 1 }\n";

impl World {
    /// With `processor` in the table `[processors.billing]`.
    pub(crate) async fn start(processor: &str) -> World {
        let settings = format!(
            "[hubs.orders]\npartitions = 2\n[processors.billing]\nhub = \"orders\"\n{processor}"
        );
        let folder = tempfile::tempdir().unwrap();
        let node = Some(start(folder.path(), &settings).await);
        World {
            node,
            folder,
            settings,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(node) = self.node.take() {
            let stopped = tokio::time::timeout(Duration::from_secs(30), node.stop()).await;
            stopped.expect("a stop does not take long");
        }
    }

    /// Starts it again on the same data.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.node = Some(start(self.folder.path(), &self.settings).await);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.node.as_ref().unwrap().http_address().unwrap()
    }

    /// Sends events to partition 0, one after another.
    pub(crate) async fn send(&self, events: &[&str]) {
        for event in events {
            let (status, text) = self
                .call("POST /hubs/orders/partitions/0/messages", event)
                .await;
            assert!(status < 300, "{text}");
        }
    }

    pub(crate) async fn call(&self, line: &str, body: &str) -> (u16, String) {
        let answer = http::node::call(self.address(), line, &[], body).await;
        (answer.status, answer.body)
    }

    /// The answer, once the node has read its groups.
    pub(crate) async fn json(&self, line: &str, body: &str) -> Value {
        let (status, text) = loop {
            let answer = self.call(line, body).await;
            if answer.0 != 503 {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(status < 300, "{line}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Repeats the request until its answer passes the check.
    pub(crate) async fn until(&self, line: &str, passes: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..2400 {
            let answer = self.json(line, "").await;
            if passes(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{line} still answers {}", self.json(line, "").await);
    }

    /// Waits until every event is handled or a dead letter, and the positions are stored.
    pub(crate) async fn done(&self) -> Value {
        let done = |facts: &Value| {
            let partitions = facts["partitions"].as_array().unwrap();
            !partitions.is_empty() && facts["behind"] == 0 && facts["partitions_here"] == 2
        };
        self.until("GET /api/processors/billing", done).await
    }
}

async fn start(folder: &Path, settings: &str) -> Node {
    whole_node::start(folder, settings, Arc::new(RealClock::new())).await
}
