//! How many messages a second go through a queue of a whole node over HTTP: sent, received under a lock
//! and completed, each step on the disk before it is answered.
//!
//! ```sh
//! cargo run --release -p highwater-server --example queue_http_speed -- [SECONDS]
//! ```
//!
//! Node and clients are one process, so the CPU is that of both. `highwater bench queue` measures a node
//! that runs elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use highwater_env::{RealClock, usage};
use highwater_server::config::Sources;
use highwater_server::node::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sources = Sources {
        flags: vec![
            flag("data", &folder.path().display().to_string()),
            flag("http.listen", "127.0.0.1:0"),
            flag("kafka.listen", "off"),
            flag("amqp.listen", "off"),
        ],
        ..Sources::default()
    };
    let node = Node::start(sources.load()?.config, Arc::new(RealClock::new())).await?;
    let address = node.http_address().ok_or("HTTP is on")?;
    println!("connections  batch   cycles/s   CPU us/cycle");
    for (connections, batch) in [(1, 1), (16, 1), (64, 1), (4, 100), (16, 100)] {
        let name = format!("speed-{connections}-{batch}");
        let mut client = Client::connect(address).await?;
        let make = format!("{{\"name\":\"{name}\"}}");
        client.post("/api/queues", make.as_bytes()).await?;
        let (cycles, cpu) = measure(address, &name, connections, batch, seconds).await?;
        let (rate, cost) = (cycles / seconds, cpu.as_micros() as u64 / cycles.max(1));
        println!("{connections:11}{batch:7}{rate:11}{cost:15}");
    }
    node.stop().await;
    Ok(())
}

/// Completed cycles and what they cost.
async fn measure(
    address: SocketAddr,
    queue: &str,
    connections: usize,
    batch: usize,
    seconds: u64,
) -> Result<(u64, Duration), Failure> {
    let (over, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let path = format!("/queues/{queue}");
        tasks.push(tokio::spawn(send(
            address,
            path.clone(),
            batch,
            over.clone(),
        )));
        let receive = receive(address, path, batch, over.clone(), done.clone());
        tasks.push(tokio::spawn(receive));
    }
    let before = usage().cpu.unwrap_or_default();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let cycles = done.load(Ordering::Relaxed);
    let cpu = usage().cpu.unwrap_or_default() - before;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await??;
    }
    Ok((cycles, cpu))
}

async fn send(
    address: SocketAddr,
    path: String,
    batch: usize,
    over: Arc<AtomicBool>,
) -> Result<(), Failure> {
    let mut client = Client::connect(address).await?;
    let message = format!("{{\"body\":\"{}\"}}", "x".repeat(198));
    let body = format!("[{}]", vec![message; batch].join(","));
    let path = format!("{path}/batch");
    while !over.load(Ordering::Relaxed) {
        client.post(&path, body.as_bytes()).await?;
    }
    Ok(())
}

async fn receive(
    address: SocketAddr,
    path: String,
    batch: usize,
    over: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) -> Result<(), Failure> {
    let mut client = Client::connect(address).await?;
    let receive = format!("{path}/receive?max={batch}&wait=100ms");
    let complete = format!("{path}/complete");
    while !over.load(Ordering::Relaxed) {
        let got = String::from_utf8(client.post(&receive, b"").await?)?;
        let tokens = got.split("\"token\":").skip(1);
        let tokens: Vec<&str> = tokens.filter_map(|rest| rest.split(',').next()).collect();
        if tokens.is_empty() {
            continue;
        }
        let body = format!("{{\"tokens\":[{}]}}", tokens.join(","));
        client.post(&complete, body.as_bytes()).await?;
        done.fetch_add(tokens.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// As small as possible, because it shares the machine with the measured node.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let buffer = Vec::new();
        Ok(Client { stream, buffer })
    }

    /// The body of a good answer.
    async fn post(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let request = [head.as_bytes(), body].concat();
        self.stream.write_all(&request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the node hung up".into());
            }
            let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&self.buffer[..end])?;
            let length = head.split("content-length: ").nth(1).unwrap_or("0");
            let length: usize = length.lines().next().unwrap_or("0").parse()?;
            if self.buffer.len() < end + 4 + length {
                continue;
            }
            let body = self.buffer[end + 4..].to_vec();
            return match head.starts_with("HTTP/1.1 2") {
                true => Ok(body),
                false => Err(String::from_utf8_lossy(&body).into_owned().into()),
            };
        }
    }
}
