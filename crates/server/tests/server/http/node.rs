//! The HTTP API over a log in memory, and a client that writes raw requests.

use std::net::SocketAddr;
use std::sync::Arc;

use highwater_access::{Key, Keys};
use highwater_env::SimClock;
use highwater_hub::Hub;
use highwater_log::{GroupCoordinator, HubName, HubSettings, HubSpec, Log, MemoryLog};
use highwater_server::http::{App, Backend, Options, Server};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// 2026-01-01T00:00:00Z
pub(crate) const NOW_SECONDS: i64 = 1_767_225_600;

pub(crate) struct Node {
    pub address: SocketAddr,
    pub app: Arc<App>,
    pub log: Arc<dyn Log>,
    pub clock: Arc<SimClock>,
}

/// Options for tests: any port.
pub(crate) fn options() -> Options {
    Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..Options::default()
    }
}

pub(crate) fn memory() -> MemoryLog {
    MemoryLog::new(|| NOW_SECONDS * 1000 + 123)
}

/// A node with a hub `h` of four partitions.
pub(crate) async fn node() -> Node {
    start(options(), Vec::new(), Arc::new(memory())).await
}

pub(crate) async fn node_with(options: Options) -> Node {
    start(options, Vec::new(), Arc::new(memory())).await
}

pub(crate) async fn start(options: Options, keys: Vec<Key>, log: Arc<dyn Log>) -> Node {
    start_on(options, keys, Backend::new(log)).await
}

pub(crate) async fn node_with_groups(log: Arc<dyn Log>, groups: Arc<dyn GroupCoordinator>) -> Node {
    let backend = Backend {
        groups: Some(groups),
        ..Backend::new(log)
    };
    start_on(options(), Vec::new(), backend).await
}

/// A node on a disk, which reports the status of its partitions.
pub(crate) async fn node_on(hub: Hub) -> Node {
    let backend = Backend {
        hub: Some(hub.clone()),
        ..Backend::new(Arc::new(hub))
    };
    start_on(options(), Vec::new(), backend).await
}

pub(crate) async fn start_on(options: Options, keys: Vec<Key>, backend: Backend) -> Node {
    let log = backend.log.clone();
    let clock = Arc::new(SimClock::at_unix_nanos(
        i128::from(NOW_SECONDS) * 1_000_000_000,
    ));
    let app = App::new(options, Arc::new(Keys::new(keys)), Some(2), clock.clone());
    let spec = HubSpec {
        name: HubName::new("h").unwrap(),
        partitions: 4,
        settings: HubSettings::default(),
    };
    log.create(spec).await.unwrap();
    app.serve_from(backend);
    let server = Server::bind(app.clone()).await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.run());
    Node {
        address,
        app,
        log,
        clock,
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16, code: &str) {
        let answer = (self.status, self.json()["code"].clone());
        assert_eq!(answer, (status, code.into()), "{}", self.body);
    }
}

impl Node {
    pub(crate) async fn connect(&self) -> Wire {
        Wire::connect(self.address).await
    }

    /// One request on a connection of its own. `headers` are lines.
    pub(crate) async fn call(
        &self,
        line: &str,
        headers: &[&str],
        body: impl AsRef<[u8]>,
    ) -> Answer {
        call(self.address, line, headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(&format!("GET {path}"), &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, kind: &str, body: &str) -> Answer {
        let kind = format!("content-type: {kind}");
        self.call(&format!("POST {path}"), &[&kind], body).await
    }

    /// The messages of one partition of `h`.
    pub(crate) async fn messages(&self, partition: u32) -> Vec<Value> {
        let page = self
            .get(&format!("/hubs/h/partitions/{partition}/messages"))
            .await;
        page.json()["messages"].as_array().unwrap().clone()
    }

    /// The messages of all partitions of `h`.
    pub(crate) async fn all(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for partition in 0..4 {
            all.extend(self.messages(partition).await);
        }
        all
    }
}

/// One request on a connection of its own. `headers` are lines.
pub(crate) async fn call(
    address: SocketAddr,
    line: &str,
    headers: &[&str],
    body: impl AsRef<[u8]>,
) -> Answer {
    let mut wire = Wire::connect(address).await;
    wire.send(&request(line, headers, body.as_ref())).await;
    wire.answer().await
}

pub(crate) fn request(line: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{line} HTTP/1.1\r\n");
    if !headers.iter().any(|header| header.starts_with("host:")) {
        head.push_str("host: localhost\r\n");
    }
    for header in headers {
        head.push_str(&format!("{header}\r\n"));
    }
    if !headers
        .iter()
        .any(|header| header.starts_with("transfer-encoding"))
    {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// A connection.
pub(crate) struct Wire {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> Wire {
        Wire {
            stream: TcpStream::connect(address).await.unwrap(),
            read: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // The server may have answered and closed already.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads until `done` returns a length, and takes that many bytes.
    async fn until(&mut self, done: impl Fn(&[u8]) -> Option<usize>) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = done(&self.read) {
                return Some(self.read.drain(..end).collect());
            }
            match self.stream.read_buf(&mut self.read).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    pub(crate) async fn head(&mut self) -> Option<String> {
        let end = |bytes: &[u8]| Some(bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4);
        Some(String::from_utf8(self.until(end).await?).unwrap())
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.head().await.expect("an answer");
        let status = head[9..12].parse().unwrap();
        let length = head
            .to_ascii_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let length: usize = length.unwrap_or(0);
        let body = self
            .until(|bytes| (bytes.len() >= length).then_some(length))
            .await;
        Answer {
            status,
            head,
            body: String::from_utf8(body.expect("a body")).unwrap(),
        }
    }

    /// The next block of a live stream, without the framing of chunks.
    pub(crate) async fn block(&mut self) -> Option<String> {
        let end = |bytes: &[u8]| Some(bytes.windows(2).position(|end| end == b"\n\n")? + 2);
        let text = String::from_utf8(self.until(end).await?).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty());
        let framing = |line: &&str| {
            line.bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b'\r')
        };
        Some(
            lines
                .filter(|line| !framing(line))
                .collect::<Vec<_>>()
                .join("\n"),
        )
    }

    /// True when the server closed the connection without another byte.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && matches!(self.stream.read_buf(&mut self.read).await, Ok(0) | Err(_))
    }
}
