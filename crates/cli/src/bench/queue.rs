//! `highwater bench queue`: messages sent, received and completed as fast as a node takes them, each
//! step durable before it is answered.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use highwater_env::{Clock, RealClock};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinSet;

use super::http::server_cpu;
use crate::block_on::block_on;
use crate::client::{Client, Server};
use crate::exit::Ending;

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
    #[arg(long)]
    json: bool,
}

/// What is shared by the connections.
struct Load {
    server: Server,
    path: String,
    batch: u64,
    body: Bytes,
    clock: RealClock,
    end: Duration,
    completed: AtomicU64,
}

impl BenchQueue {
    pub fn run(self) -> anyhow::Result<Ending> {
        // One thread: what the generator takes is taken from the server.
        block_on(self.measure())
    }

    async fn measure(self) -> anyhow::Result<Ending> {
        let mut client = Client::new(&self.server)?;
        let wanted = json!({"name": self.queue});
        let made = client.send_json(Method::POST, "/api/queues", &wanted).await;
        made.context("cannot reach the server")?.success()?;
        let filler = "x".repeat(self.bytes.saturating_sub(2) as usize);
        let messages = vec![json!({"body": filler}); self.batch as usize];
        let load = Arc::new(Load {
            server: self.server.clone(),
            path: format!("/queues/{}", self.queue),
            batch: self.batch,
            body: serde_json::to_vec(&messages)?.into(),
            clock: RealClock::new(),
            end: Duration::from_secs(self.seconds),
            completed: AtomicU64::new(0),
        });
        let before = server_cpu(&mut client).await;
        let mut tasks = JoinSet::new();
        for _ in 0..self.connections {
            tasks.spawn(send(load.clone()));
            tasks.spawn(receive(load.clone()));
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let took = load.clock.elapsed().as_secs_f64();
        let after = server_cpu(&mut client).await;
        let path = format!("/api/queues/{}", self.queue);
        let deleted = client.request(Method::DELETE, &path, &[], Bytes::new());
        deleted.await?.success()?;
        let cycles = load.completed.load(Ordering::Relaxed);
        let cpu = before.zip(after).map(|(before, after)| after - before);
        self.report(cycles, took, cpu)
    }

    fn report(&self, cycles: u64, took: f64, cpu: Option<f64>) -> anyhow::Result<Ending> {
        let rate = cycles as f64 / took;
        let micros = cpu.map(|cpu| cpu * 1e6 / cycles as f64);
        if self.json {
            let answer = json!({
                "cycles": cycles, "seconds": took, "cycles_per_second": rate,
                "server_cpu_micros_per_cycle": micros,
            });
            writeln!(stdout(), "{answer}")?;
        } else {
            let cost = micros.map_or(String::new(), |it| format!(", {it:.1} us of CPU each"));
            writeln!(
                stdout(),
                "{rate:.0} messages/s sent, received and completed{cost}"
            )?;
        }
        Ok(Ending::Well)
    }
}

impl Load {
    fn is_over(&self) -> bool {
        self.clock.elapsed() >= self.end
    }
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn send(load: Arc<Load>) -> anyhow::Result<()> {
    let mut client = Client::new(&load.server)?;
    let path = format!("{}/batch", load.path);
    while !load.is_over() {
        let sent = client.request(Method::POST, &path, &JSON, load.body.clone());
        sent.await?.success()?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Got<'a> {
    #[serde(borrow)]
    messages: Vec<Held<'a>>,
}

#[derive(Deserialize)]
struct Held<'a> {
    token: &'a str,
}

#[derive(Serialize)]
struct Settle<'a> {
    tokens: Vec<&'a str>,
}

async fn receive(load: Arc<Load>) -> anyhow::Result<()> {
    let mut client = Client::new(&load.server)?;
    let receive = format!("{}/receive?max={}&wait=1s", load.path, load.batch);
    let complete = format!("{}/complete", load.path);
    while !load.is_over() {
        let got = client.request(Method::POST, &receive, &[], Bytes::new());
        let got = got.await?.success()?;
        let got: Got<'_> = serde_json::from_slice(&got.body)?;
        if got.messages.is_empty() {
            continue;
        }
        let tokens = got.messages.iter().map(|held| held.token).collect();
        let body = serde_json::to_vec(&Settle { tokens })?;
        let settled = client.request(Method::POST, &complete, &JSON, body.into());
        let settled = settled.await?;
        let settled = settled.success()?.json()?["settled"].as_u64();
        load.completed
            .fetch_add(settled.unwrap_or(0), Ordering::Relaxed);
    }
    Ok(())
}
