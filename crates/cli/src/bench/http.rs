//! `highwater bench http`: one event a request, at a rate that does not wait for the server.
//!
//! The load is open loop: request `n` is due at a time that the rate alone decides, and its latency
//! counts from then, even when every connection was busy and it left late. A server that stalls
//! cannot slow the clock that judges it.
//!
//! `generator` is the client.

use std::io::{Write, stdout};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use highwater_env::{Clock, RealClock, usage};
use hyper::Method;
use serde_json::{Value, json};

use super::generator::{self, Load, Seen};
use super::link::Head;
use super::schedule::Schedule;
use crate::block_on::block_on;
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
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=10_000))]
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

impl BenchHttp {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(self.measure())
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
        let authority = self.server.authority();
        let mut addresses = tokio::net::lookup_host(&authority).await?;
        let load = Load {
            schedule: Schedule::new(self.rate, self.spike, self.seconds, self.spike_seconds),
            address: addresses.next().context("the server has no address")?,
            request: self.request()?,
            connections: self.connections as usize,
            timeout: Duration::from_millis(self.timeout_ms),
        };
        let before = (server_cpu(&mut client).await, usage().cpu);
        let clock = RealClock::new();
        // Nothing else is to be done on this thread meanwhile.
        let seen = generator::run(&load, &clock)?;
        let took = clock.elapsed();
        // The connection of before may have been closed as idle.
        let mut client = Client::new(&self.server)?;
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
        let head = Head::post(&self.server, &format!("/hubs/{}/messages", self.hub))?;
        Ok(head.with(event.as_bytes()))
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
