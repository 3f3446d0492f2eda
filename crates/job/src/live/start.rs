//! Starts a job from a checkpoint, or with new state at the requested position.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_connect::{Cluster, Endpoint, RowNames};
use highwater_engine::PhysicalPlan;
use highwater_env::random::Random;
use highwater_log::{HubName, Offset};
use highwater_query::plan::Name;
use highwater_time::{Instant, TICKS_PER_MILLI};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};

use super::build::{JobBuilder, JobParts, PendingOutput};
use super::checkpoint::Checkpoint;
use super::checkpoint_builder::CheckpointBuilder;
use super::checkpoint_store::unless_unavailable;
use super::files::create_hubs;
use super::fingerprint::Fingerprint;
use super::growth::can_grow;
use super::input_logs::{InputLogs, kafka_input};
use super::instances::CombinerStart;
use super::internal_names::internal_topic;
use super::output::{Output, SettledOutput};
use super::partitions::{InputPartition, InputPartitions};
use super::reference_tables::{CheckpointedReferences, ReferenceTables};
use super::run::{LaunchPlan, RunningJob};
use super::state_limit::StateLimit;
use super::status::StatusHandle;
use super::time_journal::{InputJournal, JournalAccess, JournalError, TimeJournal};
use super::watchdog::JobThread;
use super::{EndpointRequest, JobContext, Options, StartError};
use crate::config::{ArrivalTime, KafkaInput, OnFailure, Start};
use crate::load::Job;

/// A start in progress.
pub(super) struct JobStart<'a> {
    pub job: &'a Arc<Job>,
    pub context: &'a JobContext,
    pub logs: &'a InputLogs,
    pub options: &'a Options,
    pub status: &'a StatusHandle,
    /// The write of a checkpoint, which cannot be cancelled: a caller that drops the start waits for it.
    pub writing: &'a mut Option<JoinHandle<std::io::Result<()>>>,
    pub state_limit: &'a StateLimit,
    /// Set if the streams come from an exchange.
    pub exchange: Option<&'a CombinerStart>,
}

pub(super) enum StartOutcome {
    Running(Box<RunningJob>),
    /// Its last checkpoint is at the end of time.
    HasEnded,
}

/// The start position of a job.
struct StartPoint {
    epoch: u64,
    since: Instant,
    from: StartFrom,
}

enum StartFrom {
    Checkpoint(Box<Checkpoint>),
    Positions(Vec<Offset>),
}

impl StartPoint {
    fn checkpoint(&self) -> Option<&Checkpoint> {
        match &self.from {
            StartFrom::Checkpoint(checkpoint) => Some(checkpoint),
            StartFrom::Positions(_) => None,
        }
    }
}

/// The number of the latest checkpoint, and the latest valid one.
struct LatestCheckpoint {
    number: Option<u64>,
    checkpoint: Option<Checkpoint>,
}

/// A job before its launch.
struct JobDraft {
    parts: JobParts,
    partitions: InputPartitions,
    point: StartPoint,
    /// The number of the latest checkpoint.
    number: Option<u64>,
    fingerprint: Fingerprint,
}

impl JobStart<'_> {
    /// `adopt_new`: the job has just stored a checkpoint and may adopt new reference data and partitions.
    pub(super) async fn prepare(mut self, adopt_new: bool) -> Result<StartOutcome, StartError> {
        if let Some(exchange) = self.exchange {
            return self.prepare_exchanged(exchange).await;
        }
        if self.options.until_end.is_none() {
            create_hubs(self.job, &*self.context.log).await?;
        }
        let (logs, context) = (self.logs, self.context);
        logs.connect(self.job, context, self.status).await?;
        let all = InputPartitions::find(self.job, logs).await?;
        let latest = self.latest().await?;
        let (known, new) = known_and_new(self.job, &all, latest.checkpoint.as_ref());
        let mut number = latest.number;
        let fingerprint = Fingerprint::of(self.job, &known);
        let mut point = self.start_point(&all, latest, &fingerprint).await?;
        let partitions = match point.checkpoint() {
            Some(_) => known,
            None => all,
        };
        let tables = self.tables(&mut point, &mut number, adopt_new).await?;
        self.status.set_physical(tables.loaded.physical.clone());
        let loaded = tables.loaded.physical.as_ref();
        let builder = self.builder(loaded.unwrap_or(&self.job.physical));
        let (parts, point) = self.assemble(&builder, &partitions, point).await?;
        let mut draft = JobDraft {
            fingerprint: Fingerprint::of(self.job, &partitions),
            parts,
            partitions,
            point,
            number,
        };
        if adopt_new && !new.is_empty() {
            self.adopt_partitions(&builder, &mut draft, &new).await?;
        }
        self.launch(draft, tables).await
    }

    /// The combiner and the outputs of a shared job.
    async fn prepare_exchanged(
        mut self,
        exchange: &CombinerStart,
    ) -> Result<StartOutcome, StartError> {
        let latest = self.latest().await?;
        if latest.number.is_some() && latest.checkpoint.is_none() {
            return Err(StartError::Damaged);
        }
        let number = latest.number;
        let point = match latest.checkpoint {
            Some(saved) => StartPoint {
                epoch: saved.epoch,
                since: saved.since,
                from: StartFrom::Checkpoint(Box::new(saved)),
            },
            None => StartPoint {
                epoch: exchange.epoch,
                since: exchange.since,
                from: StartFrom::Positions(vec![Offset(0); exchange.starts.len()]),
            },
        };
        let builder = self.builder(exchange.tables.physical(self.job));
        let mut parts = builder.build_exchanged(exchange, point.since);
        match &point.from {
            StartFrom::Checkpoint(saved) => {
                let restored = parts.restore(saved);
                restored.map_err(|error| {
                    let text = format!("the last checkpoint of the combiner: {error}");
                    let kind = std::io::ErrorKind::InvalidData;
                    StartError::Checkpoints(std::io::Error::new(kind, text))
                })?;
            }
            StartFrom::Positions(positions) => parts.begin(positions),
        }
        let draft = JobDraft {
            parts,
            partitions: exchange.partitions.clone(),
            point,
            number,
            fingerprint: exchange.fingerprint.clone(),
        };
        self.launch(draft, ReferenceTables::none()).await
    }

    /// Opens the outputs, stores the first checkpoint of an epoch, and launches the job.
    async fn launch(
        &mut self,
        mut draft: JobDraft,
        tables: ReferenceTables,
    ) -> Result<StartOutcome, StartError> {
        draft.parts.show(self.job, &draft.partitions, self.status);
        let (settled, settled_outputs) = mpsc::unbounded_channel();
        let mut outputs = self.open_outputs(&draft, &settled)?;
        for (index, output) in outputs.iter_mut().enumerate() {
            let checkpoint = draft.point.checkpoint();
            let states = checkpoint.and_then(|saved| saved.outputs[index].states.as_ref());
            output.resume(states).await;
        }
        if draft.point.checkpoint().is_some_and(|saved| saved.ended) {
            return Ok(StartOutcome::HasEnded);
        }
        let streams = draft.parts.streams.iter();
        let positions = streams.map(|stream| (stream.next(), stream.arrived()));
        let positions = positions.collect();
        let journals = self.journals(positions, &draft.partitions).await?;
        let names = draft.parts.outputs.iter();
        let checkpoints = CheckpointBuilder {
            fingerprint: draft.fingerprint,
            epoch: draft.point.epoch,
            since: draft.point.since,
            names: names.map(|output| output.name.clone()).collect(),
            references: tables.effective,
            tables: tables.stored,
        };
        if let StartFrom::Positions(_) = draft.point.from {
            // After a crash, an output finds its written rows from its state in the first checkpoint.
            let mut states = Vec::new();
            for output in &mut outputs {
                states.push(Some(output.settle().await));
            }
            let first = checkpoints.first(&draft.parts, states);
            self.save(draft.point.epoch, &first).await?;
        }
        let running = RunningJob::launch(LaunchPlan {
            logs: self.logs.clone(),
            exchanged: self.exchange.is_some(),
            journals,
            job: self.job.clone(),
            context: self.context.clone(),
            options: self.options.clone(),
            parts: draft.parts,
            outputs,
            settled_outputs,
            partitions: draft.partitions,
            checkpoints,
            number: draft.number.unwrap_or(0).max(draft.point.epoch),
            watermark: draft
                .point
                .checkpoint()
                .map_or(Instant::BEFORE_ALL, |saved| saved.watermark),
            references: tables.known,
            status: self.status.clone(),
        })?;
        Ok(StartOutcome::Running(Box::new(running)))
    }

    /// The time journals of all streams, by the next offset and the latest arrival of each. They are open before the
    /// first event is read.
    async fn journals(
        &self,
        positions: Vec<(Offset, Instant)>,
        partitions: &InputPartitions,
    ) -> Result<Vec<Option<TimeJournal>>, StartError> {
        if self.exchange.is_some() {
            return Ok(positions.iter().map(|_| None).collect());
        }
        let mut journals = Vec::with_capacity(positions.len());
        let mut open: BTreeMap<(usize, HubName), InputJournal> = BTreeMap::new();
        for ((next, arrived), source) in positions.into_iter().zip(&partitions.all) {
            let kafka = kafka_input(self.job, source.input);
            let kafka = kafka.filter(|kafka| kafka.arrival == ArrivalTime::LogAppend);
            let (Some(kafka), Some(cluster)) = (kafka, self.logs.cluster(source.input)) else {
                journals.push(None);
                continue;
            };
            let key = (source.input, source.place.hub.clone());
            if !open.contains_key(&key) {
                let journal = self.open_journal(source, kafka, cluster).await?;
                open.insert(key.clone(), journal);
            }
            let journal = match open.get(&key) {
                Some(journal) => {
                    let opened = journal.partition(source, next, arrived, self.status);
                    opened
                        .await
                        .map_err(|error| self.journal_failed(source, &error))?
                }
                None => None,
            };
            journals.push(journal);
        }
        Ok(journals)
    }

    async fn open_journal(
        &self,
        source: &InputPartition,
        kafka: &KafkaInput,
        cluster: Cluster,
    ) -> Result<InputJournal, StartError> {
        let access = match self.options.until_end {
            None => JournalAccess::Write,
            Some(_) => JournalAccess::Read,
        };
        let opened = journal_of(self.job, source, kafka, cluster, access, self.status).await;
        opened.map_err(|error| self.journal_failed(source, &error))
    }

    fn journal_failed(&self, source: &InputPartition, error: &JournalError) -> StartError {
        StartError::Journal {
            input: self.job.plan.inputs[source.input].name.clone(),
            reason: error.to_string(),
            is_temporary: error.is_temporary(),
        }
    }

    fn builder<'b>(&self, physical: &'b PhysicalPlan) -> JobBuilder<'b>
    where
        Self: 'b,
    {
        JobBuilder {
            job: self.job,
            physical,
            clock: &self.context.clock,
            status: self.status,
            state_limit: self.state_limit,
        }
    }

    /// The latest valid checkpoint.
    async fn latest(&self) -> Result<LatestCheckpoint, StartError> {
        let (store, status) = (self.context.checkpoints.clone(), self.status.clone());
        let read = blocking(move || {
            let numbers = store.list()?;
            for number in numbers.iter().rev() {
                let bytes = unless_unavailable(store.read(*number))?;
                let decoded = bytes.and_then(|bytes| {
                    Checkpoint::decode(&bytes).map_err(|error| error.to_string())
                });
                match decoded {
                    Ok(checkpoint) => {
                        return Ok(LatestCheckpoint {
                            number: numbers.last().copied(),
                            checkpoint: Some(checkpoint),
                        });
                    }
                    Err(reason) => {
                        store.mark_damaged(*number);
                        let problem = format!("checkpoint {number} cannot be used: {reason}");
                        status.log(format!("{problem}; the previous one is tried"));
                        status.update(|status| status.checkpoint.problem = Some(problem));
                    }
                }
            }
            Ok(LatestCheckpoint {
                number: numbers.last().copied(),
                checkpoint: None,
            })
        });
        read.await?.map_err(StartError::Checkpoints)
    }

    /// The start position by the options or the job file.
    async fn start_point(
        &self,
        partitions: &InputPartitions,
        latest: LatestCheckpoint,
        fingerprint: &Fingerprint,
    ) -> Result<StartPoint, StartError> {
        let start = self.options.start;
        let resumes = matches!(start, None | Some(Start::Resume));
        if resumes && latest.number.is_some() && latest.checkpoint.is_none() {
            return Err(StartError::Damaged);
        }
        let epoch = latest.number.map_or(0, |number| number + 1);
        // The checkpoint of an ended job serves only the same job.
        let checkpoint = latest.checkpoint;
        let checkpoint =
            checkpoint.filter(|saved| !saved.ended || saved.fingerprint == *fingerprint);
        // The start of the job file is for the first start; later ones resume.
        let first = checkpoint.is_none().then_some(self.job.file.live.start);
        let since = match (start.or(first).unwrap_or_default(), checkpoint) {
            (Start::Beginning, _) => {
                let text = "starts with the first events that are kept";
                self.status.log(text);
                Instant::BEFORE_ALL
            }
            (Start::At(time), _) => self.log_since(time),
            (Start::Now, _) | (Start::Resume, None) => self.log_since(now(self.status)),
            (Start::Resume, Some(saved)) => match saved.fingerprint.difference(fingerprint) {
                None => {
                    self.status.log("resumes from its last checkpoint");
                    return Ok(StartPoint {
                        epoch: saved.epoch,
                        since: saved.since,
                        from: StartFrom::Checkpoint(Box::new(saved)),
                    });
                }
                Some(change) => {
                    self.status.log(format!(
                        "cannot resume from its last checkpoint, because {change}; \
                         the state is built anew by reading back"
                    ));
                    self.log_since(saved.watermark.max(saved.since))
                }
            },
        };
        Ok(StartPoint {
            epoch,
            since,
            from: StartFrom::Positions(self.positions(partitions, since).await?),
        })
    }

    fn log_since(&self, since: Instant) -> Instant {
        if since > Instant::BEFORE_ALL {
            self.status.log(format!("starts with rows of {since}"));
        }
        since
    }

    /// The offsets from which rows since `since` are complete.
    async fn positions(
        &self,
        partitions: &InputPartitions,
        since: Instant,
    ) -> Result<Vec<Offset>, StartError> {
        match since {
            Instant::BEFORE_ALL => Ok(partitions.starts()),
            since => partitions.positions_for(since, self.job).await,
        }
    }

    /// The reference data of the start. New data is stored in a checkpoint before any row uses it.
    async fn tables(
        &mut self,
        point: &mut StartPoint,
        number: &mut Option<u64>,
        adopt_new: bool,
    ) -> Result<ReferenceTables, StartError> {
        let next = number.map_or(0, |number| number + 1);
        let mut tables = self.find_tables(point, adopt_new).await?;
        if let (true, StartFrom::Checkpoint(saved)) = (tables.is_new, &mut point.from) {
            match self.save_tables(next, &mut tables, saved).await {
                Ok(()) => *number = Some(next),
                Err(error) => {
                    self.checkpoint_failed(&error);
                    tables = self.find_tables(point, false).await?;
                }
            }
        }
        let next = number.map_or(0, |number| number + 1);
        self.store_tables(next, &mut tables).await?;
        Ok(tables)
    }

    async fn find_tables(
        &self,
        point: &StartPoint,
        adopt_new: bool,
    ) -> Result<ReferenceTables, StartError> {
        let before = point.checkpoint().map(|saved| CheckpointedReferences {
            effective: saved.references.clone(),
            reached: saved.reached,
            stored: saved.tables,
        });
        let (job, store) = (self.job.clone(), self.context.checkpoints.clone());
        let status = self.status.clone();
        let found =
            blocking(move || ReferenceTables::find(&job, before, adopt_new, &*store, &status));
        found.await?
    }

    /// Stores a checkpoint with new reference data.
    async fn save_tables(
        &mut self,
        number: u64,
        tables: &mut ReferenceTables,
        saved: &mut Checkpoint,
    ) -> Result<(), StartError> {
        self.store_tables(number, tables).await?;
        let next = Checkpoint {
            references: tables.effective.clone(),
            tables: tables.stored,
            ..saved.clone()
        };
        self.save(number, &next).await?;
        *saved = next;
        Ok(())
    }

    /// Stores new static tables for the checkpoint of that number.
    async fn store_tables(
        &self,
        number: u64,
        tables: &mut ReferenceTables,
    ) -> Result<(), StartError> {
        let Some(bytes) = tables.unstored() else {
            return Ok(());
        };
        let (store, in_use) = (self.context.checkpoints.clone(), tables.previous);
        let stored = blocking(move || store.write_tables(number, &bytes, in_use)).await?;
        stored.map_err(StartError::Checkpoints)?;
        tables.stored = Some(number);
        Ok(())
    }

    /// Builds the job for its start position. State that cannot be restored is rebuilt from events.
    async fn assemble(
        &self,
        builder: &JobBuilder<'_>,
        partitions: &InputPartitions,
        point: StartPoint,
    ) -> Result<(JobParts, StartPoint), StartError> {
        let mut parts = builder.build(partitions, point.since)?;
        let (since, reason) = match &point.from {
            StartFrom::Positions(positions) => {
                parts.begin(positions);
                return Ok((parts, point));
            }
            StartFrom::Checkpoint(saved) => match parts.restore(saved) {
                Ok(()) => return Ok((parts, point)),
                Err(reason) => (saved.watermark.max(saved.since), reason),
            },
        };
        self.status.log(format!(
            "cannot resume from its last checkpoint: {reason}; the state is built anew by reading back"
        ));
        let positions = self.positions(partitions, since).await?;
        let mut parts = builder.build(partitions, since)?;
        parts.begin(&positions);
        let point = StartPoint {
            // Larger than all before, because every epoch begins with a checkpoint of its number.
            epoch: point.epoch.max(self.latest_number().await?) + 1,
            since,
            from: StartFrom::Positions(positions),
        };
        Ok((parts, point))
    }

    async fn latest_number(&self) -> Result<u64, StartError> {
        let store = self.context.checkpoints.clone();
        let listed = blocking(move || store.list()).await?;
        let listed = listed.map_err(StartError::Checkpoints)?;
        Ok(listed.last().copied().unwrap_or(0))
    }

    /// Adds new partitions and stores a checkpoint that names them before any row uses them, so every replay adopts
    /// them at the same point. Does nothing if the query does not allow new partitions.
    async fn adopt_partitions(
        &mut self,
        builder: &JobBuilder<'_>,
        draft: &mut JobDraft,
        new: &[InputPartition],
    ) -> Result<(), StartError> {
        let Some(saved) = draft.point.checkpoint() else {
            return Ok(());
        };
        let mut parts = builder.build(&draft.partitions, saved.since)?;
        let mut partitions = draft.partitions.clone();
        if parts.restore(saved).is_err() || !parts.grow(builder, &mut partitions, new)? {
            return Ok(());
        }
        let (streams, shared) = parts.encoded();
        let saved = Checkpoint {
            fingerprint: Fingerprint::of(self.job, &partitions),
            streams,
            shared,
            ..saved.clone()
        };
        let next = draft.number.map_or(0, |number| number + 1);
        if let Err(error) = self.save(next, &saved).await {
            self.checkpoint_failed(&error);
            return Ok(());
        }
        for partition in new {
            let text = format!("`{}` is read from now on", partition.place);
            self.status.log(text);
        }
        *draft = JobDraft {
            parts,
            partitions,
            number: Some(next),
            fingerprint: saved.fingerprint.clone(),
            point: StartPoint {
                epoch: draft.point.epoch,
                since: draft.point.since,
                from: StartFrom::Checkpoint(Box::new(saved)),
            },
        };
        Ok(())
    }

    fn checkpoint_failed(&self, error: &StartError) {
        let problem = error.to_string();
        self.status
            .update(|status| status.checkpoint.problem = Some(problem));
    }

    async fn save(&mut self, number: u64, checkpoint: &Checkpoint) -> Result<(), StartError> {
        let (store, bytes) = (self.context.checkpoints.clone(), checkpoint.encode());
        let write = tokio::task::spawn_blocking(move || store.write(number, &bytes));
        let written = self.writing.insert(write).await;
        *self.writing = None;
        let panicked = |error: JoinError| StartError::Thread(error.into());
        written.map_err(panicked)?.map_err(StartError::Checkpoints)
    }

    fn open_outputs(
        &self,
        draft: &JobDraft,
        settled: &mpsc::UnboundedSender<SettledOutput>,
    ) -> Result<Vec<Output>, StartError> {
        let (plan, early) = (&self.job.plan, self.job.early.as_deref());
        let outputs = draft.parts.outputs.iter().enumerate();
        outputs
            .map(|(index, pending)| {
                let declared = self.job.file.output(&pending.name);
                let on_failure = declared.map(|output| output.on_failure).unwrap_or_default();
                Ok(Output {
                    index,
                    name: pending.name.clone(),
                    dead: self.open_dead_letters(pending, on_failure, draft.point.epoch)?,
                    endpoint: self.open_endpoint(EndpointRequest {
                        job: &self.job.file.name,
                        folder: &self.job.file.folder,
                        output: &pending.name,
                        refused_by: None,
                        epoch: draft.point.epoch,
                        early_key: early.and_then(|early| early.key_of(plan, &pending.name)),
                        shard: self.exchange.and_then(|exchange| exchange.shard),
                        names: &pending.columns,
                        declared,
                    })?,
                    names: RowNames::new(pending.columns.clone()),
                    on_failure,
                    retry: self.options.retry.clone(),
                    random: Random::from_os(),
                    status: self.status.clone(),
                    settled: settled.clone(),
                })
            })
            .collect()
    }

    /// The endpoint for rows that the output refuses, if they become dead letters.
    fn open_dead_letters(
        &self,
        refused_by: &PendingOutput,
        on_failure: OnFailure,
        epoch: u64,
    ) -> Result<Option<Box<dyn Endpoint>>, StartError> {
        let output = self.job.file.dead_letter.as_deref();
        let output = output.filter(|_| on_failure == OnFailure::DeadLetter);
        let open = |output| {
            self.open_endpoint(EndpointRequest {
                job: &self.job.file.name,
                folder: &self.job.file.folder,
                output,
                refused_by: Some(&refused_by.name),
                epoch,
                early_key: None,
                shard: self.exchange.and_then(|exchange| exchange.shard),
                names: &[Name::Spread],
                declared: self.job.file.output(output),
            })
        };
        output.map(open).transpose()
    }

    fn open_endpoint(&self, request: EndpointRequest<'_>) -> Result<Box<dyn Endpoint>, StartError> {
        let opened = self.context.endpoints.open(&request);
        opened.map_err(|error| StartError::Output {
            output: request.output.to_owned(),
            error,
        })
    }
}

/// The partitions of a checkpoint and the new ones. If anything else changed, or the query does not allow new
/// partitions, all count as known: the job starts with new state.
fn known_and_new(
    job: &Job,
    all: &InputPartitions,
    checkpoint: Option<&Checkpoint>,
) -> (InputPartitions, Vec<InputPartition>) {
    let known = checkpoint.and_then(|saved| saved.fingerprint.partitions());
    let split = known.and_then(|known| all.known_and_new(known));
    let split = split.filter(|(_, new)| new.iter().all(|new| can_grow(job, new.input)));
    split.unwrap_or_else(|| (all.clone(), Vec::new()))
}

/// The time journal of the input that a partition belongs to.
pub(super) async fn journal_of(
    job: &Job,
    source: &InputPartition,
    kafka: &KafkaInput,
    cluster: Cluster,
    access: JournalAccess,
    status: &StatusHandle,
) -> Result<InputJournal, JournalError> {
    let (input, topic) = (&job.plan.inputs[source.input].name, &source.place.hub);
    let missing = || JournalError::NoTopic(topic.to_string());
    let info = cluster.log.hub(topic.as_str()).ok_or_else(missing)?;
    let by_default = || internal_topic(kafka, "time", &[&job.file.name, input, topic.as_str()]);
    let name = kafka.journal.clone().unwrap_or_else(by_default);
    let name = HubName::new(&name)?;
    InputJournal::open(name, kafka, cluster, &info, access, status).await
}

/// Runs blocking work on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StartError> {
    let (done, result) = oneshot::channel();
    // Not a blocking thread of the runtime, which would wait for it at its end: the work may call a function that never
    // returns.
    JobThread::spawn("highwater-start", move || {
        let _ = done.send(work());
    })?;
    let panicked = |_| StartError::Thread(std::io::Error::other("it panicked"));
    result.await.map_err(panicked)
}

/// The current time in milliseconds, the precision of the log.
pub(super) fn now(status: &StatusHandle) -> Instant {
    let ticks = status.now().ticks();
    Instant::from_ticks(ticks - ticks.rem_euclid(TICKS_PER_MILLI))
}
