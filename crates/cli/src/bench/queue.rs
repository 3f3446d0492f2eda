//! `highwater bench queue`: messages sent, received and completed as fast as a node takes them, each
//! step durable before it is answered.
//!
//! `cycles` is the client.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use highwater_env::{Clock, RealClock, usage};
use hyper::Method;
use serde_json::json;

use super::cycles::{self, Load};
use super::http::server_cpu;
use super::link::Head;
use crate::block_on::block_on;
use crate::client::{Client, Server};
use crate::exit::{BadRequest, Ending};

#[derive(clap::Args)]
pub struct BenchQueue {
    #[command(flatten)]
    server: Server,
    /// The queue to use, which is made for it and deleted at the end
    #[arg(long, default_value = "bench")]
    queue: String,
    /// Senders, and as many receivers
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    connections: u64,
    /// Messages in a request
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    batch: u64,
    /// Bytes of a message
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    bytes: u64,
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Complete messages in requests of their own, and not with the next receive
    #[arg(long)]
    apart: bool,
    #[arg(long)]
    json: bool,
}

impl BenchQueue {
    pub fn run(self) -> anyhow::Result<Ending> {
        block_on(self.measure())
    }

    async fn measure(self) -> anyhow::Result<Ending> {
        if self.server.is_https() {
            let plain = "bench queue measures plain HTTP: give an http:// server";
            return Err(BadRequest(plain.into()).into());
        }
        let mut client = Client::new(&self.server)?;
        let wanted = json!({"name": self.queue});
        let made = client.send_json(Method::POST, "/api/queues", &wanted).await;
        made.context("cannot reach the server")?.success()?;
        let mut addresses = tokio::net::lookup_host(self.server.authority()).await?;
        let load = self.load(addresses.next().context("the server has no address")?)?;
        let before = (server_cpu(&mut client).await, usage().cpu);
        let clock = RealClock::new();
        // Nothing else is to be done on this thread meanwhile.
        let cycles = cycles::run(&load, &clock)?;
        let took = clock.elapsed().as_secs_f64();
        // The connection of before may have been closed as idle.
        let mut client = Client::new(&self.server)?;
        let after = (server_cpu(&mut client).await, usage().cpu);
        let path = format!("/api/queues/{}", self.queue);
        let deleted = client.request(Method::DELETE, &path, &[], Bytes::new());
        deleted.await?.success()?;
        let server = before.0.zip(after.0).map(|(before, after)| after - before);
        let own = before.1.zip(after.1);
        let own = own.map(|(before, after)| (after - before).as_secs_f64());
        self.report(cycles, took, server, own)
    }

    fn load(&self, address: SocketAddr) -> anyhow::Result<Load> {
        let path = |what: &str| format!("/queues/{}/{what}", self.queue);
        let head = |what: &str| Head::post(&self.server, &path(what));
        let filler = "x".repeat(self.bytes.saturating_sub(2) as usize);
        let send = match self.batch {
            1 => head("messages")?.with(json!(filler).to_string().as_bytes()),
            batch => {
                let messages = vec![json!({"body": filler}); batch as usize];
                head("batch")?.with(&serde_json::to_vec(&messages)?)
            }
        };
        Ok(Load {
            address,
            connections: self.connections as usize,
            send,
            receive: head(&format!("receive?max={}&wait=1s", self.batch))?,
            complete: self.apart.then(|| head("complete")).transpose()?,
            batch: self.batch,
            time: Duration::from_secs(self.seconds),
        })
    }

    fn report(
        &self,
        cycles: u64,
        took: f64,
        server: Option<f64>,
        own: Option<f64>,
    ) -> anyhow::Result<Ending> {
        let rate = cycles as f64 / took;
        let micros = |cpu: Option<f64>| cpu.map(|cpu| cpu * 1e6 / cycles.max(1) as f64);
        let (server, own) = (micros(server), micros(own));
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
                "{rate:.0} messages/s sent, received and completed; us of CPU each: server {}, own {}",
                shown(server),
                shown(own),
            )?;
        }
        Ok(Ending::Well)
    }
}
