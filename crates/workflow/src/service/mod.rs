//! A running workflow: a scheduler and a supervisor for every partition, and the handle to them.

mod failed_instances;
mod handle;
mod input_memory;
mod intake;
mod list;
mod shard;
mod tail;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_env::{Clock, EgressPolicy, shutdown_signal};
use highwater_log::{BoxFuture, Log, Offset, Partition};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use failed_instances::LocalFailedInstances;
pub use handle::{Handle, StartError};
pub use intake::HubIntake;
pub use list::{InstancePage, InstanceSummary, ListCursor, ListFilter, STATES, STATES_IN_PROGRESS};

use crate::call::{Functions, ServicePools};
use crate::core::{Core, Role};
use crate::definition::{Definition, Version};
use crate::history::History;
use crate::journal::{self, JournalError, JournalHubs, read_all};
use crate::machine::View;
use crate::versions::Versions;
use input_memory::InputMemory;
use shard::{Shard, ShardSender};

/// Options of a running workflow.
#[derive(Clone, Debug)]
pub struct Options {
    /// Partitions of the journal. Fixed when the journal is created.
    pub partitions: u32,
    /// Maximum number of instances in progress; beyond it, starts fail with [`StartError::Full`].
    pub running_max: usize,
    /// Maximum size of the inputs of instances in progress together; beyond it, starts fail with
    /// [`StartError::FullOfInputs`].
    pub input_bytes_max: usize,
    /// How long ended instances, and so their ids, are kept.
    pub keep: Duration,
    /// The journal is compacted when it has grown by this much.
    pub checkpoint_bytes: usize,
    /// The hosts that steps may call.
    pub egress: EgressPolicy,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            partitions: 2,
            running_max: 100_000,
            input_bytes_max: 1 << 30,
            keep: Duration::from_secs(7 * 24 * 3600),
            checkpoint_bytes: 8 << 20,
            egress: EgressPolicy::default(),
        }
    }
}

/// Where failed instances are undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervision {
    #[default]
    Here,
    /// In other processes, each a [`Supervisor`](crate::supervise::Supervisor).
    Elsewhere,
}

/// A workflow whose journal has been replayed.
pub struct Service {
    handle: Handle,
    shards: Vec<Shard>,
    tails: Vec<tail::Tail>,
    intakes: Vec<HubIntake>,
    pools: ServicePools,
}

impl Service {
    /// Replays the journal. When it completes, every accepted instance is known.
    pub async fn open(
        log: &Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        definition: Definition,
        functions: Functions,
        options: Options,
        supervision: Supervision,
    ) -> Result<Service, JournalError> {
        let name: Arc<str> = definition.name.as_str().into();
        let hubs = JournalHubs::open(&**log, &name, options.partitions, options.keep).await?;
        let versions = Versions::load(&*hubs.versions).await?;
        let current = versions.store(&*hubs.versions, definition).await?;
        let egress = options.egress.clone();
        let pools = ServicePools::new(Arc::clone(&clock), functions, egress);
        let mut parts = ServiceParts {
            hubs,
            versions,
            current,
            pools: pools.clone(),
            clock,
            input_memory: InputMemory::new(options.input_bytes_max),
            options,
            running: Arc::default(),
            failed: Arc::default(),
            shards: Vec::new(),
            tails: Vec::new(),
        };
        let partitions = parts.hubs.running.len() as u32;
        let OpenPartitions {
            schedulers,
            supervisors,
            histories,
        } = parts.open_partitions(supervision).await?;
        let ServiceParts {
            shards,
            tails,
            running,
            failed,
            options,
            input_memory,
            current,
            versions,
            ..
        } = parts;
        let handle = Handle::new(handle::Parts {
            name,
            version: current.0,
            partitions,
            supervision,
            schedulers,
            supervisors,
            histories,
            running,
            failed,
            running_max: options.running_max,
            input_memory,
            versions,
        });
        Ok(Service {
            handle,
            shards: shards.into_iter().map(Shard::new).collect(),
            tails,
            intakes: Vec::new(),
            pools,
        })
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Sets who is notified of parked instances.
    pub fn set_notifier(&mut self, notifier: &Arc<dyn OperatorNotifier>) {
        for shard in &mut self.shards {
            shard.set_notifier(Arc::clone(notifier));
        }
    }

    /// Also starts instances from a hub.
    pub fn add_intake(&mut self, intake: HubIntake) {
        self.intakes.push(intake);
    }

    /// Runs until `shutdown`, then waits for writes in progress.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), JournalError> {
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        for shard in self.shards {
            tasks.spawn(shard.run(shutdown_signal(stop.subscribe())));
        }
        for tail in self.tails {
            tasks.spawn(tail.run(shutdown_signal(stop.subscribe())));
        }
        for intake in self.intakes {
            let (handle, stop) = (self.handle.clone(), shutdown_signal(stop.subscribe()));
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
        self.pools.stop();
        result
    }
}

/// Notifies the operators who decide about parked instances.
pub trait OperatorNotifier: Send + Sync {
    /// Completes when they are notified or cannot be reached. After a crash in between, they are notified again.
    fn notify_parked(&self, parked: View) -> BoxFuture<()>;
}

/// The state of [`Service::open`].
struct ServiceParts {
    hubs: JournalHubs,
    versions: Versions,
    current: (Version, Arc<Definition>),
    pools: ServicePools,
    clock: Arc<dyn Clock>,
    options: Options,
    input_memory: InputMemory,
    running: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    /// Not shards yet: those cannot be shared between threads, and a workflow may be opened on several.
    shards: Vec<shard::ShardParts>,
    tails: Vec<tail::Tail>,
}

/// The handles of all partitions for reaching their instances.
#[derive(Default)]
struct OpenPartitions {
    schedulers: Vec<ShardSender>,
    supervisors: Vec<ShardSender>,
    histories: Vec<Arc<History>>,
}

impl ServiceParts {
    async fn open_partitions(
        &mut self,
        supervision: Supervision,
    ) -> Result<OpenPartitions, JournalError> {
        let mut open = OpenPartitions::default();
        for partition in 0..self.hubs.running.len() {
            let history = self.history(partition).await?;
            let scheduler = self.scheduler(partition, &history).await?;
            let peer = scheduler.clone();
            let supervisor = self.supervisor(partition, &history, peer, supervision);
            open.supervisors.push(supervisor.await?);
            open.schedulers.push(scheduler);
            open.histories.push(history);
        }
        Ok(open)
    }

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
    ) -> Result<ShardSender, JournalError> {
        let journal = Arc::clone(&self.hubs.running[partition]);
        let (core, _) = self.recover(Role::Scheduler, &journal, history).await?;
        let mut parts = self.shard_parts(core, journal, history, &self.running);
        parts.failed = Some(Arc::clone(&self.hubs.failed[partition]));
        Ok(self.add_shard(parts))
    }

    async fn supervisor(
        &mut self,
        partition: usize,
        history: &Arc<History>,
        peer: ShardSender,
        supervision: Supervision,
    ) -> Result<ShardSender, JournalError> {
        let role = match supervision {
            Supervision::Here => Role::Supervisor,
            Supervision::Elsewhere => Role::Dispatcher,
        };
        let journal = Arc::clone(&self.hubs.failed[partition]);
        let (core, next) = self.recover(role, &journal, history).await?;
        let mut parts = self.shard_parts(core, Arc::clone(&journal), history, &self.failed);
        parts.peer = Some(peer);
        parts.tailed = Some(next);
        let sender = self.add_shard(parts);
        self.tails.push(tail::Tail {
            partition: journal,
            next,
            versions: self.versions.clone(),
            sender: sender.clone(),
        });
        Ok(sender)
    }

    fn shard_parts(
        &self,
        core: Core,
        journal: Arc<dyn Partition>,
        history: &Arc<History>,
        running: &Arc<AtomicUsize>,
    ) -> shard::ShardParts {
        let (sender, inbox) = mpsc::unbounded_channel();
        shard::ShardParts {
            core,
            journal,
            failed: None,
            peer: None,
            history: Arc::clone(history),
            pools: self.pools.clone(),
            clock: Arc::clone(&self.clock),
            running: Arc::clone(running),
            input_memory: self.input_memory.clone(),
            checkpoint_bytes: self.options.checkpoint_bytes,
            notifier: None,
            tailed: None,
            sender,
            inbox,
        }
    }

    fn add_shard(&mut self, parts: shard::ShardParts) -> ShardSender {
        let sender = parts.sender.clone();
        self.shards.push(parts);
        sender
    }

    /// Replays a journal. Returns the offset where its tail continues.
    async fn recover(
        &self,
        role: Role,
        partition: &Arc<dyn Partition>,
        history: &History,
    ) -> Result<(Core, Offset), JournalError> {
        let current = (role == Role::Scheduler).then(|| self.current.clone());
        let mut core = Core::new(role, current, Random::from_os());
        let versions = &self.versions;
        let next = read_all(&**partition, |record| {
            let Some((id, read)) = journal::read_record(&**partition, record, versions)? else {
                return Ok(());
            };
            let replayed = core.replay(&id, read, versions);
            replayed.map_err(|error| journal::unreadable(&**partition, record.offset, error))
        })
        .await?;
        for id in core.possibly_archived() {
            if history.may_have(&id) && history.find(&id).await?.is_some() {
                core.mark_archived(&id);
            }
        }
        for instance in core.instances_mut() {
            self.input_memory.count(instance);
        }
        Ok((core, next))
    }
}
