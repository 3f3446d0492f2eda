//! Processors that share a hub: by a group, by number, and after a crash. proves C1, P1, P3

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Letters, TokioClock, append, paused};
use highwater_env::random::Random;
use highwater_env::shutdown_signal;
use highwater_flow::CheckpointInterval;
use highwater_flow::{
    Assignment, Delivery, Event, Failure, GroupMember, GroupTimeouts, Handler, Options, Processor,
    ProcessorStats, StartPosition, ordinal,
};
use highwater_hub::groups;
use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog};
use highwater_retry::RetryPolicy;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const PARTITIONS: u32 = 4;

/// The handler of each event, and its number of calls.
type Ledger = Arc<Mutex<BTreeMap<String, Vec<&'static str>>>>;

struct World {
    log: Arc<MemoryLog>,
    groups: groups::Handle,
    clock: Arc<TokioClock>,
    ledger: Ledger,
}

impl World {
    async fn new() -> World {
        let log = Arc::new(MemoryLog::new(|| 0));
        let (name, settings) = (HubName::new("tolls").unwrap(), HubSettings::default());
        log.create(HubSpec {
            name,
            partitions: PARTITIONS,
            settings,
        })
        .await
        .unwrap();
        let clock = TokioClock::start();
        let options = groups::Options::default();
        let service = groups::Service::new(log.clone(), clock.clone(), Random::seeded(1), options);
        let groups = service.handle();
        tokio::spawn(service.run(std::future::pending()));
        World {
            log,
            groups,
            clock,
            ledger: Ledger::default(),
        }
    }

    async fn fill(&self, count: usize) {
        for partition in 0..PARTITIONS {
            append(
                &self.log.partition("tolls", partition).unwrap(),
                &vec![None; count],
            )
            .await;
        }
    }

    fn processor(&self, assignment: Assignment) -> Processor {
        Processor {
            member: GroupMember {
                log: self.log.clone(),
                groups: Arc::new(self.groups.clone()),
                hub: HubName::new("tolls").unwrap(),
                group: "readers".into(),
                client: "test".into(),
                assignment,
                timeouts: GroupTimeouts::default(),
            },
            start: StartPosition::Earliest,
            share: None,
            check: None,
            batch: None,
            options: Options {
                concurrency: 1,
                ..Options::default()
            },
            checkpoint_interval: CheckpointInterval {
                events: 1,
                ..CheckpointInterval::default()
            },
            dead_letters: Arc::new(Letters::default()),
            clock: self.clock.clone(),
            restart: RetryPolicy {
                tries_max: None,
                ..RetryPolicy::default()
            },
            stats: Arc::new(ProcessorStats::default()),
        }
    }

    /// Takes a second for every event.
    fn handler(&self, name: &'static str) -> Arc<dyn Handler> {
        let ledger = Arc::clone(&self.ledger);
        Arc::new(move |deliveries: Vec<Delivery<Event>>| {
            let ledger = Arc::clone(&ledger);
            async move {
                sleep(Duration::from_secs(1)).await;
                for delivery in deliveries {
                    let id = delivery.event.id().to_string();
                    ledger.lock().unwrap().entry(id).or_default().push(name);
                }
                Ok::<_, Failure>(())
            }
        })
    }

    fn start(
        &self,
        name: &'static str,
        processor: Processor,
    ) -> (JoinHandle<()>, watch::Sender<bool>) {
        let stop = watch::Sender::new(false);
        let stopped = shutdown_signal(stop.subscribe());
        let running = processor.run(self.handler(name), stopped);
        (tokio::spawn(running), stop)
    }

    fn handled(&self) -> usize {
        self.ledger.lock().unwrap().len()
    }

    fn twice(&self) -> usize {
        self.ledger
            .lock()
            .unwrap()
            .values()
            .filter(|names| names.len() > 1)
            .count()
    }

    fn readers(&self) -> BTreeSet<&'static str> {
        self.ledger
            .lock()
            .unwrap()
            .values()
            .flatten()
            .copied()
            .collect()
    }
}

fn shared() -> Assignment {
    Assignment::Shared { instance: None }
}

#[test]
fn instances_share_the_partitions_and_hand_them_over_in_order() {
    paused(async {
        let world = World::new().await;
        world.fill(100).await;
        let a = world.processor(shared());
        let stats = Arc::clone(&a.stats);
        let (a, stop_a) = world.start("a", a);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(stats.partitions().len(), 4, "alone it has everything");
        let (b, stop_b) = world.start("b", world.processor(shared()));
        sleep(Duration::from_secs(20)).await;
        assert_eq!(stats.partitions().len(), 2);
        assert_eq!(world.readers(), ["a", "b"].into());
        stop_a.send_replace(true);
        a.await.unwrap();
        sleep(Duration::from_secs(100)).await;
        assert_eq!(
            (world.handled(), world.twice()),
            (400, 0),
            "a hand-over repeats nothing"
        );
        stop_b.send_replace(true);
        b.await.unwrap();
    });
}

#[test]
fn after_a_crash_another_takes_over_and_nothing_is_skipped() {
    paused(async {
        let world = World::new().await;
        world.fill(100).await;
        let (a, _stop) = world.start("a", world.processor(shared()));
        let (b, _stop) = world.start("b", world.processor(shared()));
        sleep(Duration::from_secs(20)).await;
        a.abort();
        sleep(Duration::from_secs(300)).await;
        assert_eq!(world.handled(), 400);
        assert!(
            world.twice() <= 2,
            "what was under way, one event a partition"
        );
        b.abort();
    });
}

#[test]
fn an_instance_with_a_number_reads_its_own_partitions() {
    paused(async {
        let world = World::new().await;
        world.fill(5).await;
        assert_eq!((ordinal("reader-3"), ordinal("reader")), (Some(3), None));
        let numbered = |ordinal, of| Assignment::Numbered { ordinal, of };
        let (one, stop) = world.start("3", world.processor(numbered(3, None)));
        sleep(Duration::from_secs(10)).await;
        let ids: Vec<_> = world.ledger.lock().unwrap().keys().cloned().collect();
        assert!(
            ids.len() == 5 && ids.iter().all(|id| id.starts_with("tolls/3@")),
            "{ids:?}"
        );
        stop.send_replace(true);
        one.await.unwrap();
        let running = [0, 1].map(|n| world.start("n", world.processor(numbered(n, Some(2)))));
        sleep(Duration::from_secs(10)).await;
        assert_eq!((world.handled(), world.twice()), (20, 0));
        for (task, stop) in running {
            stop.send_replace(true);
            task.await.unwrap();
        }
    });
}

#[test]
fn a_hub_that_grows_is_read_whole() {
    paused(async {
        let world = World::new().await;
        world.fill(1).await;
        let (task, _stop) = world.start("a", world.processor(shared()));
        sleep(Duration::from_secs(20)).await;
        let name = HubName::new("tolls").unwrap();
        world.log.grow(&name, 5).await.unwrap();
        append(&world.log.partition("tolls", 4).unwrap(), &[None]).await;
        sleep(Duration::from_secs(20)).await;
        assert_eq!(world.handled(), 5);
        task.abort();
    });
}

#[test]
fn a_group_that_begins_at_the_end_is_given_what_comes_then() {
    paused(async {
        let world = World::new().await;
        world.fill(3).await;
        let processor = Processor {
            start: StartPosition::Latest,
            ..world.processor(shared())
        };
        let (first, _stop) = world.start("a", processor.clone());
        sleep(Duration::from_secs(20)).await;
        first.abort();
        world.fill(2).await;
        let (second, _stop) = world.start("b", processor);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(world.handled(), 8, "also what came while nobody was there");
        second.abort();
    });
}
