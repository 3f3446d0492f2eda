//! A workflow at work: a scheduler and a supervisor for every partition, and the handle to them.

mod counter;
mod handle;
mod intake;
mod shard;
mod tail;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::{Log, Offset, Pending};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use counter::Counter;
pub use handle::{Handle, ListFilter, StartError, Summary};
pub use intake::Intake;

use crate::call::{Functions, Lanes};
use crate::core::{Core, Role};
use crate::definition::{Definition, Version};
use crate::history::History;
use crate::journal::{self, Hubs, JournalError, read_all};
use crate::machine::View;
use crate::versions::Versions;
use shard::{Door, Shard};

/// How a workflow is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of its journal; cannot be changed once there is one.
    pub partitions: u32,
    /// Instances that are under way at once; beyond it starts are answered with [`StartError::Full`].
    pub running_max: usize,
    /// How long an instance that has ended is kept, and its id known.
    pub keep: Duration,
    /// The journal is shortened when it has grown by so much.
    pub checkpoint_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            partitions: 2,
            running_max: 100_000,
            keep: Duration::from_secs(7 * 24 * 3600),
            checkpoint_bytes: 8 << 20,
        }
    }
}

/// Where what failed is undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervision {
    #[default]
    Here,
    /// In other processes, each a [`Supervisor`](crate::supervise::Supervisor).
    Elsewhere,
}

/// People who decide about what is parked, and how they are reached.
pub trait People: Send + Sync {
    /// Ready when they have been told, or cannot be. After a crash in between they are told again.
    fn told(&self, parked: View) -> Pending<()>;
}

/// A workflow that has read its journal.
pub struct Service {
    handle: Handle,
    shards: Vec<Shard>,
    tails: Vec<tail::Tail>,
    intakes: Vec<Intake>,
    lanes: Lanes,
}

impl Service {
    /// Reads the journal of a workflow; ready when everything that was ever accepted is known.
    pub async fn open(
        log: &Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        definition: Definition,
        functions: Functions,
        options: Options,
        supervision: Supervision,
    ) -> Result<Service, JournalError> {
        let name: Arc<str> = definition.name.as_str().into();
        let hubs = Hubs::open(&**log, &name, options.partitions, options.keep).await?;
        let versions = Versions::load(&*hubs.versions).await?;
        let current = versions.store(&*hubs.versions, definition).await?;
        let lanes = Lanes::new(Arc::clone(&clock), functions);
        let mut opening = Opening {
            hubs,
            versions,
            current,
            lanes: lanes.clone(),
            clock,
            options,
            running: Arc::default(),
            failed: Arc::default(),
            shards: Vec::new(),
            tails: Vec::new(),
        };
        let count = opening.hubs.running.len();
        let mut schedulers = Vec::new();
        let mut supervisors = Vec::new();
        let mut histories = Vec::new();
        for partition in 0..count {
            let history = opening.history(partition).await?;
            let scheduler = opening.scheduler(partition, &history).await?;
            let peer = scheduler.clone();
            let supervisor = opening.supervisor(partition, &history, peer, supervision);
            supervisors.push(supervisor.await?);
            schedulers.push(scheduler);
            histories.push(history);
        }
        let Opening {
            shards,
            tails,
            running,
            failed,
            options,
            current,
            versions,
            ..
        } = opening;
        let handle = Handle::new(handle::Parts {
            name,
            version: current.0,
            partitions: count as u32,
            supervision,
            schedulers,
            supervisors,
            histories,
            running,
            failed,
            running_max: options.running_max,
            versions,
        });
        Ok(Service {
            handle,
            shards,
            tails,
            intakes: Vec::new(),
            lanes,
        })
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// People are to be told of what is parked.
    pub fn tell(&mut self, people: &Arc<dyn People>) {
        for shard in &mut self.shards {
            shard.tell_people(Arc::clone(people));
        }
    }

    /// Instances are started from a hub, too.
    pub fn take_from(&mut self, intake: Intake) {
        self.intakes.push(intake);
    }

    /// Runs until told to stop, then waits for what is being written.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), JournalError> {
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for shard in self.shards {
            tasks.spawn(shard.run(told(&stop)));
        }
        for tail in self.tails {
            tasks.spawn(tail.run(told(&stop)));
        }
        for intake in self.intakes {
            let (handle, stop) = (self.handle.clone(), told(&stop));
            tasks.spawn(async move {
                intake.run(handle, stop).await;
                Ok(())
            });
        }
        let first_end = async {
            match tasks.join_next().await {
                Some(Ok(ended)) => ended,
                Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
                None => Ok(()),
            }
        };
        let mut result = tokio::select! {
            () = shutdown => Ok(()),
            ended = first_end => ended,
        };
        stop.send_replace(true);
        while let Some(ended) = tasks.join_next().await {
            result = result.and(ended.unwrap_or(Ok(())));
        }
        self.lanes.stop();
        result
    }
}

/// Ready when the sender says true, or is gone.
fn told(stop: &watch::Sender<bool>) -> impl Future<Output = ()> + Send + 'static {
    let mut stop = stop.subscribe();
    async move {
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

/// What opening gathers.
struct Opening {
    hubs: Hubs,
    versions: Versions,
    current: (Version, Arc<Definition>),
    lanes: Lanes,
    clock: Arc<dyn Clock>,
    options: Options,
    running: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    shards: Vec<Shard>,
    tails: Vec<tail::Tail>,
}

impl Opening {
    async fn history(&self, partition: usize) -> Result<Arc<History>, JournalError> {
        let records = Arc::clone(&self.hubs.history[partition]);
        let runs = Arc::clone(&self.hubs.index[partition]);
        let history = History::open(records, runs, self.versions.clone()).await?;
        Ok(Arc::new(history))
    }

    async fn scheduler(
        &mut self,
        partition: usize,
        history: &Arc<History>,
    ) -> Result<Door, JournalError> {
        let journal = Arc::clone(&self.hubs.running[partition]);
        let (core, _) = self.recover(Role::Scheduler, &journal, history).await?;
        let (door, inbox) = mpsc::unbounded_channel();
        self.shards.push(Shard::new(shard::Parts {
            core,
            journal,
            failed: Some(Arc::clone(&self.hubs.failed[partition])),
            peer: None,
            history: Arc::clone(history),
            lanes: self.lanes.clone(),
            clock: Arc::clone(&self.clock),
            running: Arc::clone(&self.running),
            checkpoint_bytes: self.options.checkpoint_bytes,
            people: None,
            tailed: None,
            door: door.clone(),
            inbox,
        }));
        Ok(door)
    }

    async fn supervisor(
        &mut self,
        partition: usize,
        history: &Arc<History>,
        peer: Door,
        supervision: Supervision,
    ) -> Result<Door, JournalError> {
        let role = match supervision {
            Supervision::Here => Role::Supervisor,
            Supervision::Elsewhere => Role::Keeper,
        };
        let journal = Arc::clone(&self.hubs.failed[partition]);
        let (core, next) = self.recover(role, &journal, history).await?;
        let (door, inbox) = mpsc::unbounded_channel();
        self.tails.push(tail::Tail {
            partition: Arc::clone(&journal),
            next,
            versions: self.versions.clone(),
            door: door.clone(),
        });
        self.shards.push(Shard::new(shard::Parts {
            core,
            journal,
            failed: None,
            peer: Some(peer),
            history: Arc::clone(history),
            lanes: self.lanes.clone(),
            clock: Arc::clone(&self.clock),
            running: Arc::clone(&self.failed),
            checkpoint_bytes: self.options.checkpoint_bytes,
            people: None,
            tailed: Some(next),
            door: door.clone(),
            inbox,
        }));
        Ok(door)
    }

    /// Replays a journal. Where it stops is where a tail goes on.
    async fn recover(
        &self,
        role: Role,
        journal: &Arc<dyn highwater_log::Partition>,
        history: &History,
    ) -> Result<(Core, Offset), JournalError> {
        let current = (role == Role::Scheduler).then(|| self.current.clone());
        let mut core = Core::new(role, current, Random::from_os());
        let versions = &self.versions;
        let next = read_all(&**journal, |record| {
            let (Some(key), Some(value)) = (record.key, record.value) else {
                return Ok(());
            };
            let id = String::from_utf8_lossy(key);
            let replayed = journal::read(&id, value, versions)
                .and_then(|read| core.replay(&id, read, versions));
            replayed.map_err(|error| JournalError::Record {
                place: journal.place().to_string(),
                offset: record.offset,
                error,
            })
        })
        .await?;
        for id in core.doubtful() {
            if history.may_have(&id) && history.find(&id).await?.is_some() {
                core.forget(&id);
            }
        }
        Ok((core, next))
    }
}
