//! `highwater bench webhook`: what a delivery to a webhook on this machine costs.
//!
//! A node keeps the events on a disk and posts them to a receiver that does nothing but answer. The
//! receiver has a thread of its own, so that the CPU time of the two ends can be told apart.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use highwater_env::{Clock, RealClock, thread_cpu};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};

use super::local::{Local, cpu, in_new_folder};
use crate::block_on::one_thread;
use crate::exit::Ending;

/// Events in one request when the hub is filled.
const FILL: u64 = 1000;

#[derive(clap::Args)]
pub struct BenchWebhook {
    /// How many events are delivered
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    events: u64,
    /// Events in one request
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Requests of a partition under way at once, of which there are four; with batches it is one
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1000))]
    concurrency: u64,
    /// Bytes of an event
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    bytes: u64,
    /// A folder for the hub, which must not be there and is removed in the end
    #[arg(long)]
    dir: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

/// What the receiver has seen.
#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    more: Notify,
}

/// What it took to deliver everything.
struct Cost {
    seconds: f64,
    /// Of both ends, in seconds.
    cpu: f64,
    receiver_cpu: f64,
    requests: u64,
}

impl BenchWebhook {
    pub fn run(self) -> anyhow::Result<Ending> {
        let measured = in_new_folder(self.dir.as_deref(), async |dir| self.measure(dir).await);
        let Cost {
            seconds,
            cpu,
            receiver_cpu,
            requests,
        } = measured?;
        let micros = |cpu: f64| cpu * 1e6 / self.events as f64;
        let (rate, sender, receiver) = (
            self.events as f64 / seconds,
            micros(cpu - receiver_cpu),
            micros(receiver_cpu),
        );
        if self.json {
            let facts = json!({
                "events": self.events, "batch": self.batch, "requests": requests, "seconds": seconds,
                "events_per_second": rate, "cpu_seconds": cpu, "cpu_micros_per_event": micros(cpu),
                "node_micros_per_event": sender, "receiver_micros_per_event": receiver,
            });
            writeln!(stdout(), "{facts}")?;
        } else {
            writeln!(
                stdout(),
                "{} events in {requests} requests: {rate:.0} events/s, CPU of an event: {sender:.1} us in the node, {receiver:.1} us in the receiver",
                self.events
            )?;
        }
        Ok(Ending::Well)
    }

    async fn measure(&self, dir: &Path) -> anyhow::Result<Cost> {
        let receiver = Receiver::start()?;
        let seen = &receiver.seen;
        let url = format!("http://{}/", receiver.address);
        let mut idle = Local::start(dir, &[("hubs.bench.partitions", "4".to_owned())]).await?;
        self.fill(&mut idle).await?;
        idle.stop().await;
        let clock = RealClock::new();
        let mut node = Local::start(dir, &self.processor(&url)).await?;
        let (started, before) = (clock.elapsed(), cpu());
        while handled(&mut node).await? < self.events {
            let _ = tokio::time::timeout(Duration::from_millis(100), seen.more.notified()).await;
        }
        let seconds = (clock.elapsed() - started).as_secs_f64();
        let cpu = cpu() - before;
        let requests = seen.requests.load(Ordering::Relaxed);
        node.stop().await;
        Ok(Cost {
            seconds,
            cpu,
            receiver_cpu: receiver.stop()?.as_secs_f64(),
            requests,
        })
    }

    fn processor(&self, url: &str) -> [(&'static str, String); 5] {
        [
            ("processors.bench.hub", "bench".to_owned()),
            ("processors.bench.handler.url", url.to_owned()),
            ("processors.bench.batch", self.batch.to_string()),
            ("processors.bench.concurrency", self.concurrency.to_string()),
            ("processors.bench.order", "none".to_owned()),
        ]
    }

    async fn fill(&self, node: &mut Local) -> anyhow::Result<()> {
        let event = format!("\"{}\"\n", "x".repeat(self.bytes as usize - 2));
        let lines = FILL.min((1 << 19) / self.bytes).max(1);
        let (mut left, mut partition) = (self.events, 0);
        while left > 0 {
            let body = event.repeat(lines.min(left) as usize);
            node.append("bench", partition % 4, body.into()).await?;
            (left, partition) = (left - lines.min(left), partition + 1);
        }
        Ok(())
    }
}

async fn handled(node: &mut Local) -> anyhow::Result<u64> {
    let facts = node.get("/api/processors/bench").await?;
    let count = |name: &str| facts[name].as_u64().unwrap_or(0);
    anyhow::ensure!(count("failures") == 0, "deliveries failed: {facts}");
    Ok(count("handled"))
}

/// The other end, on a thread of its own.
struct Receiver {
    address: SocketAddr,
    seen: Arc<Seen>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<Option<Duration>>>,
}

impl Receiver {
    fn start() -> anyhow::Result<Receiver> {
        let runtime = one_thread()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = oneshot::channel();
        let noted = Arc::clone(&seen);
        let thread = std::thread::Builder::new().name("receiver".into());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    ended = receive(listener, noted) => ended,
                    _ = stopped => Ok(()),
                }
            })?;
            Ok(thread_cpu())
        })?;
        Ok(Receiver {
            address,
            seen,
            stop,
            thread,
        })
    }

    /// The CPU time that it took.
    fn stop(self) -> anyhow::Result<Duration> {
        // If it is gone, it has stopped.
        let _ = self.stop.send(());
        let cpu = self.thread.join();
        let cpu = cpu.map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        Ok(cpu.unwrap_or_default())
    }
}

async fn receive(listener: std::net::TcpListener, seen: Arc<Seen>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let seen = Arc::clone(&seen);
        tokio::spawn(async move { drop(serve(stream, &seen).await) });
    }
}

/// Answers every request, looking at it no further than to find its end.
async fn serve(mut stream: TcpStream, seen: &Seen) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut held = Vec::with_capacity(64 * 1024);
    loop {
        let whole = loop {
            if let Some(length) = request_length(&held).filter(|length| *length <= held.len()) {
                break length;
            }
            if stream.read_buf(&mut held).await? == 0 {
                return Ok(());
            }
        };
        held.drain(..whole);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
        seen.requests.fetch_add(1, Ordering::Relaxed);
        seen.more.notify_one();
    }
}

/// Head and body together, once the head is there.
fn request_length(held: &[u8]) -> Option<usize> {
    let head = held.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&held[..head]).ok()?;
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    Some(head + length.map_or(0, |length| length.parse().unwrap_or(0)))
}
