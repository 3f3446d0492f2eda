//! A processor over the embedded hub on a disk that fills up: neither dead letters nor positions can be written, and no
//! checkpoint passes an unsafe event. proves C2, P1, P5

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{TokioClock, append};
use highwater_env::disk::Faults;
use highwater_env::random::Random;
use highwater_env::{Disk, SimDisk};
use highwater_flow::CheckpointInterval;
use highwater_flow::{
    Assignment, DeadLetterPartition, Delivery, Event, Failure, GroupMember, GroupTimeouts, Handler,
    Options, Processor, ProcessorStats, StartPosition,
};
use highwater_hub::{Hub, groups};
use highwater_log::{
    GroupCoordinator, GroupError, HubName, HubSettings, HubSpec, Log, Offset, Partition,
    TopicPartition,
};
use highwater_retry::{Backoff, RetryPolicy};
use tokio::sync::watch;
use tokio::task::JoinSet;

const EVENTS: i64 = 12;
/// The event that the handler refuses.
const BAD: i64 = 7;
/// Handled and stored before the disk is full.
const BEFORE: i64 = 5;

struct Node {
    hub: Arc<Hub>,
    groups: Arc<dyn GroupCoordinator>,
    clock: Arc<TokioClock>,
    tasks: JoinSet<()>,
}

impl Node {
    fn start(disk: &SimDisk) -> Node {
        let clock = TokioClock::start();
        let options = highwater_hub::Options {
            committers: 1,
            readers: 1,
            // So that every write needs space.
            reserve_bytes: 0,
            ..highwater_hub::Options::default()
        };
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let hub = Hub::open(disk, Path::new("data"), options, clock.clone(), &|_| {});
        let hub = Arc::new(hub.unwrap());
        let (random, options) = (Random::seeded(1), groups::Options::default());
        let service = groups::Service::new(hub.clone(), clock.clone(), random, options);
        let groups = Arc::new(service.handle());
        let mut tasks = JoinSet::new();
        tasks.spawn(async { drop(service.run(std::future::pending()).await) });
        Node {
            hub,
            groups,
            clock,
            tasks,
        }
    }

    async fn make(&self, name: &str) {
        let spec = HubSpec {
            name: HubName::new(name).unwrap(),
            partitions: 1,
            settings: HubSettings::default(),
        };
        self.hub.create(spec).await.unwrap();
    }

    fn partition(&self, name: &str) -> Arc<dyn Partition> {
        self.hub.partition(name, 0).unwrap()
    }

    fn process(&mut self, handler: Arc<dyn Handler>) {
        let quickly = RetryPolicy {
            backoff: Backoff::Fixed(Duration::from_millis(10)),
            tries_max: None,
            ..RetryPolicy::default()
        };
        let processor = Processor {
            member: GroupMember {
                log: self.hub.clone(),
                groups: Arc::clone(&self.groups),
                hub: HubName::new("tolls").unwrap(),
                group: "readers".into(),
                client: "test".into(),
                // After a crash there is no other member to wait for.
                assignment: Assignment::Numbered {
                    ordinal: 0,
                    of: None,
                },
                timeouts: GroupTimeouts::default(),
            },
            start: StartPosition::Earliest,
            share: None,
            check: None,
            batch: None,
            options: Options::default(),
            checkpoint_interval: CheckpointInterval {
                events: 1,
                ..CheckpointInterval::default()
            },
            dead_letters: Arc::new(DeadLetterPartition(self.partition("dead"))),
            clock: self.clock.clone(),
            restart: quickly,
            stats: Arc::new(ProcessorStats::default()),
        };
        self.tasks
            .spawn(processor.run(handler, std::future::pending()));
    }

    /// Waits until the groups are loaded.
    async fn stored(&self) -> Option<Offset> {
        let place = TopicPartition {
            hub: HubName::new("tolls").unwrap(),
            partition: 0,
        };
        loop {
            let places = Some(vec![place.clone()]);
            match self
                .groups
                .fetch_offsets("readers".into(), places, true)
                .await
            {
                Err(GroupError::Loading) => tokio::time::sleep(Duration::from_millis(5)).await,
                committed => break committed.unwrap().pop()?.1.map(|stored| stored.offset),
            }
        }
    }

    async fn until_stored(&self, wanted: i64) {
        while self.stored().await != Some(Offset(wanted)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The events handled so far, and the limit up to which the handler proceeds.
struct Book {
    seen: watch::Sender<Vec<i64>>,
    until: watch::Sender<i64>,
}

impl Book {
    fn handler(self: &Arc<Self>) -> Arc<dyn Handler> {
        let book = Arc::clone(self);
        Arc::new(move |deliveries: Vec<Delivery<Event>>| {
            let book = Arc::clone(&book);
            async move {
                let offset = deliveries[0].event.offset().0;
                let mut until = book.until.subscribe();
                until.wait_for(|until| offset < *until).await.unwrap();
                book.seen.send_modify(|seen| seen.push(offset));
                match offset {
                    BAD => Err(Failure::permanent("nonsense")),
                    _ => Ok(()),
                }
            }
        })
    }

    async fn until_seen(&self, wanted: impl Fn(&[i64]) -> bool) {
        let mut seen = self.seen.subscribe();
        seen.wait_for(|seen| wanted(seen)).await.unwrap();
    }
}

async fn fills_up(crashes: bool) {
    let disk = SimDisk::new(1);
    let mut node = Node::start(&disk);
    node.make("tolls").await;
    node.make("dead").await;
    append(&node.partition("tolls"), &vec![None; EVENTS as usize]).await;
    let book = Arc::new(Book {
        seen: watch::Sender::new(Vec::new()),
        until: watch::Sender::new(BEFORE),
    });
    node.process(book.handler());
    node.until_stored(BEFORE).await;

    disk.set_faults(Faults {
        capacity: Some(0),
        ..Faults::default()
    });
    book.until.send_replace(EVENTS);
    let all = |seen: &[i64]| (BEFORE..EVENTS).all(|offset| seen.contains(&offset));
    book.until_seen(all).await;
    assert_eq!(node.partition("dead").bounds().end, Offset(0));
    assert_eq!(node.stored().await, Some(Offset(BEFORE)));

    if crashes {
        book.seen.send_replace(Vec::new());
        node.tasks.shutdown().await;
        drop(node);
        disk.crash();
        disk.set_faults(Faults::default());
        node = Node::start(&disk);
        node.process(book.handler());
        book.until_seen(all).await;
        assert!(book.seen.borrow().iter().all(|offset| *offset >= BEFORE));
    }
    disk.set_faults(Faults::default());
    node.until_stored(EVENTS).await;
    let dead = node.partition("dead").bounds().end;
    assert!(dead >= Offset(1), "the bad event is set aside");
    node.tasks.shutdown().await;
}

async fn in_time(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(Duration::from_secs(120), test).await;
    ended.expect("it does not take that long");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_full_disk_nothing_is_passed_and_it_goes_on_when_there_is_room() {
    in_time(fills_up(false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_stored_on_a_full_disk_is_delivered_again_after_a_crash() {
    in_time(fills_up(true)).await;
}
