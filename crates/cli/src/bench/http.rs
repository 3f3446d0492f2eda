//! `highwater bench http`: one event a request, at a fixed rate.
//!
//! The load is open loop (`highwater_devtools::load`); `http_load` is the client.

use std::io::{Write, stdout};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use highwater_devtools::load::{LoadOptions, Schedule};
use highwater_env::{Clock, RealClock};
use hyper::Method;
use serde_json::json;

use super::cpu::CpuSeconds;
use super::http_load::{self, LoadResult};
use super::percentiles::{percentiles_json, percentiles_text};
use super::request_head::{RequestHead, plain_address};
use crate::client::{Client, Server};
use crate::exit::ExitStatus;
use crate::runtime::block_on;

#[derive(clap::Args)]
pub(crate) struct BenchHttp {
    #[command(flatten)]
    server: Server,
    /// The hub to send to, created if missing
    #[arg(long, default_value = "bench")]
    hub: String,
    /// Requests a second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Requests a second during the spike in the middle; 0 for none
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    spike: u64,
    /// Duration of the spike
    #[arg(long, default_value_t = 10)]
    spike_seconds: u64,
    /// Duration of the load, spike included
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Number of connections; the node must allow as many
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,
    /// Size of an event in bytes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    bytes: u64,
    /// A slower response counts as an error
    #[arg(long, default_value_t = 10_000)]
    timeout_ms: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl BenchHttp {
    pub(super) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(self.measure())
    }

    async fn measure(self) -> anyhow::Result<ExitStatus> {
        let address = plain_address(&self.server, "bench http").await?;
        let mut client = Client::new(&self.server)?;
        let create = json!({"name": self.hub, "partitions": 4});
        let created = client
            .send_json(Method::POST, "/api/hubs", &create)
            .await
            .context("cannot reach the server")?;
        if !created.is_success() && created.status != 409 {
            return Err(created.into_error().into());
        }
        let (whole, spike) = (
            Duration::from_secs(self.seconds),
            Duration::from_secs(self.spike_seconds),
        );
        let load = LoadOptions {
            schedule: Schedule::of_time(self.rate, self.spike, whole, spike),
            address,
            connections: self.connections as usize,
            timeout: Duration::from_millis(self.timeout_ms),
            tries: 1,
            retry_delay: Duration::ZERO,
        };
        let before = CpuSeconds::now(&mut client).await;
        let clock = RealClock::new();
        // Blocks this thread, which has nothing else to do.
        let result = http_load::run(&load, &self.request()?, &clock)?;
        let took = clock.elapsed();
        // The node may have closed the idle connection.
        let mut client = Client::new(&self.server)?;
        let cpu = CpuSeconds::now(&mut client).await.since(&before);
        self.report(&load, &result, took, &cpu)?;
        Ok(ExitStatus::failure_if(result.errors > 0))
    }

    fn request(&self) -> anyhow::Result<Vec<u8>> {
        let filler = "x".repeat(self.bytes.saturating_sub(8) as usize);
        let event = match self.bytes {
            0..8 => "1".repeat(self.bytes as usize),
            _ => format!("{{\"a\":\"{filler}\"}}"),
        };
        let head = RequestHead::post(&self.server, &format!("/hubs/{}/messages", self.hub))?;
        Ok(head.with_body(event.as_bytes()))
    }

    fn report(
        &self,
        load: &LoadOptions,
        result: &LoadResult,
        took: Duration,
        cpu: &CpuSeconds,
    ) -> anyhow::Result<()> {
        let answered = result.calm.len() + result.spike.len();
        let per_million =
            |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e6 / answered.max(1) as f64);
        if self.json {
            let report = json!({
                "due": load.schedule.count(), "answered": answered, "errors": result.errors,
                "first_error": result.first_error, "seconds": took.as_secs_f64(),
                "calm": percentiles_json("answered", &result.calm), "spike": percentiles_json("answered", &result.spike),
                "server_cpu_seconds": cpu.server, "own_cpu_seconds": cpu.own,
                "server_cpu_seconds_per_million": per_million(cpu.server),
            });
            writeln!(stdout(), "{report}")?;
            return Ok(());
        }
        let line = |name: &str, latencies: &Histogram<u64>| {
            format!(
                "{name} answered={} {}",
                latencies.len(),
                percentiles_text(latencies)
            )
        };
        let mut out = stdout().lock();
        writeln!(
            out,
            "{}",
            line(&format!("CALM {}/s", self.rate), &result.calm)
        )?;
        if self.spike > 0 {
            writeln!(
                out,
                "{}",
                line(&format!("SPIKE {}/s", self.spike), &result.spike)
            )?;
        }
        let shown = |seconds: Option<f64>| seconds.map_or("unknown".into(), |s| format!("{s:.2}"));
        writeln!(
            out,
            "TOTAL due={} answered={answered} errors={} elapsed={:.1} server_cpu={} own_cpu={} server_cpu_per_million={}",
            load.schedule.count(),
            result.errors,
            took.as_secs_f64(),
            shown(cpu.server),
            shown(cpu.own),
            shown(per_million(cpu.server)),
        )?;
        if let Some(first) = &result.first_error {
            writeln!(out, "first error: {first}")?;
        }
        Ok(())
    }
}
