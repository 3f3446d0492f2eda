//! The effect of slow events on others: with sixteen events in progress, and in batches.
//!
//! `cargo run --release -p highwater-flow --example slow_event`
//!
//! Of 5,000 events that take 20 ms each, every thousandth takes a second: 105 s of work, or 6.6 s for each of sixteen
//! workers. Timers are late, the more so on a busy machine, so the same sleeps without a pipeline are the baseline. A
//! thousand events follow each slow one and take longer than it does, so no worker runs out of events at the end.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use highwater_env::{Clock, RealClock};
use highwater_flow::{
    DeadLetterPartition, Delivery, Event, Failure, MemoryPositions, Options, PartitionSource, Sink,
    Stage, run,
};
use highwater_log::batch::NewRecord;
use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog, Offset, Partition};

const EVENTS: i64 = 5_000;
const EVERY: i64 = 1_000;
const PLACES: usize = 16;
const QUICK: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_secs(1);

async fn handle(event: &Event) {
    work(event.offset().0).await;
}

async fn work(offset: i64) {
    let slow = offset % EVERY == 0;
    tokio::time::sleep(if slow { SLOW } else { QUICK }).await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log = MemoryLog::new(|| 0);
    for name in ["orders", "dead"] {
        let (name, settings) = (HubName::new(name)?, HubSettings::default());
        log.create(HubSpec {
            name,
            partitions: 1,
            settings,
        })
        .await?;
    }
    let orders = log.partition("orders", 0).ok_or("it was just created")?;
    let dead = log.partition("dead", 0).ok_or("it was just created")?;
    let (key, value, headers) = (None, Some(&b"{}"[..]), &[][..]);
    let records = vec![
        NewRecord {
            key,
            value,
            headers
        };
        EVENTS as usize
    ];
    orders.append_records(&records).await?;

    let source = || PartitionSource::new(Arc::clone(&orders), Offset(0)).until(Offset(EVENTS));
    let options = || Options {
        concurrency: PLACES,
        ..Options::default()
    };
    let one_by_one = source().handle(options(), async |delivery: Delivery<Event>| {
        handle(&delivery.event).await;
        Ok::<_, Failure>(())
    });
    let alone = measure(one_by_one, &dead).await?;
    let batches = source().handle_batches(
        PLACES,
        options(),
        async |deliveries: Vec<Delivery<Event>>| {
            let mut tasks = tokio::task::JoinSet::new();
            for delivery in deliveries {
                tasks.spawn(async move { handle(&delivery.event).await });
            }
            tasks.join_all().await;
            Ok::<_, Failure>(())
        },
    );
    let batched = measure(batches, &dead).await?;
    let bare = bare().await;
    println!("{:>24} {:>8} {:>12}", "", "seconds", "over bare");
    for (name, seconds) in [
        ("bare sleeps", bare),
        ("sixteen under way", alone),
        ("batch at a time", batched),
    ] {
        println!(
            "{name:>24} {seconds:>8.2} {:>11.0}%",
            (seconds / bare - 1.0) * 100.0
        );
    }
    Ok(())
}

async fn measure(
    stage: impl Stage,
    dead: &Arc<dyn Partition>,
) -> Result<f64, Box<dyn std::error::Error>> {
    let clock = Arc::new(RealClock::new());
    let dead_letters = Arc::new(DeadLetterPartition(Arc::clone(dead)));
    let sink = Sink::new(
        Arc::new(MemoryPositions::default()),
        dead_letters,
        clock.clone(),
    );
    let started = clock.elapsed();
    run(stage, sink, pending()).await?;
    Ok((clock.elapsed() - started).as_secs_f64())
}

/// The baseline: sixteen loops that take the next number and work.
async fn bare() -> f64 {
    let (clock, next) = (RealClock::new(), Arc::new(AtomicI64::new(0)));
    let started = clock.elapsed();
    let mut places = tokio::task::JoinSet::new();
    for _ in 0..PLACES {
        let next = Arc::clone(&next);
        places.spawn(async move {
            loop {
                let offset = next.fetch_add(1, Ordering::Relaxed);
                if offset >= EVENTS {
                    return;
                }
                work(offset).await;
            }
        });
    }
    places.join_all().await;
    (clock.elapsed() - started).as_secs_f64()
}
