//! `highwater bench http`: one event a request, at a rate that does not wait for the server.
//!
//! The load is open loop: request `n` is due at a time that the rate alone decides, and its latency
//! counts from then, even when every connection was busy and it left late. A server that stalls
//! cannot slow the clock that judges it.
//!
//! The client is as small as can be, because it shares the machine with what it measures: requests
//! are bytes made once, answers are looked at only as far as their status and length.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use highwater_env::{Clock, RealClock, usage};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::schedule::Schedule;
use crate::client::{Client, Server};
use crate::exit::{BadRequest, Ending};

#[derive(clap::Args)]
pub struct BenchHttp {
    #[command(flatten)]
    server: Server,
    /// The hub to send to; it is made if it is not there
    #[arg(long, default_value = "bench")]
    hub: String,
    /// Requests a second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Requests a second during the spike in the middle; 0 for none
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    spike: u64,
    /// How long the spike is
    #[arg(long, default_value_t = 10)]
    spike_seconds: u64,
    /// How long to send, the spike included
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Connections that the requests are spread over; the server must allow so many
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,
    /// Bytes of an event
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    bytes: u64,
    /// An answer that takes longer counts as an error
    #[arg(long, default_value_t = 10_000)]
    timeout_ms: u64,
    #[arg(long)]
    json: bool,
}

/// What is shared by the connections.
struct Load {
    schedule: Schedule,
    next: AtomicU64,
    clock: RealClock,
    address: String,
    request: Vec<u8>,
    timeout: Duration,
}

/// What one connection saw. Latencies in microseconds.
struct Seen {
    calm: Histogram<u64>,
    spike: Histogram<u64>,
    errors: u64,
    /// The first error in words.
    first: Option<String>,
}

impl BenchHttp {
    pub fn run(self) -> anyhow::Result<Ending> {
        // One thread: what the generator takes is taken from the server.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.measure())
    }

    async fn measure(self) -> anyhow::Result<Ending> {
        if self.server.is_https() {
            return Err(BadRequest(
                "bench http measures plain HTTP: give an http:// server".into(),
            )
            .into());
        }
        let mut client = Client::new(&self.server)?;
        let create = json!({"name": self.hub, "partitions": 4});
        let made = client
            .send_json(Method::POST, "/api/hubs", &create)
            .await
            .context("cannot reach the server")?;
        if !made.is_success() && made.status != 409 {
            return Err(made.into_error().into());
        }
        let load = Arc::new(Load {
            schedule: Schedule::new(self.rate, self.spike, self.seconds, self.spike_seconds),
            next: AtomicU64::new(0),
            address: self.server.authority(),
            request: self.request()?,
            timeout: Duration::from_millis(self.timeout_ms),
            clock: RealClock::new(),
        });
        let before = (server_cpu(&mut client).await, usage().cpu);
        let tasks: Vec<_> = (0..self.connections)
            .map(|_| tokio::spawn(send(load.clone())))
            .collect();
        let mut seen = Seen::new()?;
        for task in tasks {
            seen.add(task.await??)?;
        }
        let took = load.clock.elapsed();
        let after = (server_cpu(&mut client).await, usage().cpu);
        let cpu = Cpu {
            server: before.0.zip(after.0).map(|(before, after)| after - before),
            own: before
                .1
                .zip(after.1)
                .map(|(before, after)| (after - before).as_secs_f64()),
        };
        self.report(&load, &seen, took, &cpu)?;
        Ok(match seen.errors {
            0 => Ending::Well,
            _ => Ending::Failed,
        })
    }

    fn request(&self) -> anyhow::Result<Vec<u8>> {
        let filler = "x".repeat(self.bytes.saturating_sub(8) as usize);
        let event = match self.bytes {
            0..8 => "1".repeat(self.bytes as usize),
            _ => format!("{{\"a\":\"{filler}\"}}"),
        };
        let mut head = format!(
            "POST {}/hubs/{}/messages HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            self.server.base(),
            self.hub,
            self.server.authority(),
            event.len(),
        );
        if let Some(key) = self.server.authorization()? {
            head.push_str(&format!("authorization: {key}\r\n"));
        }
        Ok([head.as_bytes(), b"\r\n", event.as_bytes()].concat())
    }

    fn report(&self, load: &Load, seen: &Seen, took: Duration, cpu: &Cpu) -> anyhow::Result<()> {
        let sent = seen.calm.len() + seen.spike.len();
        let per_million =
            |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e6 / sent.max(1) as f64);
        if self.json {
            let report = json!({
                "due": load.schedule.count(), "answered": sent, "errors": seen.errors,
                "first_error": seen.first, "seconds": took.as_secs_f64(),
                "calm": latencies(&seen.calm), "spike": latencies(&seen.spike),
                "server_cpu_seconds": cpu.server, "own_cpu_seconds": cpu.own,
                "server_cpu_seconds_per_million": per_million(cpu.server),
            });
            writeln!(stdout(), "{report}")?;
            return Ok(());
        }
        let line = |name: &str, seen: &Histogram<u64>| {
            let at = |quantile| Duration::from_micros(seen.value_at_quantile(quantile));
            format!(
                "{name} answered={} p50={:?} p99={:?} p99.9={:?} max={:?}",
                seen.len(),
                at(0.5),
                at(0.99),
                at(0.999),
                Duration::from_micros(seen.max()),
            )
        };
        let mut out = stdout().lock();
        writeln!(
            out,
            "{}",
            line(&format!("CALM {}/s", self.rate), &seen.calm)
        )?;
        if self.spike > 0 {
            writeln!(
                out,
                "{}",
                line(&format!("SPIKE {}/s", self.spike), &seen.spike)
            )?;
        }
        let shown = |seconds: Option<f64>| seconds.map_or("unknown".into(), |s| format!("{s:.2}"));
        writeln!(
            out,
            "TOTAL due={} answered={sent} errors={} elapsed={:.1} server_cpu={} own_cpu={} server_cpu_per_million={}",
            load.schedule.count(),
            seen.errors,
            took.as_secs_f64(),
            shown(cpu.server),
            shown(cpu.own),
            shown(per_million(cpu.server)),
        )?;
        if let Some(first) = &seen.first {
            writeln!(out, "the first error: {first}")?;
        }
        Ok(())
    }
}

struct Cpu {
    server: Option<f64>,
    own: Option<f64>,
}

fn latencies(seen: &Histogram<u64>) -> Value {
    let at = |quantile| seen.value_at_quantile(quantile) as f64 / 1000.0;
    json!({
        "answered": seen.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999),
        "max_ms": seen.max() as f64 / 1000.0,
    })
}

/// As the server's own metrics have it, so it works over a network too.
pub async fn server_cpu(client: &mut Client) -> Option<f64> {
    let page = client.get("/metrics").await.ok()?;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("process_cpu_seconds_total "))?;
    line.split(' ').nth(1)?.parse().ok()
}

impl Seen {
    fn new() -> anyhow::Result<Seen> {
        Ok(Seen {
            calm: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
            spike: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
            errors: 0,
            first: None,
        })
    }

    fn add(&mut self, other: Seen) -> anyhow::Result<()> {
        self.calm.add(&other.calm)?;
        self.spike.add(&other.spike)?;
        self.errors += other.errors;
        self.first = self.first.take().or(other.first);
        Ok(())
    }

    fn failed(&mut self, why: String) {
        self.errors += 1;
        self.first.get_or_insert(why);
    }
}

/// One connection: takes the next request that is due, waits for its time, sends it, reads the
/// answer.
async fn send(load: Arc<Load>) -> anyhow::Result<Seen> {
    let mut seen = Seen::new()?;
    let mut connection: Option<Connection> = None;
    loop {
        let number = load.next.fetch_add(1, Ordering::Relaxed);
        let Some((due, in_spike)) = load.schedule.due(number) else {
            return Ok(seen);
        };
        if let Some(wait) = due.checked_sub(load.clock.elapsed()) {
            tokio::time::sleep(wait).await;
        }
        let exchange = async {
            let open = match connection.take() {
                Some(open) => open,
                None => Connection::open(&load.address).await?,
            };
            open.exchange(&load.request).await
        };
        match tokio::time::timeout(load.timeout, exchange).await {
            Ok(Ok((open, 200..300))) => {
                connection = Some(open);
                let took = load.clock.elapsed().saturating_sub(due).as_micros() as u64;
                let latencies = if in_spike {
                    &mut seen.spike
                } else {
                    &mut seen.calm
                };
                latencies.saturating_record(took.max(1));
            }
            Ok(Ok((open, status))) => {
                connection = Some(open);
                seen.failed(format!("status {status}"));
            }
            Ok(Err(error)) => seen.failed(error.to_string()),
            Err(_) => seen.failed(format!("no answer within {:?}", load.timeout)),
        }
    }
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            buffer: Vec::with_capacity(1024),
        })
    }

    /// Sends and reads one answer; the connection comes back with its status.
    async fn exchange(mut self, request: &[u8]) -> std::io::Result<(Connection, u16)> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((status, length)) = answer(&self.buffer)
                && self.buffer.len() >= length
            {
                return Ok((self, status));
            }
        }
    }
}

/// The status and the whole length of an answer whose head is complete.
fn answer(bytes: &[u8]) -> Option<(u16, usize)> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let named = name.eq_ignore_ascii_case("content-length");
        named.then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    Some((status, head + 4 + length.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let text = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(answer(text), Some((201, text.len())));
        assert_eq!(answer(&text[..text.len() - 3]), Some((201, text.len())));
        assert_eq!(answer(b"HTTP/1.1 201 Created\r\n"), None);
    }
}
