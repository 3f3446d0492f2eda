//! A processor embedded in a program: a local hub, a consumer group, a function as handler, dead letters and a circuit.
//!
//! `cargo run -p highwater-flow --example processor`
//!
//! Any log with consumer groups can replace the hub: `highwater_kafka` has one that is a remote cluster, and its
//! `examples/remote.rs` is this example over Kafka.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_env::{RealClock, RealDisk};
use highwater_flow::CheckpointInterval;
use highwater_flow::circuit::Rule;
use highwater_flow::{
    Assignment, Breaker, DeadLetterFilter, DeadLetterPartition, Delivery, Event, Failure,
    GroupMember, GroupTimeouts, Options, Order, Processor, ProcessorStats, StartPosition,
};
use highwater_hub::{Hub, groups};
use highwater_log::batch::NewRecord;
use highwater_log::{CleanupPolicy, HubName, HubSettings, HubSpec, Log, Offset};
use highwater_retry::{Backoff, RetryPolicy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (clock, folder) = (Arc::new(RealClock::new()), tempfile::tempdir()?);
    let options = highwater_hub::Options::default();
    let hub = Hub::open(
        Arc::new(RealDisk),
        folder.path(),
        options,
        clock.clone(),
        &|_| {},
    )?;
    let log: Arc<dyn Log> = Arc::new(hub.clone());
    create_hubs(&*log).await?;
    let service = groups::Service::new(
        log.clone(),
        clock.clone(),
        Random::from_os(),
        groups::Options::default(),
    );
    let positions = Arc::new(service.handle());
    tokio::spawn(service.run(std::future::pending()));
    let letters = DeadLetterPartition(
        log.partition("billing.dead", 0)
            .ok_or("it was just created")?,
    );
    let stats = Arc::new(ProcessorStats::default());
    let member = GroupMember {
        log,
        groups: positions,
        hub: HubName::new("orders")?,
        group: "billing".into(),
        client: "example".into(),
        assignment: Assignment::Shared { instance: None },
        timeouts: GroupTimeouts::default(),
    };
    let processor = processor(member, &letters, clock, stats.clone());
    let handler = Arc::new(async |deliveries: Vec<Delivery<Event>>| {
        for delivery in deliveries {
            let text = String::from_utf8_lossy(delivery.event.value().unwrap_or_default());
            let amount: u32 = text.parse().map_err(Failure::permanent)?;
            println!(
                "{}, attempt {}: {amount}",
                delivery.event.id(),
                delivery.attempt
            );
        }
        Ok(())
    });
    let end = {
        let stats = stats.clone();
        async move {
            use std::sync::atomic::Ordering::Relaxed;
            while stats.handled.load(Relaxed) + stats.dead.load(Relaxed) < 4 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    processor.run(handler, end).await;
    for stored in letters
        .find(&DeadLetterFilter::default(), Offset(0), 10)
        .await?
        .letters
    {
        let letter = stored.letter;
        println!(
            "dead letter {}: {}",
            letter.event.id(),
            letter.attempts[0].reason
        );
    }
    hub.stop();
    Ok(())
}

/// The hub of orders, with four of them, and the hub of dead letters.
async fn create_hubs(log: &dyn Log) -> Result<(), Box<dyn std::error::Error>> {
    for (name, cleanup) in [
        ("orders", CleanupPolicy::Delete),
        ("billing.dead", CleanupPolicy::Compact),
    ] {
        let (name, settings) = (
            HubName::new(name)?,
            HubSettings {
                cleanup,
                ..HubSettings::default()
            },
        );
        log.create(HubSpec {
            name,
            partitions: 1,
            settings,
        })
        .await?;
    }
    let orders = log.partition("orders", 0).ok_or("it was just created")?;
    for amount in ["12", "7", "a dozen", "30"] {
        let (key, value, headers) = (Some(&b"customer-9"[..]), Some(amount.as_bytes()), &[][..]);
        orders
            .append_records(&[NewRecord {
                key,
                value,
                headers,
            }])
            .await?;
    }
    Ok(())
}

fn processor(
    member: GroupMember,
    letters: &DeadLetterPartition,
    clock: Arc<RealClock>,
    stats: Arc<ProcessorStats>,
) -> Processor {
    Processor {
        member,
        start: StartPosition::Earliest,
        share: None,
        check: None,
        batch: None,
        options: Options {
            order: Order::Key,
            retry: RetryPolicy {
                backoff: Backoff::Fixed(Duration::from_millis(50)),
                tries_max: Some(3),
                ..RetryPolicy::default()
            },
            circuit: Some(Breaker::alone(Rule::default(), clock.clone())),
            ..Options::default()
        },
        checkpoint_interval: CheckpointInterval::default(),
        dead_letters: Arc::new(letters.clone()),
        clock,
        restart: RetryPolicy {
            tries_max: None,
            ..RetryPolicy::default()
        },
        stats,
    }
}
