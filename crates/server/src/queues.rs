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
