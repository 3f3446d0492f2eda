//! A spike at the public API: how long customers wait, and what a request costs whom.
//!
//! Node, ingestion and load share this machine. CPU is read where the spike begins and ends, because a request costs the
//! node less the more of them there are.

use std::time::Duration;

use highwater_env::usage;

use crate::load::{Book, Load, Mix};
use crate::serve::Kind;
use crate::stack::{Options, Part, Stack};

/// Measure the public API: a steady rate, a spike in the middle, the steady rate again.
#[derive(Clone, Debug, clap::Args)]
pub struct Spike {
    #[command(flatten)]
    stack: Options,
    /// Requests that customers send, a third of them in the spike
    #[arg(long, default_value_t = 900_000)]
    requests: u64,
    /// Requests a second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Requests a second in the spike
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    spike: u64,
    /// Connections that the requests are spread over
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=8000))]
    connections: u64,
}

/// What one request in a hundred may exceed.
const P99_MAX: Duration = Duration::from_millis(500);

impl Spike {
    /// Whether every request was taken, and soon.
    pub async fn run(self) -> anyhow::Result<bool> {
        let mut stack = Stack::start_door(self.stack.clone()).await?;
        let load = self.load(&stack);
        let schedule = load.schedule();
        let load = tokio::spawn(load.run());
        let mut readings = vec![Reading::of(&stack)];
        let mut passed = Duration::ZERO;
        for number in schedule.turns() {
            let (due, _) = schedule.due(number).unwrap_or_default();
            tokio::time::sleep(due.saturating_sub(passed)).await;
            passed = due;
            readings.push(Reading::of(&stack));
        }
        let book = load.await??;
        readings.push(Reading::of(&stack));
        stack.stop().await?;
        self.tell_costs(&readings);
        Ok(is_well(&book))
    }

    fn load(&self, stack: &Stack) -> Load {
        Load {
            to: stack.address(Part::of(Kind::Ingestion)),
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

    fn tell_costs(&self, readings: &[Reading]) {
        let third = (self.requests / 3).max(1) as f64;
        println!("\nCPU us a request   load  ingestion  node   all");
        let phases = ["before", "spike", "after"];
        for (name, pair) in phases.iter().zip(readings.windows(2)) {
            let costs: Vec<f64> = pair[1]
                .0
                .iter()
                .zip(pair[0].0)
                .map(|(after, before)| after.saturating_sub(before).as_secs_f64() * 1e6 / third)
                .collect();
            println!(
                "  {name:<14}{:>8.1}{:>11.1}{:>6.1}{:>6.1}",
                costs[0],
                costs[1],
                costs[2],
                costs.iter().sum::<f64>(),
            );
        }
    }
}

/// CPU time of load, ingestion and node so far.
struct Reading([Duration; 3]);

impl Reading {
    fn of(stack: &Stack) -> Reading {
        Reading([
            usage().cpu.unwrap_or_default(),
            stack.cpu(Part::of(Kind::Ingestion)),
            stack.cpu(Part::Node),
        ])
    }
}

fn is_well(book: &Book) -> bool {
    let most = book
        .latencies
        .iter()
        .map(|latencies| latencies.value_at_quantile(0.99));
    let soon = most
        .max()
        .is_none_or(|most| Duration::from_micros(most) < P99_MAX);
    soon && book.refused + book.timed_out + book.broken + book.lost == 0
}
