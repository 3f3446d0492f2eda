//! A node with one processor, and the way to talk to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::RealClock;
use highwater_server::config::Sources;
use highwater_server::node::Node;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct World {
    node: Option<Node>,
    folder: TempDir,
    settings: String,
}

/// Tries quickly, so that tests need not wait.
pub const QUICK: &str =
    "retry = { delay = \"fixed\", first = \"10ms\", tries = 3 }\ncheckpoint = { events = 1 }\n";

impl World {
    /// With `processor` in the table `[processors.billing]`.
    pub async fn start(processor: &str) -> World {
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

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub async fn stop(&mut self) {
        if let Some(node) = self.node.take() {
            let stopped = tokio::time::timeout(Duration::from_secs(30), node.stop()).await;
            stopped.expect("a stop does not take long");
        }
    }

    /// Starts it again on the same data.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.node = Some(start(self.folder.path(), &self.settings).await);
    }

    pub fn address(&self) -> SocketAddr {
        self.node.as_ref().unwrap().http_address().unwrap()
    }

    /// Sends events to partition 0, one after another.
    pub async fn send(&self, events: &[&str]) {
        for event in events {
            let (status, text) = self
                .call("POST /hubs/orders/partitions/0/messages", event)
                .await;
            assert!(status < 300, "{text}");
        }
    }

    pub async fn call(&self, line: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// What is answered once the node has read its groups.
    pub async fn json(&self, line: &str, body: &str) -> Value {
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

    /// Asks again until the answer is as wanted.
    pub async fn until(&self, line: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..2400 {
            let answer = self.json(line, "").await;
            if wanted(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{line} did not come to that: {}", self.json(line, "").await);
    }

    /// Until everything is handled or set aside, and stored.
    pub async fn done(&self) -> Value {
        let done = |facts: &Value| {
            let places = facts["partitions"].as_array().unwrap();
            !places.is_empty() && facts["behind"] == 0 && facts["partitions_here"] == 2
        };
        self.until("GET /api/processors/billing", done).await
    }
}

async fn start(folder: &Path, settings: &str) -> Node {
    let file = folder.join("highwater.toml");
    std::fs::write(&file, settings).unwrap();
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sources = Sources {
        file: Some(file),
        flags: vec![
            flag("data", &folder.join("data").display().to_string()),
            flag("http.listen", "127.0.0.1:0"),
            flag("kafka.listen", "off"),
        ],
        ..Sources::default()
    };
    let loaded = sources.load().unwrap_or_else(|error| panic!("{error}"));
    Node::start(loaded.config, Arc::new(RealClock::new()))
        .await
        .unwrap()
}
