//! The queues of a node: opened at its start, created, changed and deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::join_all;
use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::{AdminError, HubName, Log};
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::actor::{Actor, Options, QueueStatus, new_producer};
use super::error::CreateError;
use super::handle::Queue;
use crate::journal::{self, EntityKind, Journal, JournalError};
use crate::settings::Settings;

/// Capacity of a queue's command channel. Callers wait when it is full.
const COMMANDS_WAITING: usize = 4096;
/// Of a name that is refused.
const NAME_CHARS_SHOWN: usize = 200;
/// Lock numbers of a new queue start at a random number below this, so a token of a deleted queue matches no
/// message of a new queue with the same name.
const FIRST_LOCK_MAX: u64 = 1 << 48;

/// Clones refer to the same queues.
#[derive(Clone)]
pub struct Queues {
    inner: Arc<Inner>,
}

struct Inner {
    kind: EntityKind,
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    options: Options,
    random: Mutex<Random>,
    running: RwLock<BTreeMap<String, RunningQueue>>,
    /// Held while a queue is created or deleted.
    changing: tokio::sync::Mutex<()>,
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
        Queues::open_kind(EntityKind::Queue, log, clock, random, options).await
    }

    /// As [`open`](Queues::open), for topics or subscriptions.
    pub(super) async fn open_kind(
        kind: EntityKind,
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> (Queues, Vec<(String, JournalError)>) {
        let queues = Queues::closed(kind, log, clock, random, options);
        let names = queues.stored_names();
        let opened = join_all(names.iter().map(|name| queues.start(name))).await;
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
        Queues::closed(EntityKind::Queue, log, clock, random, options)
    }

    fn closed(
        kind: EntityKind,
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: Options,
    ) -> Queues {
        Queues {
            inner: Arc::new(Inner {
                kind,
                log,
                clock,
                options,
                random: Mutex::new(random),
                running: RwLock::default(),
                changing: tokio::sync::Mutex::default(),
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
            None => self.start(name).await.map_err(|(_, error)| error),
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
        match journal::create(&*self.inner.log, hub).await {
            // The node may have crashed after creating the hub and before storing the settings.
            Ok(()) | Err(AdminError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let queue = self.start(name).await.map_err(|(_, error)| error)?;
        let first_lock = 1 + self.inner.random.lock().below(FIRST_LOCK_MAX);
        queue.begin(settings, first_lock).await?;
        Ok(queue)
    }

    pub async fn change(&self, name: &str, settings: Settings) -> Result<(), CreateError> {
        settings.check()?;
        let queue = self.get(name);
        let queue = queue.ok_or_else(|| CreateError::Unknown(name.to_owned()))?;
        if queue.stats().await?.settings.sessions != settings.sessions {
            return Err(CreateError::SessionsFixed);
        }
        Ok(queue.configure(settings).await?)
    }

    /// Deletes a queue with all its messages.
    pub async fn delete(&self, name: &str) -> Result<(), CreateError> {
        let _changing = self.inner.changing.lock().await;
        let running = self.inner.running.write().remove(name);
        let Some(RunningQueue { queue, task }) = running else {
            return Err(CreateError::Unknown(name.to_owned()));
        };
        queue.stop().await;
        // A panic of the task was logged.
        let _ = task.await;
        Ok(self.inner.log.delete(&self.inner.hub_of(name)?).await?)
    }

    /// Stops all queues after the requests before it are answered.
    pub async fn stop(&self) {
        let running = std::mem::take(&mut *self.inner.running.write());
        for RunningQueue { queue, task } in running.into_values() {
            queue.stop().await;
            let _ = task.await;
        }
    }

    async fn start(&self, name: &str) -> Result<Queue, (String, JournalError)> {
        let failed = |error| (name.to_owned(), error);
        let inner = &self.inner;
        let mut random = Random::seeded(inner.random.lock().next_u64());
        let producer = new_producer(&mut random);
        let hub = inner.hub_of(name);
        let hub = hub.expect("the name was validated when its hub was created");
        let journal = Journal::open(inner.log.clone(), hub, producer).await;
        let mut journal = journal.map_err(failed)?;
        let machine = journal.replay().await.map_err(failed)?;
        let (commands, received) = mpsc::channel(COMMANDS_WAITING);
        let clock = inner.clock.clone();
        let status = Arc::new(QueueStatus {
            counters: Mutex::new((machine.counts(), machine.totals())),
            fenced: AtomicBool::new(false),
        });
        let queue = Queue::new(name, commands, clock.clone(), status.clone());
        let actor = Actor::new(
            machine,
            journal,
            clock,
            random,
            inner.options.clone(),
            received,
            status,
        );
        let running = RunningQueue {
            queue: queue.clone(),
            task: tokio::spawn(actor.run()),
        };
        inner.running.write().insert(name.to_owned(), running);
        Ok(queue)
    }
}

impl Inner {
    fn hub_of(&self, name: &str) -> Result<HubName, CreateError> {
        let hub = self.kind.hub_of(name);
        hub.ok_or_else(|| CreateError::Name(name.chars().take(NAME_CHARS_SHOWN).collect()))
    }
}
