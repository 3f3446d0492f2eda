//! The queues of a node: created from the settings, fed from hubs, stopped.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use highwater_env::random::Random;
use highwater_env::{Clock, shutdown_signal};
use highwater_log::{HubName, Log};
use highwater_queue::{CreateError, NewQueue, Options, Queues, Settings, feed};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a stop waits for a feed. A feed of a full queue would wait for ever.
const FEED_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of looking for a deleted queue, which is fed again when it is created again.
const DELETED_QUEUE_INTERVAL: Duration = Duration::from_secs(1);

/// A queue of the settings.
#[derive(Clone, Debug)]
pub struct DeclaredQueue {
    pub name: String,
    pub settings: Settings,
    /// The hub whose events become messages.
    pub feed: Option<HubName>,
}

/// The queues and the tasks that feed them.
pub(crate) struct RunningQueues {
    pub(crate) queues: Queues,
    feeds: Vec<JoinHandle<()>>,
    stop_feeds: watch::Sender<bool>,
}

/// Opens the stored queues, and creates or changes those of the settings.
pub(crate) async fn start(
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    declared: &[DeclaredQueue],
) -> Result<RunningQueues, (String, CreateError)> {
    let options = Options::default();
    let opened = Queues::open(log.clone(), clock.clone(), Random::from_os(), options).await;
    let (queues, failed) = opened;
    for (name, error) in failed {
        tracing::error!(%error, "queue `{name}` cannot be opened");
    }
    let new = declared.iter().map(|declared| NewQueue {
        name: declared.name.clone(),
        settings: declared.settings.clone(),
    });
    queues.create_missing(new.collect()).await?;
    let ensured = join_all(declared.iter().map(|queue| ensure(&queues, queue))).await;
    let mut running = RunningQueues::new(queues);
    for (queue, ensured) in declared.iter().zip(ensured) {
        ensured.map_err(|error| (queue.name.clone(), error))?;
        running.feed(queue, &log, &clock);
    }
    Ok(running)
}

/// Creates a queue of the settings, or applies them to it.
pub(crate) async fn ensure(queues: &Queues, declared: &DeclaredQueue) -> Result<(), CreateError> {
    let settings = declared.settings.clone();
    match queues.get(&declared.name) {
        None => queues.create(&declared.name, settings).await.map(drop),
        Some(queue) if queue.stats().await?.settings == settings => Ok(()),
        Some(_) => queues.change(&declared.name, settings).await,
    }
}

/// The queues of a log that several nodes share: they are opened and fed when they are assigned to this node.
pub(crate) fn share(
    log: &Arc<dyn Log>,
    clock: &Arc<dyn Clock>,
    declared: &[DeclaredQueue],
) -> RunningQueues {
    let (random, options) = (Random::from_os(), Options::default());
    let queues = Queues::shared(log.clone(), clock.clone(), random, options);
    let mut running = RunningQueues::new(queues);
    for queue in declared {
        running.feed(queue, log, clock);
    }
    running
}

impl RunningQueues {
    fn new(queues: Queues) -> RunningQueues {
        RunningQueues {
            queues,
            feeds: Vec::new(),
            stop_feeds: watch::Sender::new(false),
        }
    }

    fn feed(&mut self, declared: &DeclaredQueue, log: &Arc<dyn Log>, clock: &Arc<dyn Clock>) {
        let Some(hub) = declared.feed.clone() else {
            return;
        };
        let (queues, name) = (self.queues.clone(), declared.name.clone());
        let (log, clock) = (log.clone(), clock.clone());
        let stop = self.stop_feeds.subscribe();
        self.feeds.push(tokio::spawn(async move {
            while !*stop.borrow() {
                if let Some(queue) = queues.get(&name) {
                    feed(
                        log.clone(),
                        hub.as_str(),
                        queue,
                        clock.clone(),
                        stop.clone(),
                    )
                    .await;
                }
                let stopped = shutdown_signal(stop.clone());
                let _ = tokio::time::timeout(DELETED_QUEUE_INTERVAL, stopped).await;
            }
        }));
    }

    pub(crate) async fn stop(self) {
        self.stop_feeds.send_replace(true);
        for mut feed in self.feeds {
            // Aborting is safe: the position is stored with the messages.
            if tokio::time::timeout(FEED_STOP_TIMEOUT, &mut feed)
                .await
                .is_err()
            {
                feed.abort();
            }
        }
        self.queues.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_env::SimClock;
    use highwater_log::batch::NewRecord;
    use highwater_log::{HubSettings, HubSpec, MemoryLog};
    use highwater_queue::{ReceiveMode, ReceiveRequest};

    async fn append(log: &MemoryLog, text: &str) {
        let record = NewRecord {
            key: None,
            value: Some(text.as_bytes()),
            headers: &[],
        };
        let partition = log.partition("clicks", 0).unwrap();
        partition.append_records(&[record]).await.unwrap();
    }

    /// The next messages, in paused time.
    async fn next(queues: &Queues, count: usize) -> Vec<String> {
        let queue = queues.get("work").unwrap();
        let mut bodies = Vec::new();
        while bodies.len() < count {
            let receive = ReceiveRequest {
                mode: ReceiveMode::ReceiveAndDelete,
                ..ReceiveRequest::default()
            };
            for delivery in queue.receive(receive).await.unwrap() {
                let body = delivery.message.content.body.to_vec();
                bodies.push(String::from_utf8(body).unwrap());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bodies
    }

    // proves Q3
    #[tokio::test(start_paused = true)]
    async fn a_queue_that_is_deleted_and_made_again_is_fed_from_the_beginning_and_goes_on() {
        let log = Arc::new(MemoryLog::new(|| 0));
        let clicks = HubName::new("clicks").unwrap();
        let spec = HubSpec {
            name: clicks.clone(),
            partitions: 1,
            settings: HubSettings::default(),
        };
        log.create(spec).await.unwrap();
        let declared = [DeclaredQueue {
            name: "work".into(),
            settings: Settings::default(),
            feed: Some(clicks),
        }];
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let running = start(log.clone(), clock.clone(), &declared).await;
        let running = running.map_err(|(_, error)| error).unwrap();
        append(&log, "a").await;
        assert_eq!(next(&running.queues, 1).await, ["a"]);

        running.queues.delete("work").await.unwrap();
        append(&log, "b").await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let again = running.queues.create("work", Settings::default()).await;
        again.unwrap();
        assert_eq!(next(&running.queues, 2).await, ["a", "b"]);
        append(&log, "c").await;
        assert_eq!(next(&running.queues, 1).await, ["c"]);
        running.stop().await;

        let running = start(log.clone(), clock, &declared).await;
        let running = running.map_err(|(_, error)| error).unwrap();
        append(&log, "d").await;
        assert_eq!(next(&running.queues, 1).await, ["d"], "and nothing twice");
        running.stop().await;
    }
}
