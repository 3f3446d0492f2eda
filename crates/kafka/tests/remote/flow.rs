//! Processors in several instances over one cluster: they share partitions, replace an instance that dies, and handle
//! every event.
// proves C1 C2 C3 P1 X1

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_env::RealClock;
use highwater_flow::CheckpointInterval;
use highwater_flow::{
    Assignment, DeadLetterFilter, DeadLetterPartition, Delivery, Event, Failure, GroupMember,
    GroupTimeouts, Options, Order, Processor, ProcessorStats, StartPosition,
};
use highwater_kafka::client::Remote;
use highwater_log::{GroupCoordinator, Log, Offset};
use highwater_retry::{Backoff, RetryPolicy};
use tokio::task::JoinHandle;

use crate::cluster::*;

const PARTITIONS: u32 = 6;

/// How often each event was handled, by partition and offset.
type Handled = Arc<Mutex<BTreeMap<(u32, i64), usize>>>;

fn processor(remote: &Remote, start: StartPosition) -> Processor {
    let letters = DeadLetterPartition(remote.partition("dead", 0).unwrap());
    let soon = RetryPolicy {
        backoff: Backoff::Fixed(Duration::from_millis(20)),
        tries_max: Some(2),
        ..RetryPolicy::default()
    };
    Processor {
        member: GroupMember {
            log: Arc::new(remote.clone()),
            groups: Arc::new(remote.clone()),
            hub: name("orders"),
            group: "billing".into(),
            client: "test".into(),
            assignment: Assignment::Shared { instance: None },
            timeouts: GroupTimeouts {
                session: Duration::from_secs(3),
                heartbeat: Duration::from_millis(200),
                rebalance: Duration::from_secs(20),
                pause: Duration::from_millis(50),
            },
        },
        start,
        share: None,
        check: None,
        batch: None,
        options: Options {
            order: Order::Key,
            retry: soon.clone(),
            ..Options::default()
        },
        checkpoint_interval: CheckpointInterval {
            events: 10,
            ..CheckpointInterval::default()
        },
        dead_letters: Arc::new(letters),
        clock: Arc::new(RealClock::new()),
        restart: RetryPolicy {
            tries_max: None,
            ..soon
        },
        stats: Arc::new(ProcessorStats::default()),
    }
}

/// An instance with its own client, like a process. Aborting the task is `kill -9`.
async fn instance(
    cluster: &TestCluster,
    handled: &Handled,
    start: StartPosition,
) -> (Arc<ProcessorStats>, JoinHandle<()>) {
    let remote = cluster.remote().await;
    let processor = processor(&remote, start);
    let (activity, handled) = (Arc::clone(&processor.stats), Arc::clone(handled));
    let handler = Arc::new(move |deliveries: Vec<Delivery<Event>>| {
        let handled = Arc::clone(&handled);
        async move {
            for delivery in deliveries {
                if delivery.event.value() == Some(b"poison") {
                    return Err(Failure::permanent("it is poison"));
                }
                let event = &delivery.event;
                let at = (event.topic_partition().partition, event.offset().0);
                *handled.lock().unwrap().entry(at).or_default() += 1;
            }
            Ok(())
        }
    });
    let task = tokio::spawn(processor.run(handler, std::future::pending()));
    (activity, task)
}

async fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to be that {what}");
}

async fn produce(cluster: &TestCluster, count: usize) {
    for n in 0..count {
        let partition = cluster
            .log
            .partition("orders", n as u32 % PARTITIONS)
            .unwrap();
        append(&partition, &[&n.to_string()]).await;
    }
}

fn owned(activity: &ProcessorStats) -> usize {
    activity.partitions().len()
}

#[tokio::test]
async fn instances_share_a_hub_and_take_over_from_one_that_dies() {
    let cluster = cluster().await;
    cluster
        .log
        .create(spec("orders", PARTITIONS))
        .await
        .unwrap();
    cluster.log.create(spec("dead", 1)).await.unwrap();
    produce(&cluster, 120).await;
    let handled = Handled::default();
    let (a, _a) = instance(&cluster, &handled, StartPosition::Earliest).await;
    let (b, task) = instance(&cluster, &handled, StartPosition::Earliest).await;
    let (c, _c) = instance(&cluster, &handled, StartPosition::Earliest).await;
    until("each has two partitions", || {
        [&a, &b, &c].map(|who| owned(who)) == [2; 3]
    })
    .await;

    let sending = tokio::spawn(async move {
        produce(&cluster, 120).await;
        cluster
    });
    task.abort();
    let cluster = sending.await.unwrap();
    produce(&cluster, 120).await;
    let poisoned = cluster.log.partition("orders", 0).unwrap();
    append(&poisoned, &["poison"]).await;
    until("two have three each", || {
        [&a, &c].map(|who| owned(who)) == [3; 2]
    })
    .await;
    produce(&cluster, 120).await;

    // Every event of each partition, except the poison event, which is a dead letter.
    let ends: Vec<i64> = (0..PARTITIONS)
        .map(|number| {
            cluster
                .log
                .partition("orders", number)
                .unwrap()
                .bounds()
                .end
                .0
        })
        .collect();
    assert_eq!(ends.iter().sum::<i64>(), 4 * 120 + 1);
    until("everything is handled", || {
        handled.lock().unwrap().len() == 4 * 120
    })
    .await;
    let looker = cluster.remote().await;
    let topic_partitions: Vec<_> = (0..PARTITIONS)
        .map(|number| topic_partition("orders", number))
        .collect();
    let mut committed = Vec::new();
    for _ in 0..20_000 {
        let stored = looker
            .fetch_offsets("billing".into(), Some(topic_partitions.clone()), true)
            .await
            .unwrap();
        let offset =
            |stored: Option<highwater_log::OffsetAndMetadata>| stored.map_or(0, |at| at.offset.0);
        committed = stored
            .into_iter()
            .map(|(_, stored)| offset(stored))
            .collect();
        if committed == ends {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(committed, ends);
    let letters = DeadLetterPartition(looker.partition("dead", 0).unwrap());
    let found = letters
        .find(&DeadLetterFilter::default(), Offset(0), 10)
        .await
        .unwrap();
    let dead: Vec<_> = found
        .letters
        .iter()
        .map(|stored| stored.letter.event.id().to_string())
        .collect();
    // Once, or twice if its owner died before the checkpoint.
    assert!(
        !dead.is_empty() && dead.iter().all(|id| id == "orders/0@60"),
        "{dead:?}"
    );
}

#[tokio::test]
async fn a_group_that_starts_at_the_end_fetches_the_bounds() {
    let cluster = cluster().await;
    cluster
        .log
        .create(spec("orders", PARTITIONS))
        .await
        .unwrap();
    cluster.log.create(spec("dead", 1)).await.unwrap();
    produce(&cluster, 60).await;
    let handled = Handled::default();
    let (activity, _task) = instance(&cluster, &handled, StartPosition::Latest).await;
    until("all partitions are worked on", || {
        owned(&activity) == PARTITIONS as usize
    })
    .await;
    let looker = cluster.remote().await;
    let stored = async || {
        looker
            .fetch_offsets("billing".into(), None, true)
            .await
            .unwrap()
            .len()
    };
    while stored().await < PARTITIONS as usize {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    produce(&cluster, 60).await;
    until("the new ones are handled", || {
        handled.lock().unwrap().len() >= 60
    })
    .await;
    let first: Vec<_> = handled
        .lock()
        .unwrap()
        .keys()
        .map(|(_, offset)| *offset)
        .collect();
    assert_eq!((first.len(), first.iter().min()), (60, Some(&10)));
}
