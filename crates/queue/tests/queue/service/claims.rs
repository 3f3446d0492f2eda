//! A queue whose log is a cluster: appends with an unknown outcome, and owners that take over. proves X1 Q1

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_env::random::Random;
use highwater_log::testing::GatedLog;
use highwater_log::{
    AdminError, AppendError, BoxFuture, ClaimResult, HubId, HubInfo, HubName, HubSettings, HubSpec,
    Log, Partition, Producer, TopicPartition,
};
use highwater_queue::{Error, Options, Queue, Queues, ReceiveLimit, ReceiveRequest, Settings};

use crate::service::common::{TokioClock, bodies, message};

type Errors = Arc<Mutex<VecDeque<AppendError>>>;

/// A log whose next claims fail with these errors.
struct Cluster {
    log: GatedLog,
    failing_claims: Errors,
}

impl Log for Cluster {
    fn hubs(&self) -> Vec<Arc<HubInfo>> {
        self.log.hubs()
    }

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>> {
        self.log.hub(name)
    }

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>> {
        self.log.hub_by_id(id)
    }

    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>> {
        Log::partition(&self.log, hub, partition)
    }

    fn claim(&self, hub: &str, partition: u32) -> BoxFuture<ClaimResult> {
        let failed = self.failing_claims.lock().unwrap().pop_front();
        let partition = Log::partition(self, hub, partition);
        Box::pin(std::future::ready(match failed {
            Some(error) => Err(error),
            None => Ok(partition),
        }))
    }

    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        Log::create(&self.log, spec)
    }

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>> {
        self.log.delete(name)
    }

    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.log.grow(name, partitions)
    }

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.log.change(name, settings)
    }
}

struct World {
    queues: Queues,
    queue: Queue,
    /// The next append fails with this, and later ones of its producer are out of sequence.
    failing_append: Errors,
    failing_claims: Errors,
}

async fn world() -> World {
    let (log, failing_append) = (GatedLog::default(), Errors::default());
    let (failing, mut broken) = (Arc::clone(&failing_append), Vec::new());
    log.refuse(move |_, producer: Option<Producer>| {
        let producer = producer?;
        if broken.contains(&producer.id) {
            let (expected, got) = (0, 1);
            return Some(AppendError::OutOfSequence {
                producer,
                expected,
                got,
            });
        }
        let error = failing.lock().unwrap().pop_front()?;
        broken.push(producer.id);
        Some(error)
    });
    let failing_claims = Errors::default();
    let cluster = Arc::new(Cluster {
        log,
        failing_claims: Arc::clone(&failing_claims),
    });
    let options = Options {
        pause: Duration::from_millis(1),
        ..Options::default()
    };
    let opened = Queues::open(cluster, TokioClock::new(), Random::from_os(), options).await;
    let queue = opened.0.create("q", Settings::default()).await.unwrap();
    queue.send(vec![message("a")]).await.unwrap();
    World {
        queues: opened.0,
        queue,
        failing_append,
        failing_claims,
    }
}

fn place() -> TopicPartition {
    TopicPartition {
        hub: HubName::new("__queue.q").unwrap(),
        partition: 0,
    }
}

async fn received(queue: &Queue) -> Vec<String> {
    let all = ReceiveRequest {
        limit: ReceiveLimit::from(10),
        ..ReceiveRequest::default()
    };
    bodies(&queue.receive(all).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn after_an_unknown_outcome_the_queue_claims_its_journal_until_it_succeeds_and_goes_on() {
    let world = world().await;
    let busy = || AppendError::Busy {
        topic_partition: place(),
        reason: "no broker answers".into(),
    };
    world
        .failing_claims
        .lock()
        .unwrap()
        .extend([busy(), busy()]);
    let unknown = AppendError::OutcomeUnknown {
        topic_partition: place(),
        reason: "no answer".into(),
    };
    world
        .failing_append
        .lock()
        .unwrap()
        .push_back(unknown.clone());
    let refused = world.queue.send(vec![message("b")]).await;
    assert_eq!(refused.unwrap_err(), Error::Log(unknown));
    while world.queue.send(vec![message("c")]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(world.failing_claims.lock().unwrap().is_empty());
    assert_eq!(received(&world.queue).await, ["a", "c"]);
    world.queues.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_fenced_stays_so() {
    let world = world().await;
    let fenced = AppendError::Fenced {
        producer: Producer { id: 1, epoch: 1 },
        current: 2,
    };
    world.failing_append.lock().unwrap().push_back(fenced);
    assert!(world.queue.send(vec![message("b")]).await.is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let refused = world.queue.send(vec![message("c")]).await.unwrap_err();
    let reason = "another instance has taken it over";
    assert!(refused.to_string().contains(reason), "{refused}");
    world.queues.stop().await;
}
