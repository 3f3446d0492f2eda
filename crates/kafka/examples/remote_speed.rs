//! The cost of the client: CPU seconds of this process for a million events, appended to a broker and read back.
//!
//! ```text
//! cargo run --release -p highwater-kafka --example remote_speed -- localhost:9092
//! ```
//!
//! Events have 200 bytes, on 4 partitions. The broker is another process, whose cost is not included;
//! the elapsed seconds depend on it.

use std::sync::Arc;

use highwater_env::random::Random;
use highwater_env::{Clock, RealClock, usage};
use highwater_kafka::client::{Options, Remote};
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord};
use highwater_log::{HubName, HubSettings, HubSpec, Isolation, Log, Offset, Partition};

const EVENTS: usize = 1_000_000;
const PARTITIONS: u32 = 4;
const VALUE: [u8; 200] = [7; 200];
/// Events in flight.
const AHEAD: usize = 20_000;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let server = std::env::args().nth(1).ok_or("which broker?")?;
    let clock = Arc::new(RealClock::new());
    let remote = Remote::connect(Options::new([server]), clock.clone()).await?;
    println!("{:>24} {:>12} {:>12}", "", "CPU seconds", "seconds");
    let partitions = make(&remote).await?;
    measure("append, batches of 500", &*clock, batches(&partitions)).await?;
    measure("read", &*clock, read(&partitions)).await?;
    let partitions = make(&remote).await?;
    measure("append, single events", &*clock, singles(&partitions)).await
}

async fn make(remote: &Remote) -> Result<Vec<Arc<dyn Partition>>, Box<dyn std::error::Error>> {
    let name = format!("speed-{:016x}", Random::from_os().next_u64());
    let spec = HubSpec {
        name: HubName::new(&name)?,
        partitions: PARTITIONS,
        settings: HubSettings::default(),
    };
    remote.create(spec).await?;
    let partitions = (0..PARTITIONS).map(|number| remote.partition(&name, number));
    Ok(partitions
        .collect::<Option<_>>()
        .ok_or("it was just made")?)
}

async fn measure(name: &str, clock: &dyn Clock, work: impl Future<Output = Outcome>) -> Outcome {
    let (cpu, began) = (usage().cpu.unwrap_or_default(), clock.elapsed());
    work.await?;
    let cpu = usage().cpu.unwrap_or_default().saturating_sub(cpu);
    let took = clock.elapsed().saturating_sub(began);
    println!(
        "{name:>24} {:>12.2} {:>12.2}",
        cpu.as_secs_f64(),
        took.as_secs_f64()
    );
    Ok(())
}

fn event() -> NewRecord<'static> {
    NewRecord {
        key: None,
        value: Some(&VALUE),
        headers: &[],
    }
}

fn batch(count: usize) -> Result<Batch, highwater_log::batch::BatchError> {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.push(&event());
    }
    builder.build(&BatchOptions::default())
}

async fn batches(partitions: &[Arc<dyn Partition>]) -> Outcome {
    const COUNT: usize = 500;
    let mut pending = std::collections::VecDeque::new();
    for number in 0..EVENTS / COUNT {
        pending.push_back(partitions[number % partitions.len()].append(batch(COUNT)?));
        if pending.len() * COUNT >= AHEAD
            && let Some(first) = pending.pop_front()
        {
            first.await?;
        }
    }
    for appended in pending {
        appended.await?;
    }
    Ok(())
}

async fn singles(partitions: &[Arc<dyn Partition>]) -> Outcome {
    let mut pending = std::collections::VecDeque::new();
    for number in 0..EVENTS {
        let partition = &partitions[number % partitions.len()];
        pending.push_back(partition.append_records(&[event()]));
        if pending.len() >= AHEAD
            && let Some(first) = pending.pop_front()
        {
            first.await?;
        }
    }
    for appended in pending {
        appended.await?;
    }
    Ok(())
}

/// Decodes every record.
async fn read(partitions: &[Arc<dyn Partition>]) -> Outcome {
    let mut decompressor = Decompressor::new(1 << 26);
    let mut count = 0;
    for partition in partitions {
        let mut next = Offset(0);
        let end = partition.fetch_bounds().await?.end;
        while next < end {
            let read = partition.read(next, 1 << 20, Isolation::Committed);
            for piece in read.await?.pieces {
                for stored in Batches::new(&piece) {
                    let stored = stored?;
                    for record in stored.records(&mut decompressor)? {
                        count += usize::from(record?.value == Some(&VALUE));
                    }
                    next = stored.header.next_offset();
                }
            }
        }
    }
    assert_eq!(count, EVENTS);
    Ok(())
}
