//! Runs a live job: launches its tasks and threads, supervises them, takes checkpoints, and stops it.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use highwater_engine::Scripts;
use highwater_env::Clock;
use highwater_log::Isolation;
use highwater_time::Instant;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::build::JobParts;
use super::checkpoint_builder::CheckpointBuilder;
use super::combiner_thread::{CombinerEvent, CombinerMessage, JobSnapshot};
use super::feed::{Feed, FeedEnd};
use super::files::Follower;
use super::growth::{Growth, can_grow};
use super::input_logs::{InputLogs, kafka_input};
use super::instances::ExchangeTrim;
use super::output::{EndpointStates, Output, SettledOutput};
use super::partition_stream::PartitionStream;
use super::partitions::InputPartitions;
use super::refresh::ReferenceRefresh;
use super::status::{JobState, StatusHandle};
use super::time_journal::TimeJournal;
use super::watchdog::JobThread;
use super::worker::{WorkItem, Worker};
use super::{AtEnd, JobContext, Options, StartError};
use crate::config::ArrivalTime;
use crate::load::Job;
use crate::reference::SnapshotListing;

pub(super) enum Command {
    Stop,
    Kill,
    Checkpoint(oneshot::Sender<Result<u64, String>>),
}

/// The end of a run.
pub(super) enum RunEnd {
    State(JobState),
    /// Restart from the last checkpoint. `adopt_new`: the checkpoint was taken just now, so new reference data and
    /// partitions may be adopted.
    Restart {
        adopt_new: bool,
    },
}

/// A launched job.
pub(super) struct RunningJob {
    context: JobContext,
    checkpoints: Arc<CheckpointBuilder>,
    status: StatusHandle,
    /// The number of the last checkpoint that was begun.
    number: u64,
    /// The watermark of the checkpoint that it resumed from.
    start_watermark: Instant,
    every: Duration,
    patience: Duration,
    until_end: Option<AtEnd>,
    job: Arc<Job>,
    /// Notified when a feed finds new partitions.
    growth: Growth,
    /// There are new partitions that can be adopted.
    has_grown: bool,
    combiner: StopOnDrop,
    stop: watch::Sender<bool>,
    feeds: JoinSet<Result<(), String>>,
    /// Outputs stop when this is dropped.
    outputs: JoinSet<()>,
    events: mpsc::UnboundedReceiver<CombinerEvent>,
    settled_outputs: mpsc::UnboundedReceiver<SettledOutput>,
    pending: Option<PendingCheckpoint>,
    /// The last stored checkpoint, and when.
    saved: u64,
    saved_at: Duration,
    refresh: ReferenceRefresh,
    /// There is new reference data.
    is_outdated: bool,
    /// Set if the streams come from an exchange.
    trim: Option<ExchangeTrim>,
}

/// Stops the combiner when the job ends in any way.
struct StopOnDrop {
    combiner: mpsc::UnboundedSender<CombinerMessage>,
    threads: Vec<JobThread>,
    scripts: Arc<Scripts>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // The combiner may have stopped already.
        let _ = self.combiner.send(CombinerMessage::Stop);
        if self.scripts.has_given_up_call() {
            self.threads.iter().for_each(JobThread::lower_priority);
        }
    }
}

/// A checkpoint that is not stored yet.
struct PendingCheckpoint {
    number: u64,
    snapshot: Option<Box<JobSnapshot>>,
    /// Per output.
    states: Vec<Option<EndpointStates>>,
    writing: Option<JoinHandle<std::io::Result<usize>>>,
    answers: Vec<oneshot::Sender<Result<u64, String>>>,
    pause: Duration,
}

/// Everything that a launch needs.
pub(super) struct LaunchPlan {
    pub job: Arc<Job>,
    pub context: JobContext,
    pub options: Options,
    pub parts: JobParts,
    pub outputs: Vec<Output>,
    pub settled_outputs: mpsc::UnboundedReceiver<SettledOutput>,
    pub partitions: InputPartitions,
    pub logs: InputLogs,
    /// The streams come from an exchange.
    pub exchanged: bool,
    /// Per stream.
    pub journals: Vec<Option<TimeJournal>>,
    pub checkpoints: CheckpointBuilder,
    /// The number of the latest checkpoint.
    pub number: u64,
    /// The watermark of that checkpoint.
    pub watermark: Instant,
    /// The files of the reference data in use.
    pub references: SnapshotListing,
    pub status: StatusHandle,
}

/// The channels of the workers.
struct WorkerChannels {
    senders: Vec<mpsc::UnboundedSender<WorkItem>>,
    receivers: Vec<mpsc::UnboundedReceiver<WorkItem>>,
}

impl LaunchPlan {
    fn worker_channels(&self) -> WorkerChannels {
        let streams = self.parts.streams.len();
        let workers = self.options.threads.clamp(1, streams.max(1));
        let channels = (0..workers).map(|_| mpsc::unbounded_channel());
        let (senders, receivers) = channels.unzip();
        WorkerChannels { senders, receivers }
    }

    /// A feed for each stream.
    fn feeds(
        &mut self,
        growth: &Growth,
        workers: &[mpsc::UnboundedSender<WorkItem>],
        stop: &watch::Receiver<bool>,
    ) -> Vec<Feed> {
        let (mut feeds, mut targets) = (Vec::new(), Vec::new());
        let streams = self.parts.streams.iter_mut();
        let mut journals = std::mem::take(&mut self.journals).into_iter();
        for (stream, source) in streams.zip(&self.partitions.all) {
            let arrival = match self.exchanged {
                // Its records have no times of events.
                true => Some(ArrivalTime::Create),
                false => kafka_input(&self.job, source.input).map(|kafka| kafka.arrival),
            };
            let number = stream.number();
            let end = source.partition.bounds().visible(Isolation::Committed);
            let until = self.options.until_end.map(|at_end| FeedEnd {
                offset: end,
                time_ends: at_end == AtEnd::TimeEnds,
            });
            if until.is_some() {
                stream.end_at(end);
            }
            targets.push((stream.next(), end));
            let can_grow = until.is_none() && !self.exchanged && can_grow(&self.job, source.input);
            feeds.push(Feed {
                stream: number,
                partition: source.partition.clone(),
                next: stream.next(),
                growth: can_grow
                    .then(|| growth.barrier(source, number, stream.arrived(), &self.status)),
                fetch_bytes: self.options.fetch_bytes,
                silence: until.is_none().then_some(self.options.silence),
                journal: journals.next().flatten(),
                log_append_only: arrival == Some(ArrivalTime::LogAppend),
                punctuates: arrival != Some(ArrivalTime::Create),
                until,
                stopovers: VecDeque::new(),
                ends_at_stopovers: false,
                permits: self.parts.combiner.permits.permits(number),
                to: workers[number % workers.len()].clone(),
                clock: self.context.clock.clone(),
                status: self.status.clone(),
                stop: stop.clone(),
            });
        }
        self.status.replay_to(targets);
        feeds
    }

    /// Spawns feeds and followers of files.
    fn spawn_feeds(
        &mut self,
        growth: &Growth,
        workers: &[mpsc::UnboundedSender<WorkItem>],
        stop: &watch::Receiver<bool>,
    ) -> JoinSet<Result<(), String>> {
        let mut tasks = JoinSet::new();
        for feed in self.feeds(growth, workers, stop) {
            tasks.spawn(feed.run());
        }
        if self.options.until_end.is_none() && !self.exchanged {
            let followers = Follower::all(
                &self.job,
                &self.context,
                &self.options,
                &self.partitions,
                &self.status,
                stop,
            );
            for follower in followers {
                tasks.spawn(follower.run());
            }
        }
        tasks
    }
}

/// Starts the threads of the workers, each with its share of the streams.
fn spawn_workers(
    streams: Vec<PartitionStream>,
    receivers: Vec<mpsc::UnboundedReceiver<WorkItem>>,
    timer: &Arc<dyn Clock>,
    out: &mpsc::UnboundedSender<CombinerMessage>,
) -> Result<Vec<JobThread>, StartError> {
    let workers = receivers.len();
    let mut shares: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for stream in streams {
        shares[stream.number() % workers].push(stream);
    }
    let shares = shares.into_iter().zip(receivers).enumerate();
    let spawned = shares.map(|(number, (streams, inbox))| {
        let worker = Worker {
            number,
            streams,
            timer: timer.clone(),
            out: out.clone(),
        };
        JobThread::spawn("highwater-worker", move || worker.run(inbox))
    });
    spawned.collect()
}

pub(super) fn checkpoint_interval(job: &Job, options: &Options) -> Duration {
    options.checkpoint_every.unwrap_or_else(|| {
        let ticks = job.file.live.checkpoint_every.ticks();
        Duration::from_micros(u64::try_from(ticks / 10).unwrap_or_default())
    })
}

impl RunningJob {
    /// Starts the tasks and threads of a job.
    pub(super) fn launch(mut plan: LaunchPlan) -> Result<RunningJob, StartError> {
        let (to_combiner, inbox) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let growth = match plan.exchanged {
            true => Growth::off(&plan.job, &plan.logs),
            false => Growth::new(&plan.job, &plan.logs, &plan.partitions),
        };
        let trim = plan.exchanged.then(|| ExchangeTrim::new(&plan.partitions));
        let WorkerChannels { senders, receivers } = plan.worker_channels();
        let feeds = plan.spawn_feeds(&growth, &senders, &stopped);
        let (context, parts) = (plan.context, plan.parts);
        let mut threads = spawn_workers(parts.streams, receivers, &context.clock, &to_combiner)?;
        let mut combiner = parts.combiner;
        combiner.workers = senders;
        let combiner = JobThread::spawn("highwater-combiner", move || combiner.run(inbox))?;
        threads.push(combiner);
        let mut outputs = JoinSet::new();
        for (output, pending) in plan.outputs.into_iter().zip(parts.outputs) {
            outputs.spawn(output.run(pending.inbox));
        }
        plan.status.set_state(JobState::Running);
        let now = context.clock.elapsed();
        Ok(RunningJob {
            refresh: ReferenceRefresh::new(plan.job.clone(), plan.references, now, plan.exchanged),
            every: checkpoint_interval(&plan.job, &plan.options),
            is_outdated: false,
            trim,
            saved: plan.number,
            saved_at: now,
            context,
            checkpoints: Arc::new(plan.checkpoints),
            status: plan.status,
            number: plan.number,
            start_watermark: plan.watermark,
            patience: plan.options.stop_patience,
            until_end: plan.options.until_end,
            growth,
            has_grown: false,
            combiner: StopOnDrop {
                combiner: to_combiner,
                threads,
                scripts: plan.job.scripts.clone(),
            },
            stop,
            feeds,
            outputs,
            events: parts.events,
            settled_outputs: plan.settled_outputs,
            pending: None,
            job: plan.job,
        })
    }

    /// The watermark of the checkpoint that it resumed from.
    pub(super) fn start_watermark(&self) -> Instant {
        self.start_watermark
    }

    /// Supervises the job to its end.
    pub(super) async fn watch(mut self, commands: &mut mpsc::Receiver<Command>) -> RunEnd {
        loop {
            let has_news = self.is_outdated || self.has_grown;
            if has_news && self.until_end.is_none() && self.is_well() {
                return self.pause().await;
            }
            let step = tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Checkpoint(answer)) => {
                        self.begin_checkpoint(Some(answer));
                        None
                    }
                    Some(Command::Stop) | None => {
                        return RunEnd::State(self.finish(JobState::Stopped).await);
                    }
                    Some(Command::Kill) => return RunEnd::State(self.kill().await),
                },
                step = self.step() => step,
            };
            match step {
                None => {}
                Some(JobState::Finished) => {
                    return RunEnd::State(self.finish(JobState::Finished).await);
                }
                Some(over) => return RunEnd::State(over),
            }
        }
    }

    /// Handles the next event; returns a state if the job is over.
    async fn step(&mut self) -> Option<JobState> {
        let failed = |reason: String| Some(JobState::Failed { reason });
        let tick = (self.every / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        tokio::select! {
            // The reason of a failure precedes the end of the outputs that follows from it.
            biased;
            event = self.events.recv() => match event {
                Some(CombinerEvent::Snapshot(snapshot)) => self.take_snapshot(snapshot),
                Some(CombinerEvent::Ended) => return Some(JobState::Finished),
                Some(CombinerEvent::Failed(reason)) => return failed(reason),
                None => return failed("its threads ended unexpectedly".into()),
            },
            Some(settled) = self.settled_outputs.recv() => self.take_settled(settled),
            written = written(&mut self.pending) => self.take_written(written),
            changed = self.refresh.poll_finished(&self.status) => self.is_outdated = changed,
            () = self.growth.noticed() => self.look_for_partitions(),
            Some(ended) = self.feeds.join_next() => match ended {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => return failed(reason),
                Err(error) => return failed(error.to_string()),
            },
            Some(ended) = self.outputs.join_next() => {
                let reason = ended.err().map_or_else(|| "ended".into(), |error| error.to_string());
                return failed(format!("an output ended unexpectedly: {reason}"));
            },
            () = tokio::time::sleep(tick) => {
                self.look_for_partitions();
                self.refresh.look_if_due(self.context.clock.elapsed());
                let due = self.saved_at + self.every;
                if self.pending.is_none() && self.context.clock.elapsed() >= due {
                    self.begin_checkpoint(None);
                }
            }
        }
        None
    }

    /// Whether every output accepts rows, checkpoints can be stored, and no replay is in progress: rows that outputs
    /// may have from an earlier run must be computed from the same reference data and partitions again.
    fn is_well(&self) -> bool {
        let status = self.status.current();
        if matches!(status.state, JobState::Replaying { .. }) {
            return false;
        }
        let mut outputs = status.outputs.iter();
        status.checkpoint.problem.is_none() && outputs.all(|output| output.problem.is_none())
    }

    /// Checks for new partitions.
    fn look_for_partitions(&mut self) {
        let (mut grown, mut alarms) = (false, Vec::new());
        for (hub, input, read, there) in self.growth.grown_hubs() {
            match can_grow(&self.job, input) {
                true => grown = true,
                false => alarms.push(format!(
                    "hub `{hub}` has {there} partitions, of which {read} are read: \
                     stop the job and start it again to read them all"
                )),
            }
        }
        self.has_grown = grown;
        let alarm = (!alarms.is_empty()).then(|| alarms.join("; "));
        self.status.set_alarm("partitions", alarm);
    }

    fn begin_checkpoint(&mut self, answer: Option<oneshot::Sender<Result<u64, String>>>) {
        if let Some(pending) = &mut self.pending {
            // The checkpoint in progress serves this request as well.
            pending.answers.extend(answer);
            return;
        }
        self.number += 1;
        self.pending = Some(PendingCheckpoint {
            number: self.number,
            snapshot: None,
            states: vec![None; self.checkpoints.names.len()],
            writing: None,
            answers: answer.into_iter().collect(),
            pause: Duration::ZERO,
        });
        // If the combiner is gone, `events` is closed.
        let _ = self
            .combiner
            .combiner
            .send(CombinerMessage::Checkpoint(self.number));
    }

    fn take_snapshot(&mut self, snapshot: Box<JobSnapshot>) {
        if let Some(pending) = &mut self.pending {
            pending.pause = snapshot.pause;
            pending.snapshot = Some(snapshot);
        }
        self.write_if_complete();
    }

    fn take_settled(&mut self, settled: SettledOutput) {
        if let Some(pending) = &mut self.pending
            && pending.number == settled.checkpoint
        {
            pending.states[settled.output] = Some(settled.states);
        }
        self.write_if_complete();
    }

    /// Writes the checkpoint on a blocking thread, so that the job continues meanwhile.
    fn write_if_complete(&mut self) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        if pending.states.contains(&None) {
            return;
        }
        let Some(snapshot) = pending.snapshot.take() else {
            return;
        };
        let states = std::mem::take(&mut pending.states);
        if let Some(trim) = &mut self.trim {
            trim.note(pending.number, &snapshot.streams);
        }
        let (builder, store) = (self.checkpoints.clone(), self.context.checkpoints.clone());
        let number = pending.number;
        pending.writing = Some(tokio::task::spawn_blocking(move || {
            let bytes = builder.checkpoint(&snapshot, states).encode();
            store.write(number, &bytes).map(|()| bytes.len())
        }));
    }

    fn take_written(&mut self, written: std::io::Result<usize>) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.saved_at = self.context.clock.elapsed();
        let at = self.status.now();
        let problem = written.as_ref().err().map(|error| error.to_string());
        if problem.is_none() {
            self.saved = pending.number;
        }
        if let Some(trim) = &mut self.trim {
            trim.stored(pending.number, problem.is_none());
        }
        self.status.update(|status| {
            let checkpoint = &mut status.checkpoint;
            checkpoint.problem = problem.clone();
            if let Ok(bytes) = written {
                checkpoint.number = pending.number;
                checkpoint.at = Some(at);
                checkpoint.bytes = bytes as u64;
                checkpoint.pause = pending.pause;
            }
        });
        if let Some(problem) = &problem {
            self.status
                .log(format!("a checkpoint could not be saved: {problem}"));
        }
        for answer in pending.answers {
            let result = problem.clone().map_or(Ok(pending.number), Err);
            // The caller may be gone.
            let _ = answer.send(result);
        }
    }

    /// Ends the job without a checkpoint.
    async fn kill(mut self) -> JobState {
        self.feeds.shutdown().await;
        self.outputs.shutdown().await;
        if let Some(writing) = self.pending.and_then(|pending| pending.writing) {
            // The write cannot be cancelled; its result does not matter.
            let _ = writing.await;
        }
        JobState::Stopped
    }

    /// Stops reading, waits for pending rows, and takes a checkpoint.
    async fn finish(mut self, state: JobState) -> JobState {
        self.status.set_state(JobState::Stopping);
        let _ = self.stop.send(true);
        let patience = self.patience;
        match tokio::time::timeout(patience, self.settle()).await {
            Ok(None) => state,
            Ok(Some(over)) => over,
            Err(_) => {
                self.status
                    .log("an output did not accept all pending rows; they will be sent again");
                state
            }
        }
    }

    /// Takes a checkpoint and ends the run, for a restart with new reference data or partitions.
    async fn pause(mut self) -> RunEnd {
        self.status.set_state(JobState::Starting);
        if self.is_outdated {
            self.status.log("there is other reference data");
        }
        if self.has_grown {
            self.status.log("there are more partitions");
        }
        let _ = self.stop.send(true);
        let patience = self.patience;
        let settled = tokio::time::timeout(patience, self.settle()).await;
        self.feeds.shutdown().await;
        self.outputs.shutdown().await;
        match settled {
            Ok(Some(over)) => RunEnd::State(over),
            Ok(None) => RunEnd::Restart {
                adopt_new: self.saved == self.number,
            },
            Err(_) => RunEnd::Restart { adopt_new: false },
        }
    }

    async fn settle(&mut self) -> Option<JobState> {
        // Feeds end first, so that all fetches precede the barrier.
        if self.until_end.is_none() {
            while let Some(ended) = self.feeds.join_next().await {
                if let Ok(Err(reason)) = ended {
                    self.status.log(reason);
                }
            }
        }
        // A checkpoint in progress may be of an earlier moment.
        while self.pending.is_some() {
            if let Some(over) = self.step_of_end().await {
                return Some(over);
            }
        }
        self.begin_checkpoint(None);
        while self.pending.is_some() {
            if let Some(over) = self.step_of_end().await {
                return Some(over);
            }
        }
        None
    }

    /// A step during the stop, when the end of streams is expected.
    async fn step_of_end(&mut self) -> Option<JobState> {
        match self.step().await {
            Some(JobState::Finished) => None,
            other => other,
        }
    }
}

/// Completes when the pending checkpoint is written, if there is one.
fn written(
    pending: &mut Option<PendingCheckpoint>,
) -> impl Future<Output = std::io::Result<usize>> {
    let writing = pending
        .as_mut()
        .and_then(|pending| pending.writing.as_mut());
    async move {
        match writing {
            None => std::future::pending().await,
            Some(writing) => writing.await.unwrap_or_else(|error| Err(error.into())),
        }
    }
}
