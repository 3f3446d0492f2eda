//! The overhead of a pipeline: CPU seconds for a million events with no-op handlers.
//!
//! `cargo run --release -p highwater-flow --example flow_speed`
//!
//! Events have 80 bytes and one of a thousand keys, in batches of 1,000, on a log in memory. The baseline is reading
//! alone.

use std::future::pending;
use std::sync::Arc;

use highwater_env::{RealClock, usage};
use highwater_flow::{
    DeadLetterPartition, Delivery, Event, Failure, MemoryPositions, Options, Order,
    PartitionSource, Sink, Stage, run,
};
use highwater_log::batch::NewRecord;
use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog, Offset, Partition};

const EVENTS: u64 = 1_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log = MemoryLog::new(|| 0);
    for name in ["tolls", "dead"] {
        let (name, settings) = (HubName::new(name)?, HubSettings::default());
        let partitions = 1;
        log.create(HubSpec {
            name,
            partitions,
            settings,
        })
        .await?;
    }
    let tolls = log.partition("tolls", 0).ok_or("it was just created")?;
    let dead = log.partition("dead", 0).ok_or("it was just created")?;
    fill(&*tolls).await?;

    let source =
        || PartitionSource::new(Arc::clone(&tolls), Offset(0)).until(Offset(EVENTS as i64));
    println!("{:>24} {:>12}", "", "CPU seconds");
    measure("read", source(), &dead).await?;
    let kept = source()
        .map(|event| event.timestamp())
        .filter(|at| *at >= 0);
    measure("map, filter", kept, &dead).await?;
    for (name, order) in [
        ("handle", Order::None),
        ("handle, order of output", Order::Output),
        ("handle, order of key", Order::Key),
    ] {
        let options = Options {
            order,
            concurrency: 64,
            ..Options::default()
        };
        let handled = source().handle(options, async |_: Delivery<Event>| Ok::<_, Failure>(()));
        measure(name, handled, &dead).await?;
    }
    let nothing = async |_: Vec<Delivery<Event>>| Ok(());
    let batches = source().handle_batches(100, Options::default(), nothing);
    measure("batches of 100", batches, &dead).await
}

async fn fill(partition: &dyn Partition) -> Result<(), Box<dyn std::error::Error>> {
    for batch in 0..EVENTS / 1000 {
        let keys: Vec<_> = (0..1000).map(|n: u64| (batch + n) % 1000).collect();
        let keys: Vec<_> = keys.iter().map(|key| key.to_be_bytes()).collect();
        let record = |key| NewRecord {
            key: Some(key),
            value: Some(&[7; 80]),
            headers: &[],
        };
        let records: Vec<_> = keys.iter().map(|key| record(&key[..])).collect();
        partition.append_records(&records).await?;
    }
    Ok(())
}

async fn measure(
    name: &str,
    stage: impl Stage,
    dead: &Arc<dyn Partition>,
) -> Result<(), Box<dyn std::error::Error>> {
    let dead_letters = Arc::new(DeadLetterPartition(Arc::clone(dead)));
    let sink = Sink::new(
        Arc::new(MemoryPositions::default()),
        dead_letters,
        Arc::new(RealClock::new()),
    );
    let before = usage().cpu.unwrap_or_default();
    let summary = run(stage, sink, pending()).await?;
    assert_eq!(summary.handled, EVENTS);
    let cpu = usage().cpu.unwrap_or_default().saturating_sub(before);
    println!("{name:>24} {:>12.2}", cpu.as_secs_f64());
    Ok(())
}
