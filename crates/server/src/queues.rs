//! The queues of a node: those of the settings made, hubs fed into them, all stopped in order.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::{HubName, Log};
use highwater_queue::{CreateError, Options, Queues, Settings, feed};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a feed may take to end: one that waits for room in its queue would wait for ever.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a queue that was deleted is looked for.
const ABSENCE: Duration = Duration::from_secs(1);

/// A queue of the settings.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: String,
    pub settings: Settings,
    /// The hub whose events become messages.
    pub feed: Option<HubName>,
}

pub struct Running {
    pub queues: Queues,
    feeds: Vec<JoinHandle<()>>,
    stop_feeds: watch::Sender<bool>,
}

/// Reads back what there is, and makes and changes what the settings name.
pub async fn start(
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    wanted: &[Wanted],
) -> Result<Running, (String, CreateError)> {
    let options = Options::default();
    let opened = Queues::open(log.clone(), clock.clone(), Random::from_os(), options).await;
    let (queues, failed) = opened;
    for (name, error) in failed {
        tracing::error!(%error, "queue `{name}` cannot be read and is left out");
    }
    let mut running = Running {
        queues,
        feeds: Vec::new(),
        stop_feeds: watch::Sender::new(false),
    };
    for wanted in wanted {
        let made = make(&running.queues, wanted).await;
        made.map_err(|error| (wanted.name.clone(), error))?;
        running.feed(wanted, &log, &clock);
    }
    Ok(running)
}

async fn make(queues: &Queues, wanted: &Wanted) -> Result<(), CreateError> {
    let settings = wanted.settings.clone();
    match queues.get(&wanted.name) {
        None => queues.create(&wanted.name, settings).await.map(drop),
        Some(queue) if queue.stats().await?.settings == settings => Ok(()),
        Some(_) => queues.change(&wanted.name, settings).await,
    }
}

impl Running {
    fn feed(&mut self, wanted: &Wanted, log: &Arc<dyn Log>, clock: &Arc<dyn Clock>) {
        let Some(hub) = wanted.feed.clone() else {
            return;
        };
        let (queues, name) = (self.queues.clone(), wanted.name.clone());
        let (log, clock) = (log.clone(), clock.clone());
        let mut stop = self.stop_feeds.subscribe();
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
                // It was deleted, and is fed again if it is made again.
                let stopped = stop.wait_for(|stop| *stop);
                let _ = tokio::time::timeout(ABSENCE, stopped).await;
            }
        }));
    }

    pub async fn stop(self) {
        self.stop_feeds.send_replace(true);
        for mut feed in self.feeds {
            // Its position is safe, whenever it ends.
            if tokio::time::timeout(PATIENCE, &mut feed).await.is_err() {
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

    /// The next messages, in a time that nobody waits for.
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
        let wanted = [Wanted {
            name: "work".into(),
            settings: Settings::default(),
            feed: Some(clicks),
        }];
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let running = start(log.clone(), clock.clone(), &wanted).await;
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

        let running = start(log.clone(), clock, &wanted).await;
        let running = running.map_err(|(_, error)| error).unwrap();
        append(&log, "d").await;
        assert_eq!(next(&running.queues, 1).await, ["d"], "and nothing twice");
        running.stop().await;
    }
}
