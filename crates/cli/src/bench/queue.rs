//! `highwater bench queue`: sends, receives and completes messages as fast as a node takes them. Each step is durable
//! before its response. `queue_load` is the client.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use highwater_env::{Clock, RealClock};
use hyper::Method;
use serde_json::json;

use super::cpu::CpuSeconds;
use super::queue_load::{self, Load};
use super::request_head::{RequestHead, plain_address};
use crate::client::{Client, Server};
use crate::exit::ExitStatus;
use crate::runtime::block_on;

#[derive(clap::Args)]
pub(crate) struct BenchQueue {
    #[command(flatten)]
    server: Server,
    /// The queue to create and delete at the end
    #[arg(long, default_value = "bench")]
    queue: String,
    /// Number of senders, and of receivers
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    connections: u64,
    /// Messages in a request
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    batch: u64,
    /// Size of a message in bytes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    bytes: u64,
    /// Duration of the load
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Complete messages in separate requests instead of with the next receive
    #[arg(long)]
    apart: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl BenchQueue {
    pub(super) fn run(self) -> anyhow::Result<ExitStatus> {
        block_on(self.measure())
    }

    async fn measure(self) -> anyhow::Result<ExitStatus> {
        let address = plain_address(&self.server, "bench queue").await?;
        let mut client = Client::new(&self.server)?;
        let queue = json!({"name": self.queue});
        let created = client.send_json(Method::POST, "/api/queues", &queue).await;
        created.context("cannot reach the server")?.success()?;
        let load = self.load(address)?;
        let before = CpuSeconds::now(&mut client).await;
        let clock = RealClock::new();
        // Blocks this thread, which has nothing else to do.
        let cycles = queue_load::run(&load, &clock)?;
        let took = clock.elapsed().as_secs_f64();
        // The node may have closed the idle connection.
        let mut client = Client::new(&self.server)?;
        let cpu = CpuSeconds::now(&mut client).await.since(&before);
        let path = format!("/api/queues/{}", self.queue);
        let deleted = client.request(Method::DELETE, &path, &[], Bytes::new());
        deleted.await?.success()?;
        self.report(cycles, took, &cpu)
    }

    fn load(&self, address: SocketAddr) -> anyhow::Result<Load> {
        let head = |operation: &str| {
            RequestHead::post(&self.server, &format!("/queues/{}/{operation}", self.queue))
        };
        let filler = "x".repeat(self.bytes.saturating_sub(2) as usize);
        let send = match self.batch {
            1 => head("messages")?.with_body(json!(filler).to_string().as_bytes()),
            batch => {
                let messages = vec![json!({"body": filler}); batch as usize];
                head("batch")?.with_body(&serde_json::to_vec(&messages)?)
            }
        };
        Ok(Load {
            address,
            connections: self.connections as usize,
            send,
            receive: head(&format!("receive?max={}&wait=1s", self.batch))?,
            complete: self.apart.then(|| head("complete")).transpose()?,
            batch: self.batch,
            duration: Duration::from_secs(self.seconds),
        })
    }

    fn report(&self, cycles: u64, took: f64, cpu: &CpuSeconds) -> anyhow::Result<ExitStatus> {
        let rate = cycles as f64 / took;
        let micros = |cpu: Option<f64>| cpu.map(|cpu| cpu * 1e6 / cycles.max(1) as f64);
        let (server, own) = (micros(cpu.server), micros(cpu.own));
        if self.json {
            let answer = json!({
                "cycles": cycles, "seconds": took, "cycles_per_second": rate,
                "server_cpu_micros_per_cycle": server, "own_cpu_micros_per_cycle": own,
            });
            writeln!(stdout(), "{answer}")?;
        } else {
            let shown =
                |micros: Option<f64>| micros.map_or("unknown".into(), |it| format!("{it:.1}"));
            writeln!(
                stdout(),
                "{rate:.0} messages/s sent, received and completed; CPU us per message: server {}, client {}",
                shown(server),
                shown(own),
            )?;
        }
        Ok(ExitStatus::Success)
    }
}
