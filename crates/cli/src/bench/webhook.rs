//! `highwater bench webhook`: the cost of a delivery to a webhook on this machine.
//!
//! A node stores the events on disk and posts them to a receiver that only answers. The receiver has a thread of its
//! own, so that its CPU time is separate from the node's.

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

use super::bench_node::{BenchNode, cpu, in_new_folder};
use crate::exit::ExitStatus;
use crate::runtime::single_threaded;

/// Events in one request when filling the hub.
const FILL_BATCH: u64 = 1000;

#[derive(clap::Args)]
pub(crate) struct BenchWebhook {
    /// Number of events to deliver
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    events: u64,
    /// Events in one request
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Concurrent requests for each of the four partitions; one with batches
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1000))]
    concurrency: u64,
    /// Size of an event in bytes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    bytes: u64,
    /// A folder for the hub, which must not exist and is removed at the end
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Requests that the receiver has answered.
#[derive(Default)]
struct ReceivedRequests {
    count: AtomicU64,
    changed: Notify,
}

/// The cost of delivering all events.
struct DeliveryCost {
    seconds: f64,
    /// CPU seconds of node and receiver.
    cpu: f64,
    receiver_cpu: f64,
    requests: u64,
}

impl BenchWebhook {
    pub(super) fn run(self) -> anyhow::Result<ExitStatus> {
        let measured = in_new_folder(self.dir.as_deref(), async |dir| self.measure(dir).await);
        let DeliveryCost {
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
            let report = json!({
                "events": self.events, "batch": self.batch, "requests": requests, "seconds": seconds,
                "events_per_second": rate, "cpu_seconds": cpu, "cpu_micros_per_event": micros(cpu),
                "node_micros_per_event": sender, "receiver_micros_per_event": receiver,
            });
            writeln!(stdout(), "{report}")?;
        } else {
            writeln!(
                stdout(),
                "{} events in {requests} requests: {rate:.0} events/s, CPU per event: {sender:.1} us in the node, {receiver:.1} us in the receiver",
                self.events
            )?;
        }
        Ok(ExitStatus::Success)
    }

    async fn measure(&self, dir: &Path) -> anyhow::Result<DeliveryCost> {
        let receiver = Receiver::start()?;
        let received = &receiver.received;
        let url = format!("http://{}/", receiver.address);
        let mut idle = BenchNode::start(dir, &[("hubs.bench.partitions", "4".to_owned())]).await?;
        self.fill(&mut idle).await?;
        idle.stop().await;
        let clock = RealClock::new();
        let mut node = BenchNode::start(dir, &self.processor(&url)).await?;
        let (started, before) = (clock.elapsed(), cpu());
        while handled_events(&mut node).await? < self.events {
            let _ =
                tokio::time::timeout(Duration::from_millis(100), received.changed.notified()).await;
        }
        let seconds = (clock.elapsed() - started).as_secs_f64();
        let cpu = cpu() - before;
        let requests = received.count.load(Ordering::Relaxed);
        node.stop().await;
        Ok(DeliveryCost {
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

    async fn fill(&self, node: &mut BenchNode) -> anyhow::Result<()> {
        let event = format!("\"{}\"\n", "x".repeat(self.bytes as usize - 2));
        let lines = FILL_BATCH.min((1 << 19) / self.bytes).max(1);
        let (mut remaining, mut partition) = (self.events, 0);
        while remaining > 0 {
            let body = event.repeat(lines.min(remaining) as usize);
            node.append("bench", partition % 4, body.into()).await?;
            (remaining, partition) = (remaining - lines.min(remaining), partition + 1);
        }
        Ok(())
    }
}

async fn handled_events(node: &mut BenchNode) -> anyhow::Result<u64> {
    let status = node.get("/api/processors/bench").await?;
    let count = |name: &str| status[name].as_u64().unwrap_or(0);
    anyhow::ensure!(count("failures") == 0, "deliveries failed: {status}");
    Ok(count("handled"))
}

/// The HTTP server behind the webhook, on a thread of its own.
struct Receiver {
    address: SocketAddr,
    received: Arc<ReceivedRequests>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<Option<Duration>>>,
}

impl Receiver {
    fn start() -> anyhow::Result<Receiver> {
        let runtime = single_threaded()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let received = Arc::new(ReceivedRequests::default());
        let (stop, stopped) = oneshot::channel();
        let counted = Arc::clone(&received);
        let thread = std::thread::Builder::new().name("receiver".into());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    ended = receive(listener, counted) => ended,
                    _ = stopped => Ok(()),
                }
            })?;
            Ok(thread_cpu())
        })?;
        Ok(Receiver {
            address,
            received,
            stop,
            thread,
        })
    }

    /// Stops the receiver and returns its CPU time.
    fn stop(self) -> anyhow::Result<Duration> {
        // Without a receiver the thread has stopped already.
        let _ = self.stop.send(());
        let cpu = self.thread.join();
        let cpu = cpu.map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        Ok(cpu.unwrap_or_default())
    }
}

async fn receive(
    listener: std::net::TcpListener,
    received: Arc<ReceivedRequests>,
) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let received = Arc::clone(&received);
        tokio::spawn(async move { drop(serve(stream, &received).await) });
    }
}

/// Answers every request; only the end of a request is parsed.
async fn serve(mut stream: TcpStream, received: &ReceivedRequests) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(64 * 1024);
    loop {
        let length = loop {
            if let Some(length) = request_length(&buffer).filter(|length| *length <= buffer.len()) {
                break length;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        buffer.drain(..length);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
        received.count.fetch_add(1, Ordering::Relaxed);
        received.changed.notify_one();
    }
}

/// The length of head and body, once the head is complete.
fn request_length(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    Some(head + length.map_or(0, |length| length.parse().unwrap_or(0)))
}
