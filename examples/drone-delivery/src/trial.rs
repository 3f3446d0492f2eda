//! The chaos trial: a load spike on failing services, one of them down for a while, and processes killed again and
//! again. Then the checker.

use std::time::Duration;

use highwater_env::random::Random;
use highwater_env::{Clock, RealClock};
use hyper::Method;
use serde_json::Value;

use crate::chaos::Faults;
use crate::check::{gather, read_lines, verify};
use crate::ledger::{CustomerAction, Entry};
use crate::load::Load;
use crate::node::Node;
use crate::outcomes::{self, Counts};
use crate::serve::Kind;
use crate::services::delivery::publish::HUB;
use crate::stack::{Options, Process, Stack};

/// Run everything, make it fail, and check the result.
#[derive(Clone, Debug, clap::Args)]
pub struct Trial {
    #[command(flatten)]
    stack: Options,
    /// Number of requests
    #[arg(long, default_value_t = 2000)]
    requests: u64,
    /// Requests a second
    #[arg(long, default_value_t = 500)]
    rate: u64,
    /// Number of kills: in turn the node (with the scheduler), the supervisor, and a service
    #[arg(long, default_value_t = 6)]
    kills: u64,
    /// The share of calls that fail at each service, in percent: half with an error, half without an answer
    #[arg(long, default_value_t = 5.0)]
    failing: f64,
    /// How long the delivery service is down, in seconds; longer than a step is retried
    #[arg(long, default_value_t = 20)]
    dead: u64,
    /// Seed of the order of kills
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timeout after the last kill, in seconds
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

/// Longer than a step's timeout, so that a late response counts as none.
const LATE_MS: u64 = 3000;

impl Trial {
    /// Returns whether there are no violations.
    pub async fn run(self) -> anyhow::Result<bool> {
        let clock = RealClock::new();
        anyhow::ensure!(
            !self.stack.data.join("ledger.jsonl").exists(),
            "{} holds another trial: choose a new folder with --data",
            self.stack.data.display()
        );
        let faults = Faults {
            latency_ms: 5,
            jitter_ms: 45,
            ..Faults::failing(self.failing, LATE_MS)
        };
        let mut stack = Stack::start(self.stack.clone(), faults).await?;
        stack.register("trial").await?;
        let say = |text: String| println!("{:>6.1}s  {text}", clock.elapsed().as_secs_f64());
        say(format!(
            "everything runs; {} requests at {}/s",
            self.requests, self.rate
        ));
        let load = tokio::spawn(self.load(&stack).run());
        self.kill(&mut stack, &say).await?;
        let summary = load.await??;
        say(format!("{} requests were accepted", summary.accepted));
        let ledger = read_lines::<Entry>(&stack.data().join("ledger.jsonl"))?;
        self.settle(&stack, ledger.len() as u64, &clock, &say)
            .await?;
        let asked = ledger
            .into_iter()
            .filter(|entry| entry.wish == CustomerAction::Deliver);
        let asked = asked.map(|entry| entry.id).collect();
        let outcomes = outcomes::of(&stack.address(Process::Node), asked).await?;
        outcomes::write(&stack.data().join("outcomes.jsonl"), &outcomes)?;
        stack.stop().await?;
        say("everything is stopped; the checker reads the journals".to_owned());
        let report = verify(&gather(stack.data()).await?);
        print!("{report}");
        Ok(report.violations.is_empty() && summary.lost == 0)
    }

    fn load(&self, stack: &Stack) -> Load {
        Load {
            to: stack.address(Process::of(Kind::Ingestion)),
            requests: self.requests,
            rate: self.rate,
            spike: None,
            connections: 512,
            timeout_ms: 15_000,
            tries: 240,
            name: "trial".to_owned(),
            ledger: Some(stack.data().join("ledger.jsonl")),
            mix: Default::default(),
        }
    }

    /// Kills in turn the node, the supervisor and a service, at random moments. In the middle the delivery service goes
    /// down for a while, when drones have been assigned already.
    async fn kill(&self, stack: &mut Stack, say: &impl Fn(String)) -> anyhow::Result<()> {
        let mut random = Random::seeded(self.seed);
        let dead = Process::of(Kind::Delivery);
        for number in 0..self.kills {
            pause(1000 + random.below(2000)).await;
            if number == self.kills / 2 && self.dead > 0 {
                stack.kill(dead).await?;
                say(format!("killed {} for {} s", dead.name(), self.dead));
                pause(self.dead * 1000).await;
                stack.launch(dead)?;
                stack.ready(dead).await?;
            }
            let process = match number % 3 {
                0 => Process::Node,
                1 => Process::Supervisor,
                _ => Process::Service(random.below(Kind::ALL.len() as u64) as usize),
            };
            stack.kill(process).await?;
            say(format!("killed {}", process.name()));
            pause(random.below(500)).await;
            stack.launch(process)?;
            stack.ready(process).await?;
        }
        Ok(())
    }
}

impl Trial {
    /// Waits until every accepted request has ended or is parked, and the history has read all events. After a timeout,
    /// the checker reports what is missing.
    async fn settle(
        &self,
        stack: &Stack,
        accepted: u64,
        clock: &RealClock,
        say: &impl Fn(String),
    ) -> anyhow::Result<()> {
        const EVERY_MS: u64 = 500;
        const SAID_EVERY: u64 = 20;
        let most = clock.elapsed() + Duration::from_secs(self.patience);
        for look in 0.. {
            let counts = outcomes::counts(&stack.address(Process::Node)).await?;
            let settled =
                counts.ended + counts.parked >= accepted && counts.running == counts.parked;
            if look % SAID_EVERY == 0 || settled {
                let Counts {
                    running,
                    parked,
                    ended,
                } = counts;
                say(format!(
                    "{ended} ended, {running} under way, {parked} parked"
                ));
            }
            if clock.elapsed() > most || (settled && history_is_current(stack).await?) {
                break;
            }
            pause(EVERY_MS).await;
        }
        // The last event of a delivery may still be in flight to the hub.
        pause(2 * EVERY_MS).await;
        while clock.elapsed() < most && !history_is_current(stack).await? {
            pause(EVERY_MS).await;
        }
        Ok(())
    }
}

/// The history has read every event on the hub. Offsets alone do not tell: a hub also holds punctuations, which are not
/// returned.
async fn history_is_current(stack: &Stack) -> anyhow::Result<bool> {
    let history = Process::of(Kind::History);
    let summary = stack
        .ask(history, Method::GET, "/api/deliveryhistory", &Value::Null)
        .await?;
    let read = summary
        .json()
        .map(|summary| summary["read"].clone())
        .unwrap_or_default();
    let mut node = Node::new(&stack.address(Process::Node), Duration::from_secs(60));
    for partition in 0..node.partitions(HUB).await? {
        let from = read[partition.to_string()].as_i64().unwrap_or(0);
        if !node
            .read(HUB, partition, from, 0)
            .await?
            .messages
            .is_empty()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
