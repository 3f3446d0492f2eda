//! A load spike at the public API: latencies, and the CPU cost of a request by process.
//!
//! Node, ingestion and load share this machine. CPU time is read where the spike begins and ends, because the node's
//! cost per request falls with the rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use highwater_env::usage;

use crate::ingestion::REQUESTS;
use crate::load::{Load, LoadReport, Mix};
use crate::node::Node;
use crate::serve::Kind;
use crate::stack::{Options, Process, Stack};

/// Measure the public API: a steady rate, a spike in the middle, the steady rate again.
#[derive(Clone, Debug, clap::Args)]
pub struct Spike {
    #[command(flatten)]
    stack: Options,
    /// Number of requests, a third of them in the spike
    #[arg(long, default_value_t = 900_000)]
    requests: u64,
    /// Requests a second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Requests a second in the spike
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    spike: u64,
    /// Number of connections
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=8000))]
    connections: u64,
}

/// Limit of the 99th percentile.
const P99_MAX: Duration = Duration::from_millis(500);

impl Spike {
    /// Returns whether every request was accepted in time.
    pub async fn run(self) -> anyhow::Result<bool> {
        let mut stack = Stack::start_public_api(self.stack.clone()).await?;
        let load = self.load(&stack);
        let schedule = load.schedule();
        let accepted = Arc::new(AtomicU64::new(0));
        let read = || Reading::of(&stack, accepted.load(Ordering::Relaxed));
        let mut readings = vec![read()];
        let load = tokio::spawn(load.run_watched(accepted.clone()));
        let mut passed = Duration::ZERO;
        for number in schedule.spike() {
            let (due, _) = schedule.due(number).unwrap_or_default();
            tokio::time::sleep(due.saturating_sub(passed)).await;
            passed = due;
            readings.push(read());
        }
        let report = load.await??;
        readings.push(read());
        print_costs(&readings);
        let mut node = Node::new(&stack.address(Process::Node), Duration::from_secs(60));
        let kept = node.appended(REQUESTS).await?;
        println!(
            "\nthe hub has {kept} events of {} that were accepted",
            report.accepted
        );
        stack.stop().await?;
        Ok(is_successful(&report) && kept >= report.accepted)
    }

    fn load(&self, stack: &Stack) -> Load {
        Load {
            to: stack.address(Process::of(Kind::Ingestion)),
            requests: self.requests,
            rate: self.rate,
            spike: Some(self.spike),
            connections: self.connections,
            timeout_ms: 10_000,
            tries: 10,
            name: "spike".to_owned(),
            ledger: Some(stack.data().join("ledger.jsonl")),
            mix: Mix {
                cancelled: 0,
                ..Mix::default()
            },
        }
    }
}

/// CPU times of load, ingestion and node, and the number of accepted requests.
struct Reading {
    cpu: [Duration; 3],
    accepted: u64,
}

impl Reading {
    fn of(stack: &Stack, accepted: u64) -> Reading {
        let cpu = [
            usage().cpu.unwrap_or_default(),
            stack.cpu(Process::of(Kind::Ingestion)),
            stack.cpu(Process::Node),
        ];
        Reading { cpu, accepted }
    }

    /// Microseconds per request since the reading before.
    fn costs(&self, before: &Reading) -> [f64; 3] {
        let requests = (self.accepted - before.accepted).max(1) as f64;
        let spent = |at: usize| self.cpu[at].saturating_sub(before.cpu[at]);
        std::array::from_fn(|at| spent(at).as_secs_f64() * 1e6 / requests)
    }
}

fn print_costs(readings: &[Reading]) {
    println!("\nCPU us a request    load  ingestion  node   all");
    for (phase, pair) in ["before", "spike", "after"].iter().zip(readings.windows(2)) {
        let [load, ingestion, node] = pair[1].costs(&pair[0]);
        let all = load + ingestion + node;
        println!("{phase:<16}{load:>8.1}{ingestion:>11.1}{node:>6.1}{all:>6.1}");
    }
}

fn is_successful(report: &LoadReport) -> bool {
    let most = report
        .latencies
        .iter()
        .map(|latencies| latencies.value_at_quantile(0.99));
    let soon = most
        .max()
        .is_none_or(|most| Duration::from_micros(most) < P99_MAX);
    soon && report.refused + report.timed_out + report.broken + report.lost == 0
}
