//! A hub that feeds a queue.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::batch::NewRecord;
use highwater_log::{HubName, HubSettings, HubSpec, Log};
use highwater_queue::{Options, Queue, ReceiveLimit, ReceiveMode, ReceiveRequest, Settings, feed};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::service::common::{Gated, TokioClock, bodies};

async fn append(log: &Gated, partition: u32, texts: &[&str]) {
    let partition = log.memory().partition("orders", partition).unwrap();
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
    let receive = ReceiveRequest {
        limit: ReceiveLimit::from(1000),
        mode: ReceiveMode::ReceiveAndDelete,
        ..ReceiveRequest::default()
    };
    let mut got = bodies(&queue.receive(receive).await.unwrap());
    got.sort();
    got
}

async fn made(log: &Gated, partitions: u32) {
    let spec = HubSpec {
        name: HubName::new("orders").unwrap(),
        partitions,
        settings: HubSettings::default(),
    };
    log.create(spec).await.unwrap();
}

/// Feeds until the sender is set or dropped.
fn feeding(
    log: &Gated,
    queue: &Queue,
    clock: &Arc<TokioClock>,
) -> (watch::Sender<bool>, JoinHandle<()>) {
    let (stop, told) = watch::channel(false);
    let (log, queue, clock) = (Arc::new(log.clone()), queue.clone(), clock.clone());
    let running = async move { feed(log, "orders", queue, clock, told).await };
    (stop, tokio::spawn(running))
}

async fn a_second() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn every_event_of_a_hub_becomes_a_message_once_through_crashes() {
    // proves Q3
    let log = Gated::new();
    made(&log, 2).await;
    let (mut queues, mut queue, clock) = log.queue(Settings::default()).await;
    let mut seen = Vec::new();
    for round in 0..5 {
        let text = |kind: &str| format!("{round}{kind}");
        let (_stop, running) = feeding(&log, &queue, &clock);
        append(&log, 0, &[&text("a"), &text("b")]).await;
        append(&log, 1, &[&text("c")]).await;
        a_second().await;
        seen.extend(all(&queue).await);
        // Some of the next events are in flight when the node stops.
        log.close();
        append(&log, 0, &[&text("d")]).await;
        a_second().await;
        if round % 2 == 0 {
            log.complete_first();
        }
        running.abort();
        let _ = running.await;
        drop((queue, queues));
        tokio::task::yield_now().await;
        log.crash();
        queues = log.open_queues(clock.clone(), Options::default()).await;
        queue = queues.get("q").unwrap();
    }
    let (_stop, running) = feeding(&log, &queue, &clock);
    a_second().await;
    seen.extend(all(&queue).await);
    running.abort();
    seen.sort();
    let expected: Vec<String> = (0..5)
        .flat_map(|round| ["a", "b", "c", "d"].map(|kind| format!("{round}{kind}")))
        .collect();
    assert_eq!(seen, expected);
    drop(queues);
}

#[tokio::test(start_paused = true)]
async fn partitions_that_are_added_are_taken_over_too_and_a_stop_ends_all() {
    // proves Q3
    let log = Gated::new();
    made(&log, 1).await;
    let (_queues, queue, clock) = log.queue(Settings::default()).await;
    let (stop, running) = feeding(&log, &queue, &clock);
    append(&log, 0, &["a"]).await;
    a_second().await;
    assert_eq!(all(&queue).await, ["a"]);
    let orders = HubName::new("orders").unwrap();
    log.grow(&orders, 3).await.unwrap();
    append(&log, 2, &["c"]).await;
    append(&log, 1, &["b"]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(all(&queue).await, ["b", "c"]);
    stop.send_replace(true);
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_was_made_again_is_taken_over_from_its_beginning() {
    let log = Gated::new();
    made(&log, 1).await;
    let (_queues, queue, clock) = log.queue(Settings::default()).await;
    let (_stop, running) = feeding(&log, &queue, &clock);
    append(&log, 0, &["a", "b", "c"]).await;
    a_second().await;
    assert_eq!(all(&queue).await, ["a", "b", "c"]);
    running.abort();
    let _ = running.await;
    log.delete(&HubName::new("orders").unwrap()).await.unwrap();
    made(&log, 1).await;
    let (_stop, _running) = feeding(&log, &queue, &clock);
    append(&log, 0, &["d"]).await;
    a_second().await;
    assert_eq!(all(&queue).await, ["d"]);
}

#[tokio::test(start_paused = true)]
async fn a_hub_waits_while_its_queue_is_full() {
    // proves Q3
    let log = Gated::new();
    made(&log, 1).await;
    let small = Settings {
        bytes_max: 1_000,
        message_bytes_max: 500,
        ..Settings::default()
    };
    let (_queues, queue, clock) = log.queue(small).await;
    let (_stop, _running) = feeding(&log, &queue, &clock);
    let texts: Vec<String> = (10..60).map(|number| number.to_string()).collect();
    for text in &texts {
        append(&log, 0, &[text]).await;
    }
    let mut seen = Vec::new();
    while seen.len() < texts.len() {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(queue.stats().await.unwrap().counts.bytes <= 1_000);
        let got = all(&queue).await;
        assert!(!got.is_empty() && got.len() < texts.len(), "{}", got.len());
        seen.extend(got);
    }
    assert_eq!(seen, texts, "all of them, once and in order");
}

#[tokio::test(start_paused = true)]
async fn a_feed_ends_with_its_queue() {
    let log = Gated::new();
    made(&log, 1).await;
    let (queues, queue, clock) = log.queue(Settings::default()).await;
    let (_stop, running) = feeding(&log, &queue, &clock);
    a_second().await;
    queues.delete("q").await.unwrap();
    running.await.unwrap();
}
