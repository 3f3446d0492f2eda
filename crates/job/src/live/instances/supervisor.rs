//! Runs the assigned shards of an instance, and releases revoked ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_log::{AdminError, CleanupPolicy, HubName, HubSettings, HubSpec, Offset};
use highwater_time::Instant;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::super::build::JobBuilder;
use super::super::fingerprint::Fingerprint;
use super::super::handle::{START, stop_command};
use super::super::input_logs::{InputLogs, kafka_input};
use super::super::internal_names::{internal_name, internal_topic};
use super::super::partitions::InputPartitions;
use super::super::run::Command;
use super::super::start::{blocking, now};
use super::super::state_limit::StateLimit;
use super::super::status::{
    InputStatus, JobShare, JobState, OutputStatus, PartitionStatus, StatusHandle,
};
use super::super::{JobContext, Options, StartError};
use super::assignment::{ShardAssignment, ShardAssignor, ShardMembership, ShardNumber};
use super::combiner_shard::CombinerShard;
use super::group::InstanceGroup;
use super::identity::JobIdentity;
use super::references::{ReferencePoller, ShardCounts, SharedReferences};
use super::stream_shard::StreamShard;
use super::{InstanceContext, ShardExit};
use crate::config::Start;
use crate::key_spread::{combiners, key_routes};
use crate::load::Job;

/// Pause before a shard is started again, and before a cluster is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// The job fails when a shard was held up this often without a pause of [`CALM`].
const DELAYS_MAX: u32 = 60;
const CALM: Duration = Duration::from_secs(60);

/// How often the inputs are checked for new partitions.
const GROWTH_CHECK: Duration = Duration::from_secs(10);

/// An instance of a shared job.
pub(in crate::live) struct Instance {
    pub job: Arc<Job>,
    pub context: JobContext,
    pub logs: InputLogs,
    pub options: Options,
    pub status: StatusHandle,
}

/// Why an instance cannot start.
enum StartProblem {
    Temporary(String),
    Final(String),
}

impl From<StartError> for StartProblem {
    fn from(error: StartError) -> StartProblem {
        match error.is_temporary() {
            true => StartProblem::Temporary(error.to_string()),
            false => StartProblem::Final(error.to_string()),
        }
    }
}

fn store_problem(error: &std::io::Error) -> StartProblem {
    let reason = format!("the state of the job: {error}");
    match error.kind() {
        std::io::ErrorKind::InvalidData => StartProblem::Final(reason),
        _ => StartProblem::Temporary(reason),
    }
}

/// Why instances cannot share the job, if they cannot.
pub(crate) fn sharing_refusal(job: &Job) -> Option<String> {
    for (input, planned) in job.plan.inputs.iter().enumerate() {
        let name = &planned.name;
        match kafka_input(job, input) {
            None => {
                return Some(format!(
                    "input \"{name}\" is no Kafka topic; only the partitions of topics are shared, and those of hubs on \
                     a node whose log is a cluster"
                ));
            }
            Some(kafka) if !kafka.transactions => {
                return Some(format!(
                    "input \"{name}\" is of a cluster without transactions (transactions = false), and without transactions an \
                     instance that was thought dead cannot be shut out"
                ));
            }
            Some(_) => {}
        }
    }
    if let Some(reason) = unbounded_substreams(job) {
        return Some(reason);
    }
    if job.early.is_some() {
        return Some("it gives early results, which instances do not share yet".into());
    }
    let mut outputs = job.file.outputs.iter();
    let unfenced = outputs.find(|output| !output.settings.is_fenced());
    let unfenced = unfenced.map(|output| {
        format!(
            "output \"{}\" cannot shut out an instance that was thought dead; use an output of type \"kafka\" with \
             transactions, or of type \"hub\" on a node whose log is a cluster with transactions",
            output.name
        )
    });
    unfenced.or_else(|| match combiners(job) {
        1 => None,
        several => key_routes(job).err().map(|reason| {
            format!(
                "{several} combiners cannot share it by key: {reason}. Leave `state.combiners` out"
            )
        }),
    })
}

/// Why reference data cannot take effect at one time for all partitions, if it cannot.
fn unbounded_substreams(job: &Job) -> Option<String> {
    let policy = job.file.time;
    let is_unbounded = policy.early_arrival.is_none() && !job.plan.references.is_empty();
    let mut inputs = job.plan.inputs.iter();
    let input = inputs.find(|input| is_unbounded && !input.substream.is_empty())?;
    Some(format!(
        "the substreams of input \"{}\" may be ahead of each other by any time, so there is no time at which reference \
         data could take effect; set `time.early_arrival`",
        input.name
    ))
}

impl Instance {
    /// Runs to the end of the job on this instance.
    pub(in crate::live) async fn run(self, commands: &mut mpsc::Receiver<Command>) -> JobState {
        if let Some(reason) = sharing_refusal(&self.job) {
            let reason = format!("several instances cannot share this job: {reason}");
            return JobState::Failed { reason };
        }
        let prepared = tokio::select! {
            prepared = self.prepare() => Some(prepared),
            () = stop_command(commands) => None,
        };
        self.status.set_alarm(START, None);
        let context = match prepared {
            Some(Ok(context)) => Arc::new(context),
            Some(Err(reason)) => return JobState::Failed { reason },
            None => return JobState::Stopped,
        };
        let shards = context.partitions.all.len() + context.combiners;
        let membership = match self.assignor(&context) {
            Ok(assignor) => assignor.join(shards),
            Err(reason) => return JobState::Failed { reason },
        };
        self.status.set_state(JobState::Running);
        let poll = context.references.clone().map(ReferencePoller::new);
        let supervisor = ShardSupervisor {
            instance: context,
            membership,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            restarts: BTreeMap::new(),
            poll,
            awaiting_tables: BTreeMap::new(),
            patience: self.options.stop_patience,
        };
        supervisor.run(commands).await
    }

    fn assignor(&self, context: &InstanceContext) -> Result<Arc<dyn ShardAssignor>, String> {
        if let Some(assignor) = &self.context.assignor {
            return Ok(assignor.clone());
        }
        let groups = context.cluster.groups.clone();
        let groups = groups.ok_or("the cluster has no groups through which to share the job")?;
        let id = format!("{:016x}", context.identity.id);
        let state = self.job.file.live.state.as_ref();
        Ok(Arc::new(InstanceGroup {
            groups,
            group: internal_name("_highwater-job", &[&self.job.file.name, &id]),
            session: state.map(|state| state.session_timeout).unwrap_or_default(),
            clock: self.context.clock.clone(),
        }))
    }

    /// Tries until the cluster and the store answer. The error says why the job fails.
    async fn prepare(&self) -> Result<InstanceContext, String> {
        loop {
            match self.try_prepare().await {
                Ok(context) => return Ok(context),
                Err(StartProblem::Final(reason)) => return Err(reason),
                Err(StartProblem::Temporary(reason)) => {
                    let alarm = format!("cannot start yet: {reason}");
                    self.status.set_alarm(START, Some(alarm));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn try_prepare(&self) -> Result<InstanceContext, StartProblem> {
        let store = self.context.state.clone().ok_or_else(|| {
            StartProblem::Final("there is no store for the state of a shared job here".into())
        })?;
        let (job, logs, status) = (&self.job, &self.logs, &self.status);
        logs.connect(job, &self.context, status).await?;
        let all = InputPartitions::find(job, logs).await?;
        let folder = internal_name("job", &[&job.file.name]);
        let (reading, own) = (store.clone(), folder.clone());
        let stored = blocking(move || JobIdentity::read(&*reading, &own)).await?;
        let identity = match stored.map_err(|error| store_problem(&error))? {
            Some(identity) => identity,
            None => {
                let proposed = self.propose(&all).await?;
                let (store, own) = (store.clone(), folder.clone());
                let agreed = blocking(move || proposed.propose(&store, &own)).await?;
                agreed.map_err(|error| store_problem(&error))?
            }
        };
        let partitions = self.known_partitions(&all, &identity)?;
        let cluster = logs.cluster(0);
        let cluster = cluster.ok_or_else(|| StartProblem::Temporary("no cluster".into()))?;
        let id = format!("{:016x}", identity.id);
        let no_topic = || StartProblem::Final("its first input is no topic".into());
        let first = kafka_input(job, 0).ok_or_else(no_topic)?;
        let exchange = internal_topic(first, "exchange", &[&job.file.name, &id]);
        let exchange = HubName::new(&exchange);
        let exchange = exchange.map_err(|error| StartProblem::Final(error.to_string()))?;
        let folder = format!("{folder}/{id}");
        let shards = ShardCounts {
            streams: partitions.all.len(),
            combiners: combiners(job),
        };
        let references = SharedReferences::of(job, status, store.clone(), &folder, shards);
        let context = InstanceContext {
            job: job.clone(),
            context: self.context.clone(),
            options: self.options.clone(),
            status: status.clone(),
            logs: logs.clone(),
            folder,
            partitions,
            references,
            identity,
            cluster,
            exchange,
            combiners: combiners(job),
            routes: match combiners(job) {
                1 => None,
                _ => Some(Arc::new(key_routes(job).map_err(StartProblem::Final)?)),
            },
            store,
            state_limit: StateLimit::new(self.options.state_bytes_max),
        };
        context.ensure_exchange().await?;
        if let Some(references) = &context.references {
            references.begin().await?;
        }
        context.show_layout();
        Ok(context)
    }

    /// The identity of a job that has not run yet.
    async fn propose(&self, all: &InputPartitions) -> Result<JobIdentity, StartProblem> {
        let explicit = self.options.start.filter(|start| *start != Start::Resume);
        let since = match explicit.unwrap_or(self.job.file.live.start) {
            Start::Beginning => Instant::BEFORE_ALL,
            Start::At(time) => time,
            Start::Now | Start::Resume => now(&self.status),
        };
        let starts: Vec<Offset> = match since {
            Instant::BEFORE_ALL => all.starts(),
            since => all.positions_for(since, &self.job).await?,
        };
        let mut random = Random::from_os();
        Ok(JobIdentity {
            id: random.next_u64(),
            epoch: 0,
            since,
            starts,
            fingerprint: Fingerprint::of(&self.job, all),
        })
    }

    /// The partitions that the job has had from its start, if it is the same job.
    fn known_partitions(
        &self,
        all: &InputPartitions,
        identity: &JobIdentity,
    ) -> Result<InputPartitions, StartProblem> {
        let known = identity.fingerprint.partitions();
        let known = known.and_then(|known| all.known_and_new(known));
        let partitions = known.map_or_else(|| all.clone(), |(known, _)| known);
        let fingerprint = Fingerprint::of(&self.job, &partitions);
        match identity.fingerprint.difference(&fingerprint) {
            None if identity.starts.len() == partitions.all.len() => Ok(partitions),
            None => Err(StartProblem::Final("its identity is damaged".into())),
            Some(change) => Err(StartProblem::Final(format!(
                "the state of the job is that of another one, because {change}. Stop all instances, and give the job \
                 another name or another `state.path`"
            ))),
        }
    }
}

impl InstanceContext {
    /// Creates the exchange if it is absent.
    async fn ensure_exchange(&self) -> Result<(), StartProblem> {
        let (log, name) = (&self.cluster.log, &self.exchange);
        if log.hub(name.as_str()).is_some() {
            return Ok(());
        }
        let created = log.create(HubSpec {
            name: name.clone(),
            partitions: (self.partitions.all.len() * self.combiners) as u32,
            settings: HubSettings {
                cleanup: CleanupPolicy::Delete,
                // The combiner deletes what it has.
                retention: None,
                ..HubSettings::default()
            },
        });
        match created.await {
            Ok(_) | Err(AdminError::Exists(_)) => Ok(()),
            Err(AdminError::Storage(reason)) => Err(StartProblem::Temporary(format!(
                "the exchange `{name}`: {reason}"
            ))),
            Err(error) => Err(StartProblem::Final(format!(
                "the exchange `{name}` cannot be created: {error}"
            ))),
        }
    }

    /// Lists all inputs and outputs in the status.
    fn show_layout(&self) {
        let builder = JobBuilder {
            job: &self.job,
            physical: &self.job.physical,
            clock: &self.context.clock,
            status: &self.status,
            state_limit: &self.state_limit,
        };
        let inputs = self.job.plan.inputs.iter().enumerate();
        let inputs = inputs.map(|(index, input)| {
            let all = self.partitions.all.iter();
            let own = all.filter(|partition| partition.input == index);
            InputStatus {
                name: input.name.clone(),
                partitions: own
                    .map(|partition| PartitionStatus::new(partition.place.clone()))
                    .collect(),
            }
        });
        let outputs = builder.output_names().into_iter().map(|name| OutputStatus {
            name,
            ..OutputStatus::default()
        });
        let streams = self.partitions.all.iter();
        let streams = streams.map(|partition| (partition.input, partition.number));
        let (inputs, outputs) = (inputs.collect(), outputs.collect());
        self.status.set_layout(inputs, outputs, streams.collect());
    }

    /// The name of a shard in the log of the job.
    fn shard_name(&self, shard: ShardNumber) -> String {
        match self.partitions.all.get(shard) {
            Some(source) => format!("`{}`", source.place),
            None if self.combiners == 1 => "the combiner".into(),
            None => format!("combiner {}", shard - self.partitions.all.len()),
        }
    }

    /// Tells that the state of a shard cannot be read or stored.
    pub(super) fn set_store_alarm(&self, shard: ShardNumber, reason: Option<&str>) {
        let name = self.shard_name(shard);
        let alarm = reason.map(|reason| format!("{name}: {reason}"));
        self.status.set_alarm(&format!("state of {name}"), alarm);
    }

    /// Tells of partitions that are not read.
    fn check_growth(&self) {
        let mut grown = Vec::new();
        for (hub, input, read) in self.partitions.hubs() {
            let log = self.logs.log(&self.job, input);
            let there = log.and_then(|log| log.hub(hub.as_str()));
            let there = there.map_or(read, |hub| hub.partitions);
            if there > read {
                grown.push(format!(
                    "topic `{hub}` has {there} partitions, of which {read} are read: a shared job does not adopt \
                     partitions; give it another name to read them all"
                ));
            }
        }
        let alarm = (!grown.is_empty()).then(|| grown.join("; "));
        self.status.set_alarm("partitions", alarm);
    }
}

/// A shard that runs on this instance.
struct RunningShard {
    commands: mpsc::Sender<Command>,
    abort: AbortHandle,
    started: Duration,
}

/// Completes when a poll for reference data is done.
async fn poll_finished(poll: &mut Option<ReferencePoller>) {
    match poll {
        Some(poll) => poll.poll_finished().await,
        None => std::future::pending().await,
    }
}

/// A shard that was held up.
#[derive(Clone, Copy)]
struct Restart {
    delays: u32,
    due: Duration,
}

struct ShardSupervisor {
    instance: Arc<InstanceContext>,
    membership: ShardMembership,
    tasks: JoinSet<(ShardNumber, ShardExit)>,
    running: BTreeMap<ShardNumber, RunningShard>,
    restarts: BTreeMap<ShardNumber, Restart>,
    /// Set if the job has reference data.
    poll: Option<ReferencePoller>,
    /// Shards that continue with this version of the reference data.
    awaiting_tables: BTreeMap<ShardNumber, u64>,
    patience: Duration,
}

impl ShardSupervisor {
    async fn run(mut self, commands: &mut mpsc::Receiver<Command>) -> JobState {
        let mut growth_checked = self.now();
        self.reconcile();
        loop {
            self.show_share();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Checkpoint(answer)) => self.checkpoint(answer),
                    Some(Command::Stop) | None => return self.stop().await,
                    Some(Command::Kill) => {
                        self.tasks.shutdown().await;
                        return JobState::Stopped;
                    }
                },
                Ok(()) = self.membership.assignment.changed() => self.reconcile(),
                Some(answer) = self.membership.rebalances.recv() => {
                    let (done, is_done) = oneshot::channel();
                    self.checkpoint(done);
                    tokio::spawn(async move {
                        // Also if a shard could not store one.
                        let _ = is_done.await;
                        let _ = answer.send(());
                    });
                }
                Some(ended) = self.tasks.join_next() => {
                    if let Some(reason) = self.take_end(ended) {
                        return self.fail(reason).await;
                    }
                }
                () = poll_finished(&mut self.poll) => self.start_with_tables(),
                () = tokio::time::sleep(PAUSE / 10) => {
                    self.start_delayed();
                    self.start_with_tables();
                    self.look_for_references();
                    if self.now() >= growth_checked + GROWTH_CHECK {
                        self.instance.check_growth();
                        growth_checked = self.now();
                    }
                }
            }
        }
    }

    /// Shows in the status which part of the job runs here.
    fn show_share(&self) {
        let streams = self.instance.partitions.all.len();
        let streams = self.running.range(..streams).count();
        let share = Some(JobShare {
            streams,
            combiners: self.running.len() - streams,
        });
        self.instance.status.update(|status| status.share = share);
    }

    fn now(&self) -> Duration {
        self.instance.context.clock.elapsed()
    }

    /// Starts the shards that are assigned, and stops the others.
    fn reconcile(&mut self) {
        let assignment = self.membership.assignment.borrow_and_update().clone();
        let refusal = match &assignment {
            ShardAssignment::Refused(reason) => Some(reason.clone()),
            _ => None,
        };
        self.instance.status.set_alarm("instances", refusal);
        for (shard, running) in &self.running {
            match &assignment {
                ShardAssignment::None | ShardAssignment::Refused(_) => running.abort.abort(),
                assigned if assigned.has(*shard) => {}
                // It stores a checkpoint, if it is still its own. A shard that is stopping takes no second command.
                _ => drop(running.commands.try_send(Command::Stop)),
            }
        }
        let ShardAssignment::Shards(shards) = assignment else {
            return;
        };
        let new = shards.into_iter();
        let new: Vec<ShardNumber> = new
            .filter(|shard| !self.running.contains_key(shard))
            .filter(|shard| !self.awaiting_tables.contains_key(shard))
            .collect();
        for shard in new {
            self.start(shard);
        }
    }

    /// The instance with the first combiner reads the files of reference data.
    fn look_for_references(&mut self) {
        let (now, combiner) = (self.now(), self.instance.partitions.all.len());
        let reads_files = self.running.contains_key(&combiner);
        if let Some(poll) = &mut self.poll {
            poll.poll_if_due(now, reads_files);
        }
    }

    /// Starts the shards again whose reference data is decided.
    fn start_with_tables(&mut self) {
        let Some(poll) = &self.poll else {
            return;
        };
        let decided = poll.versions().decided;
        let assignment = self.membership.assignment.borrow().clone();
        let awaiting = std::mem::take(&mut self.awaiting_tables).into_iter();
        let (due, awaiting) = awaiting.partition(|(_, version)| *version <= decided);
        self.awaiting_tables = awaiting;
        let due: BTreeMap<ShardNumber, u64> = due;
        for shard in due.into_keys() {
            if assignment.has(shard) && !self.running.contains_key(&shard) {
                self.start(shard);
            }
        }
    }

    fn start(&mut self, shard: ShardNumber) {
        let (commands, inbox) = mpsc::channel(8);
        let instance = self.instance.clone();
        let name = instance.shard_name(shard);
        self.instance.status.log(format!("takes {name}"));
        let combiner = shard.checked_sub(instance.partitions.all.len());
        let abort = self.tasks.spawn(async move {
            let end = match combiner {
                None => {
                    let number = shard;
                    StreamShard { instance, number }.run(inbox).await
                }
                Some(number) => CombinerShard { instance, number }.run(inbox).await,
            };
            (shard, end)
        });
        let started = self.now();
        let running = RunningShard {
            commands,
            abort,
            started,
        };
        self.running.insert(shard, running);
    }

    /// Handles the end of a shard. Returns why the job fails, if it does.
    fn take_end(
        &mut self,
        ended: Result<(ShardNumber, ShardExit), tokio::task::JoinError>,
    ) -> Option<String> {
        let (shard, end) = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => {
                self.running
                    .retain(|_, running| !running.abort.is_finished());
                self.reconcile();
                return None;
            }
            Err(error) => return Some(error.to_string()),
        };
        let started = self.running.remove(&shard).map(|running| running.started);
        if shard < self.instance.partitions.all.len() {
            // Whoever has it now counts its backlog.
            let status = &self.instance.status;
            status.update_partition(shard, |partition| partition.backlog = 0);
        }
        let name = self.instance.shard_name(shard);
        let reason = match end {
            ShardExit::Failed(reason) => return Some(format!("{name}: {reason}")),
            ShardExit::AwaitsTables(version) => {
                self.awaiting_tables.insert(shard, version);
                return None;
            }
            ShardExit::Stopped => {
                self.instance.set_store_alarm(shard, None);
                self.instance.status.log(format!("has released {name}"));
                self.reconcile();
                return None;
            }
            ShardExit::Fenced(reason) => {
                self.instance.set_store_alarm(shard, None);
                self.instance
                    .status
                    .log(format!("has lost {name}: {reason}"));
                reason
            }
            ShardExit::Delayed(reason) => {
                self.instance.status.log(format!("{name} waits: {reason}"));
                reason
            }
            ShardExit::WithoutStore(reason) => {
                self.instance.set_store_alarm(shard, Some(&reason));
                self.restart_after_pause(shard, 0);
                return None;
            }
        };
        let was_calm = started.is_some_and(|started| self.now() >= started + CALM);
        let before = self.restarts.get(&shard).filter(|_| !was_calm);
        let delays = before.map_or(0, |before| before.delays) + 1;
        if delays > DELAYS_MAX {
            return Some(format!("{name}: {reason}"));
        }
        self.restart_after_pause(shard, delays);
        None
    }

    fn restart_after_pause(&mut self, shard: ShardNumber, delays: u32) {
        let due = self.now() + PAUSE;
        self.restarts.insert(shard, Restart { delays, due });
    }

    /// Starts shards again whose pause is over.
    fn start_delayed(&mut self) {
        let assignment = self.membership.assignment.borrow().clone();
        let now = self.now();
        let due = self
            .restarts
            .iter()
            .filter(|(_, restart)| restart.due <= now);
        let due: Vec<ShardNumber> = due.map(|(shard, _)| *shard).collect();
        for shard in due {
            if !assignment.has(shard) {
                self.restarts.remove(&shard);
                self.instance.set_store_alarm(shard, None);
            } else if !self.running.contains_key(&shard) {
                self.start(shard);
            }
        }
    }

    /// Stores a checkpoint of every shard; answers with the number of shards.
    fn checkpoint(&self, answer: oneshot::Sender<Result<u64, String>>) {
        let mut pending = Vec::new();
        for running in self.running.values() {
            let (done, is_done) = oneshot::channel();
            if running.commands.try_send(Command::Checkpoint(done)).is_ok() {
                pending.push(is_done);
            }
        }
        tokio::spawn(async move {
            let mut stored = Ok(0);
            for is_done in pending {
                let result = is_done
                    .await
                    .unwrap_or_else(|_| Err("the shard is over".into()));
                stored = match (stored, result) {
                    (Ok(count), Ok(_)) => Ok(count + 1),
                    (Err(reason), _) | (_, Err(reason)) => Err(reason),
                };
            }
            // The caller may be gone.
            let _ = answer.send(stored);
        });
    }

    async fn stop_shards(&mut self) {
        for running in self.running.values() {
            let _ = running.commands.try_send(Command::Stop);
        }
        let patience = self.patience;
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, ended).await.is_err() {
            let text = "a shard did not stop in time; what it has not stored is computed again";
            self.instance.status.log(text);
            self.tasks.shutdown().await;
        }
    }

    async fn leave(&mut self) {
        let (answer, answered) = oneshot::channel();
        if let Some(leave) = self.membership.leave.take()
            && leave.send(answer).is_ok()
        {
            let _ = tokio::time::timeout(PAUSE * 5, answered).await;
        }
    }

    async fn stop(mut self) -> JobState {
        self.instance.status.set_state(JobState::Stopping);
        self.stop_shards().await;
        self.leave().await;
        JobState::Stopped
    }

    async fn fail(mut self, reason: String) -> JobState {
        self.stop_shards().await;
        self.leave().await;
        JobState::Failed { reason }
    }
}
