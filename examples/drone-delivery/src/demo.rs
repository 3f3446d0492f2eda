//! Runs the whole application: services, node, customers and drones, until Ctrl-C.

use std::time::Duration;

use crate::chaos::Faults;
use crate::client::Client;
use crate::fleet::Fleet;
use crate::load::Load;
use crate::model::Stage;
use crate::outcomes::{self, Counts};
use crate::serve::Kind;
use crate::stack::{Options, Process, Stack};

/// Run the whole application with customers and drones, until Ctrl-C.
#[derive(Clone, Debug, clap::Args)]
pub struct Demo {
    #[command(flatten)]
    stack: Options,
    /// Requests a second
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Average flight time in seconds
    #[arg(long, default_value_t = 20)]
    flight: u64,
    /// The share of calls that fail at each service, in percent
    #[arg(long, default_value_t = 0.0)]
    failing: f64,
}

const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

impl Demo {
    pub async fn run(self) -> anyhow::Result<()> {
        let faults = Faults::failing(self.failing, 3000);
        let mut stack = Stack::start(self.stack.clone(), faults).await?;
        let name = format!("demo-{}", std::process::id());
        stack.register(&name).await?;
        print_addresses(&stack);
        let at = |kind| stack.address(Process::of(kind));
        let fleet = Fleet {
            node: stack.address(Process::Node),
            delivery: at(Kind::Delivery),
            drone: at(Kind::Drone),
            flight: Duration::from_secs(self.flight),
        };
        let load = Load {
            to: at(Kind::Ingestion),
            requests: u64::MAX,
            rate: self.rate,
            spike: None,
            connections: 16,
            timeout_ms: 15_000,
            tries: 240,
            name,
            ledger: None,
            mix: Default::default(),
        };
        tokio::select! {
            () = fleet.run() => {}
            ended = load.run() => { ended?; }
            () = print_progress(&stack) => {}
            stop = tokio::signal::ctrl_c() => stop?,
        }
        println!("\nstopping");
        stack.stop().await
    }
}

fn print_addresses(stack: &Stack) {
    println!(
        "Drone Delivery runs; its data and logs are in {}",
        stack.data().display()
    );
    for process in Process::all().filter(|process| *process != Process::Supervisor) {
        println!("  {:<12} http://{}", process.name(), stack.address(process));
    }
    let ingestion = stack.address(Process::of(Kind::Ingestion));
    println!("\nAsk for a drone yourself:\n");
    println!(
        "  curl -i http://{ingestion}/api/deliveryrequests -H 'content-type: application/json' -d '{{"
    );
    println!(
        "    \"ownerId\": \"me\", \"pickupLocation\": \"1 Market Street\", \"dropOffLocation\": \"2 Harbour Road\","
    );
    println!("    \"packageInfo\": {{\"size\": \"Small\", \"weight\": 2}}}}'\n");
    println!(
        "Make a service fail: curl -X PUT http://{}/chaos -d '{{\"errors\": 0.3}}'",
        stack.address(Process::of(Kind::Drone))
    );
    println!("Ctrl-C stops everything.\n");
}

/// Prints regularly how many deliveries reached which stage, and the state of the workflows.
async fn print_progress(stack: &Stack) {
    let mut history = Client::new(stack.address(Process::of(Kind::History)), PROGRESS_INTERVAL);
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let summary = history.get("/api/deliveryhistory").await;
        let summary = summary
            .ok()
            .and_then(|reply| reply.json())
            .unwrap_or_default();
        let counts = outcomes::counts(&stack.address(Process::Node))
            .await
            .unwrap_or_default();
        let stages = Stage::ALL.iter().map(|stage| {
            let count = summary["stages"][stage.name()].as_u64().unwrap_or(0);
            format!("{} {count}", stage.name())
        });
        let stages = stages.collect::<Vec<_>>().join("  ");
        let Counts {
            running,
            parked,
            ended,
        } = counts;
        println!("{stages}  |  workflows: {ended} ended, {running} under way, {parked} parked");
    }
}
