//! A hub that feeds a queue.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::NewRecord;
use highwater_log::{HubName, HubSettings, HubSpec, Log};
use highwater_queue::{Mode, Most, Options, Queue, Receive, Settings, feed};
use tokio::sync::watch;

use crate::common::{Gated, TokioClock, bodies};

async fn append(log: &Gated, partition: u32, texts: &[&str]) {
    let partition = Log::partition(log, "orders", partition).unwrap();
    let records: Vec<_> = (texts.iter())
        .map(|text| NewRecord {
            key: Some(b"k"),
            value: Some(text.as_bytes()),
            headers: &[],
        })
        .collect();
    partition.append_records(&records).await.unwrap();
}

async fn all(queue: &Queue) -> Vec<String> {
    let receive = Receive {
        most: Most::from(1000),
        mode: Mode::ReceiveAndDelete,
        ..Receive::default()
    };
    let mut got = bodies(&queue.receive(receive).await.unwrap());
    got.sort();
    got
}

#[tokio::test(start_paused = true)]
async fn every_event_of_a_hub_becomes_a_message_once_through_crashes() {
    // proves Q3
    let log = Gated::new();
    let spec = HubSpec {
        name: HubName::new("orders").unwrap(),
        partitions: 2,
        settings: HubSettings::default(),
    };
    log.create(spec).await.unwrap();
    let (mut queues, mut queue, clock) = log.queue(Settings::default()).await;
    let mut seen = Vec::new();
    for round in 0..5 {
        let text = |kind: &str| format!("{round}{kind}");
        let (_stop, told) = watch::channel(false);
        let shared: Arc<dyn Log> = Arc::new(log.clone());
        let feeding = {
            let (queue, clock): (Queue, Arc<TokioClock>) = (queue.clone(), clock.clone());
            tokio::spawn(async move { feed(shared, "orders", queue, clock, told).await })
        };
        append(&log, 0, &[&text("a"), &text("b")]).await;
        append(&log, 1, &[&text("c")]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        seen.extend(all(&queue).await);
        // Some of the next are under way when the node goes down.
        log.close();
        append(&log, 0, &[&text("d")]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        if round % 2 == 0 {
            log.let_through(true);
        }
        feeding.abort();
        let _ = feeding.await;
        drop((queue, queues));
        tokio::task::yield_now().await;
        log.crash();
        queues = log.open_queues(clock.clone(), Options::default()).await;
        queue = queues.get("q").unwrap();
    }
    let (_stop, told) = watch::channel(false);
    let feeding = tokio::spawn({
        let (log, queue): (Arc<dyn Log>, Queue) = (Arc::new(log.clone()), queue.clone());
        async move { feed(log, "orders", queue, clock, told).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    seen.extend(all(&queue).await);
    feeding.abort();
    seen.sort();
    let expected: Vec<String> = (0..5)
        .flat_map(|round| ["a", "b", "c", "d"].map(|kind| format!("{round}{kind}")))
        .collect();
    assert_eq!(seen, expected);
    drop(queues);
}
