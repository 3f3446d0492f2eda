//! The queues of a node: opened at its start, created, changed and deleted.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::{AdminError, HubName, Log};
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::actor::{Actor, Options, Progress, QueueStatus, new_producer, read_contents};
use super::error::{CreateError, ForwardError};
use super::forwarding::Router;
use super::handle::Queue;
use super::usage::Usage;
use crate::journal::{self, EntityKind, Journal, JournalError, split_subscription_path};
use crate::machine::ContentMap;
use crate::settings::Settings;

/// Capacity of a queue's command channel. Callers wait when it is full.
const COMMANDS_WAITING: usize = 4096;
/// Of a name that is refused.
const NAME_CHARS_SHOWN: usize = 200;
/// Lock numbers of a new queue start at a random number below this, so a token of a deleted queue matches no
/// message of a new queue with the same name.
const FIRST_LOCK_MAX: u64 = 1 << 48;

/// The contents of topics' messages, by the name of the topic.
type TopicContents = BTreeMap<String, ContentMap>;

/// A queue to create.
#[derive(Clone, Debug)]
pub struct NewQueue {
    pub name: String,
    pub settings: Settings,
}

/// Clones refer to the same queues.
#[derive(Clone)]
pub struct Queues {
    inner: Arc<Inner>,
}

struct Inner {
    kind: EntityKind,
    /// Where the bodies of subscriptions are.
    topics: Option<Queues>,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    options: Options,
    random: Mutex<Random>,
    running: RwLock<BTreeMap<String, RunningQueue>>,
    /// Held while a queue is created or deleted.
    changing: tokio::sync::Mutex<()>,
    /// Checks the forwarding settings and starts forwarding. Nothing is, without one.
    router: RwLock<Weak<Router>>,
}

struct RunningQueue {
    queue: Queue,
    task: JoinHandle<()>,
}

/// Queues dropped without [`Queues::stop`] end as in a crash.
impl Drop for Inner {
    fn drop(&mut self) {
        for running in self.running.get_mut().values() {
            running.task.abort();
        }
    }
}

impl Queues {
    /// Replays the journals of all queues. Queues that cannot be replayed are returned with their errors.
    pub async fn open(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> (Queues, Vec<(String, JournalError)>) {
        Queues::open_kind(EntityKind::Queue, None, log, clock, random, options).await
    }

    /// As [`open`](Queues::open), for topics, or for the subscriptions of these topics.
    pub(super) async fn open_kind(
        kind: EntityKind,
        topics: Option<Queues>,
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> (Queues, Vec<(String, JournalError)>) {
        let queues = Queues::closed(kind, topics, log, clock, random, options);
        let names = queues.stored_names();
        let contents = queues.topic_contents().await;
        let opened = join_all(names.iter().map(|name| queues.start(name, &contents))).await;
        let failed = opened.into_iter().filter_map(Result::err).collect();
        (queues, failed)
    }

    /// Queues of a log that several nodes share: none is open until it is [acquired](Queues::acquire).
    pub fn shared(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> Queues {
        Queues::closed(EntityKind::Queue, None, log, clock, random, options)
    }

    fn closed(
        kind: EntityKind,
        topics: Option<Queues>,
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> Queues {
        Queues {
            inner: Arc::new(Inner {
                kind,
                topics,
                log,
                clock,
                options,
                random: Mutex::new(random),
                running: RwLock::default(),
                changing: tokio::sync::Mutex::default(),
                router: RwLock::default(),
            }),
        }
    }

    /// The queues that the log has, open or not, as of the last reading of its catalogue.
    pub fn stored_names(&self) -> Vec<String> {
        let hubs = self.inner.log.hubs();
        let names = hubs.iter();
        names
            .filter_map(|hub| self.inner.kind.name_of(hub.name.as_str()))
            .collect()
    }

    /// Claims and opens a stored queue, unless it is open. From then on its former owner cannot write.
    pub async fn acquire(&self, name: &str) -> Result<Queue, JournalError> {
        let _changing = self.inner.changing.lock().await;
        match self.get(name) {
            Some(queue) => Ok(queue),
            None => {
                let started = self.start(name, &TopicContents::new()).await;
                started.map_err(|(_, error)| error)
            }
        }
    }

    /// Closes a queue after the requests before it are answered. It stays in the log, for another owner.
    pub async fn release(&self, name: &str) {
        let _changing = self.inner.changing.lock().await;
        let running = self.inner.running.write().remove(name);
        if let Some(RunningQueue { queue, task }) = running {
            queue.end_waits().await;
            queue.stop().await;
            // A panic of the task was logged.
            let _ = task.await;
        }
    }

    pub fn get(&self, name: &str) -> Option<Queue> {
        let running = self.inner.running.read();
        running.get(name).map(|running| running.queue.clone())
    }

    /// By name.
    pub fn list(&self) -> Vec<Queue> {
        let running = self.inner.running.read();
        running
            .values()
            .map(|running| running.queue.clone())
            .collect()
    }

    /// When the queue was created, in milliseconds since 1970; `None` if there is none of this name.
    pub fn created_ms(&self, name: &str) -> Option<i64> {
        let hub = self.inner.hub_of(name).ok()?;
        Some(self.inner.log.hub(hub.as_str())?.created_ms)
    }

    /// Completes when the new queue would survive a crash.
    pub async fn create(&self, name: &str, settings: Settings) -> Result<Queue, CreateError> {
        settings.check()?;
        let hub = self.inner.hub_of(name)?;
        let _changing = self.inner.changing.lock().await;
        if self.get(name).is_some() {
            return Err(CreateError::Exists(name.to_owned()));
        }
        self.check_forward(name, &settings)?;
        match journal::create(&*self.inner.log, hub).await {
            // The node may have crashed after creating the hub and before storing the settings.
            Ok(()) | Err(AdminError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.begin(name, settings).await
    }

    /// Creates the queues that do not exist, and returns them. Completes when they would survive a crash, which takes
    /// less time than one [`create`](Queues::create) after the other.
    pub async fn create_missing(
        &self,
        new: Vec<NewQueue>,
    ) -> Result<Vec<Queue>, (String, CreateError)> {
        let _changing = self.inner.changing.lock().await;
        let new: BTreeMap<String, Settings> = (new.into_iter())
            .filter(|new| self.get(&new.name).is_none())
            .map(|new| (new.name, new.settings))
            .collect();
        let mut hubs = Vec::new();
        for (name, settings) in &new {
            let failed = |error: CreateError| (name.clone(), error);
            settings.check().map_err(|error| failed(error.into()))?;
            let forward = self.check_forward(name, settings);
            forward.map_err(|error| failed(error.into()))?;
            hubs.push(self.inner.hub_of(name).map_err(failed)?);
        }
        let Some(first) = new.keys().next().cloned() else {
            return Ok(Vec::new());
        };
        let created = journal::create_missing(&*self.inner.log, hubs).await;
        created.map_err(|error| (first, error.into()))?;
        let begun = new.into_iter().map(async |(name, settings)| {
            let begun = self.begin(&name, settings).await;
            begun.map_err(|error| (name, error))
        });
        join_all(begun).await.into_iter().collect()
    }

    /// Runs a queue whose hub is new, and stores its settings.
    async fn begin(&self, name: &str, settings: Settings) -> Result<Queue, CreateError> {
        let started = self.start(name, &TopicContents::new()).await;
        let queue = started.map_err(|(_, error)| error)?;
        let first_lock = 1 + self.inner.random.lock().below(FIRST_LOCK_MAX);
        queue.begin(settings, first_lock).await?;
        self.settings_changed(&queue);
        Ok(queue)
    }

    pub async fn change(&self, name: &str, settings: Settings) -> Result<(), CreateError> {
        settings.check()?;
        let queue = self.get(name);
        let queue = queue.ok_or_else(|| CreateError::Unknown(name.to_owned()))?;
        if queue.stats().await?.settings.sessions != settings.sessions {
            return Err(CreateError::SessionsFixed);
        }
        self.check_forward(name, &settings)?;
        queue.configure(settings).await?;
        self.settings_changed(&queue);
        Ok(())
    }

    /// From now on messages are forwarded.
    pub(super) fn set_router(&self, router: Weak<Router>) {
        *self.inner.router.write() = router;
    }

    fn check_forward(&self, name: &str, settings: &Settings) -> Result<(), ForwardError> {
        match self.inner.router.read().upgrade() {
            Some(router) => router.check(name, settings),
            None => Ok(()),
        }
    }

    fn settings_changed(&self, queue: &Queue) {
        if let Some(router) = self.inner.router.read().upgrade() {
            router.settings_changed(queue.clone());
        }
    }

    /// Deletes a queue with all its messages.
    pub async fn delete(&self, name: &str) -> Result<(), CreateError> {
        let _changing = self.inner.changing.lock().await;
        let running = self.inner.running.write().remove(name);
        let Some(RunningQueue { queue, task }) = running else {
            return Err(CreateError::Unknown(name.to_owned()));
        };
        if let Some(router) = self.inner.router.read().upgrade() {
            router.forget(name);
        }
        queue.stop().await;
        // A panic of the task was logged.
        let _ = task.await;
        Ok(self.inner.log.delete(&self.inner.hub_of(name)?).await?)
    }

    /// Deletes queues whose idle time exceeds their setting. Returns their names.
    pub async fn delete_idle(&self) -> Vec<(String, Result<(), CreateError>)> {
        let mut deleted = Vec::new();
        for queue in self.list() {
            if queue.retire_if_idle() {
                let name = queue.name().to_owned();
                let result = self.delete(&name).await;
                deleted.push((name, result));
            }
        }
        deleted
    }

    /// Stops all queues after the requests before it are answered.
    pub async fn stop(&self) {
        let running = std::mem::take(&mut *self.inner.running.write());
        for RunningQueue { queue, task } in running.into_values() {
            queue.stop().await;
            let _ = task.await;
        }
    }

    /// The contents of all topics, read once for all their subscriptions.
    async fn topic_contents(&self) -> TopicContents {
        let mut contents = TopicContents::new();
        let topics = self.inner.topics.as_ref().map(Queues::list);
        let topics = topics.unwrap_or_default();
        let read = join_all(topics.iter().map(read_contents)).await;
        for (topic, read) in topics.iter().zip(read) {
            match read {
                Ok(map) => drop(contents.insert(topic.name().to_owned(), map)),
                Err(error) => tracing::error!(%error, "topic `{}` cannot be read", topic.name()),
            }
        }
        contents
    }

    /// Runs a queue. A subscription may refer to `contents`.
    async fn start(
        &self,
        name: &str,
        contents: &TopicContents,
    ) -> Result<Queue, (String, JournalError)> {
        let failed = |error| (name.to_owned(), error);
        let inner = &self.inner;
        let topic = inner.topic_of(name).map_err(failed)?;
        let contents = topic.as_ref().and_then(|it| contents.get(it.name()));
        let mut random = Random::seeded(inner.random.lock().next_u64());
        let producer = new_producer(&mut random);
        let hub = inner.hub_of(name);
        let hub = hub.expect("the name was validated when its hub was created");
        let opened = Journal::open(inner.log.clone(), inner.kind, hub.clone(), producer);
        let journal = opened.await;
        let mut journal = journal.map_err(failed)?;
        let replayed = journal.replay(contents.unwrap_or(&ContentMap::new())).await;
        let machine = replayed.map_err(failed)?;
        let (commands, received) = mpsc::channel(COMMANDS_WAITING);
        let clock = inner.clock.clone();
        let status = Arc::new(QueueStatus {
            counters: Mutex::new((machine.counts(), machine.totals())),
            fenced: AtomicBool::new(false),
            usage: Usage::new(machine.settings(), clock.elapsed()),
        });
        let queue = Queue::new(name, hub.as_str(), commands, clock.clone(), status.clone());
        let actor = Actor {
            machine,
            journal,
            topic,
            clock,
            random,
            options: inner.options.clone(),
            commands: received,
            status,
            progress: Progress::default(),
        };
        let running = RunningQueue {
            queue: queue.clone(),
            task: tokio::spawn(actor.run()),
        };
        inner.running.write().insert(name.to_owned(), running);
        Ok(queue)
    }
}

impl Inner {
    /// The topic of a subscription.
    fn topic_of(&self, name: &str) -> Result<Option<Queue>, JournalError> {
        let (Some(topics), Some((topic, _))) = (&self.topics, split_subscription_path(name)) else {
            return Ok(None);
        };
        let missing = || JournalError::Topic(format!("there is no topic `{topic}`"));
        topics.get(topic).map(Some).ok_or_else(missing)
    }

    fn hub_of(&self, name: &str) -> Result<HubName, CreateError> {
        let hub = self.kind.hub_of(name);
        hub.ok_or_else(|| CreateError::Name(name.chars().take(NAME_CHARS_SHOWN).collect()))
    }
}
