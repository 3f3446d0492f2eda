//! What slow events cost their neighbours: with sixteen events under way at once, and batch at a time.
//!
//! `cargo run --release -p highwater-flow --example slow_event`
//!
//! Of 10,000 events that take 2 ms each, every thousandth takes half a second. Shared out over sixteen
//! places, all of it is 1.56 s of work; what is more than that is waiting for a slow neighbour.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Clock, RealClock};
use highwater_flow::{
    Delivery, Event, Failure, InMemory, OnPartition, Options, Sink, Source, Stage, run,
};
use highwater_log::batch::NewRecord;
use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog, Offset, Partition};

const EVENTS: i64 = 10_000;
const PLACES: usize = 16;

async fn handle(event: &Event) {
    let slow = event.offset().0 % 1000 == 500;
    tokio::time::sleep(Duration::from_millis(if slow { 500 } else { 2 })).await;
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
    let orders = log.partition("orders", 0).ok_or("it was just made")?;
    let dead = log.partition("dead", 0).ok_or("it was just made")?;
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

    let source = || Source::new(Arc::clone(&orders), Offset(0)).until(Offset(EVENTS));
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
    let ideal = (0.002 * (EVENTS - 10) as f64 + 0.5 * 10.0) / PLACES as f64;
    println!("{:>24} {:>8} {:>12}", "", "seconds", "over ideal");
    for (name, seconds) in [
        ("ideal", ideal),
        ("sixteen under way", alone),
        ("batch at a time", batched),
    ] {
        println!(
            "{name:>24} {seconds:>8.2} {:>11.0}%",
            (seconds / ideal - 1.0) * 100.0
        );
    }
    Ok(())
}

async fn measure(
    stage: impl Stage,
    dead: &Arc<dyn Partition>,
) -> Result<f64, Box<dyn std::error::Error>> {
    let clock = Arc::new(RealClock::new());
    let dead_letters = Arc::new(OnPartition(Arc::clone(dead)));
    let sink = Sink::new(Arc::new(InMemory::default()), dead_letters, clock.clone());
    let started = clock.elapsed();
    run(stage, sink, pending()).await?;
    Ok((clock.elapsed() - started).as_secs_f64())
}
