//! Runs a live job: launches its tasks and threads, watches over them, saves its state, and ends it.

use std::future::Future;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use highwater_log::Isolation;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::build::JobParts;
use super::checkpoint_builder::CheckpointBuilder;
use super::combiner_thread::{CombinerEvent, CombinerMessage, JobSnapshot};
use super::feed::Feed;
use super::files::Follower;
use super::growth::{Growth, can_grow};
use super::output::{EndpointStates, Output};
use super::partitions::PartitionSet;
use super::refresh::ReferenceRefresh;
use super::start::MarksHeard;
use super::status::{JobState, StatusHandle};
use super::worker::Worker;
use super::{AtEnd, JobContext, Options, StartError};
use crate::load::Job;
use crate::reference::SnapshotListing;

pub(super) enum Command {
    Stop,
    Kill,
    Checkpoint(oneshot::Sender<Result<u64, String>>),
}

/// How a run came to its end.
pub(super) enum RunEnd {
    State(JobState),
    /// It is to go on at once from its last checkpoint; with other reference data, if that has been saved just now.
    Again {
        take_up: bool,
    },
}

/// A job that runs.
pub(super) struct RunningJob {
    context: JobContext,
    keeper: Arc<CheckpointBuilder>,
    board: StatusHandle,
    /// Of the last checkpoint that was begun.
    number: u64,
    every: Duration,
    patience: Duration,
    until_end: Option<AtEnd>,
    job: Arc<Job>,
    /// Who notices that a hub has grown tells it here.
    growth: Growth,
    /// There are partitions that are not read, and can be.
    has_grown: bool,
    combiner: StopOnDrop,
    stop: watch::Sender<bool>,
    feeds: JoinSet<Result<(), String>>,
    /// PendingChunks for their end: outputs stop when this is dropped.
    outputs: JoinSet<()>,
    events: mpsc::UnboundedReceiver<CombinerEvent>,
    marks: MarksHeard,
    under_way: Option<PendingCheckpoint>,
    /// The last checkpoint that was saved, and when.
    saved: u64,
    saved_at: Duration,
    refresh: ReferenceRefresh,
    /// There is other reference data.
    is_outdated: bool,
}

/// Tells the combiner to stop, whichever way the job ends.
struct StopOnDrop(mpsc::UnboundedSender<CombinerMessage>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // It may have stopped by itself.
        let _ = self.0.send(CombinerMessage::Stop);
    }
}

/// A checkpoint that is not saved yet.
struct PendingCheckpoint {
    number: u64,
    cut: Option<Box<JobSnapshot>>,
    marks: Vec<Option<EndpointStates>>,
    writing: Option<JoinHandle<std::io::Result<usize>>>,
    answers: Vec<oneshot::Sender<Result<u64, String>>>,
    pause: Duration,
}

impl RunningJob {
    pub fn launch(
        (job, context, options): (Arc<Job>, JobContext, Options),
        (built, outputs, marks): (JobParts, Vec<Output>, MarksHeard),
        partitions: PartitionSet,
        (keeper, number, known): (CheckpointBuilder, u64, SnapshotListing),
        board: &StatusHandle,
    ) -> Result<RunningJob, StartError> {
        let JobParts {
            mut streams,
            mut combiner,
            events,
            outputs: pending,
        } = built;
        let (to_combiner, inbox) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let workers = options.threads.clamp(1, streams.len().max(1));
        let channels = (0..workers).map(|_| mpsc::unbounded_channel());
        let (senders, receivers): (Vec<_>, Vec<_>) = channels.unzip();
        combiner.workers = senders.clone();
        let growth = Growth::new(&job, &context, &partitions);
        let mut feeds = JoinSet::new();
        let (mut readers, mut targets) = (Vec::new(), Vec::new());
        for (stream, source) in streams.iter_mut().zip(&partitions.all) {
            let end = source.partition.bounds().visible(Isolation::Committed);
            let until = options
                .until_end
                .map(|at_end| (end, at_end == AtEnd::TimeEnds));
            if let Some((until, _)) = until {
                stream.end_at(until);
            }
            targets.push((stream.next(), end));
            let feed = Feed {
                stream: stream.number(),
                partition: source.partition.clone(),
                next: stream.next(),
                until,
                growth: (until.is_none() && can_grow(&job, source.input))
                    .then(|| growth.of(source, (stream.number(), stream.arrived()), board)),
                fetch_bytes: options.fetch_bytes,
                silence: until.is_none().then_some(options.silence),
                permits: combiner.permits.permits(stream.number()),
                to: senders[stream.number() % workers].clone(),
                clock: context.clock.clone(),
                board: board.clone(),
                stop: stopped.clone(),
            };
            readers.push(feed);
        }
        drop(senders);
        board.replay_to(targets);
        for feed in readers {
            feeds.spawn(feed.run());
        }
        if options.until_end.is_none() {
            for follower in Follower::all(&job, &context, &options, &partitions, board, &stopped) {
                feeds.spawn(follower.run());
            }
        }
        let mut shares: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        for stream in streams {
            shares[stream.number() % workers].push(stream);
        }
        for (number, (streams, inbox)) in shares.into_iter().zip(receivers).enumerate() {
            let worker = Worker {
                number,
                streams,
                timer: context.clock.clone(),
                out: to_combiner.clone(),
            };
            spawn("highwater-worker", move || worker.run(inbox))?;
        }
        spawn("highwater-combiner", move || combiner.run(inbox))?;
        let mut tasks = JoinSet::new();
        for (output, pending) in outputs.into_iter().zip(pending) {
            tasks.spawn(output.run(pending.inbox));
        }
        board.set_state(JobState::Running);
        let every = options.checkpoint_every.unwrap_or_else(|| {
            let ticks = job.file.live.checkpoint_every.ticks();
            Duration::from_micros(u64::try_from(ticks / 10).unwrap_or_default())
        });
        Ok(RunningJob {
            saved: number,
            refresh: ReferenceRefresh::new(job.clone(), known, context.clock.elapsed()),
            job,
            is_outdated: false,
            saved_at: context.clock.elapsed(),
            context,
            keeper: Arc::new(keeper),
            board: board.clone(),
            number,
            every,
            patience: options.stop_patience,
            until_end: options.until_end,
            growth,
            has_grown: false,
            combiner: StopOnDrop(to_combiner),
            stop,
            feeds,
            outputs: tasks,
            events,
            marks,
            under_way: None,
        })
    }

    /// Until the job is over; says how it ended.
    pub async fn watch(mut self, commands: &mut mpsc::Receiver<Command>) -> RunEnd {
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

    /// Waits for the next thing that happens; answers with a state if that ends the job.
    async fn step(&mut self) -> Option<JobState> {
        let failed = |reason: String| Some(JobState::Failed { reason });
        let tick = (self.every / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        tokio::select! {
            event = self.events.recv() => match event {
                Some(CombinerEvent::JobSnapshot(cut)) => self.take_cut(cut),
                Some(CombinerEvent::Ended) => return Some(JobState::Finished),
                Some(CombinerEvent::Failed(reason)) => return failed(reason),
                None => return failed("its threads ended unexpectedly".into()),
            },
            Some((output, number, mark)) = self.marks.recv() => self.take_mark(output, number, mark),
            written = written(&mut self.under_way) => self.take_written(written),
            changed = self.refresh.looked(&self.board) => self.is_outdated = changed,
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
                if self.under_way.is_none() && self.context.clock.elapsed() >= due {
                    self.begin_checkpoint(None);
                }
            }
        }
        None
    }

    /// Whether every output takes rows, the state can be saved, and no row is made that outputs may have from an earlier
    /// run: such a row must be made again of what it was made of then.
    fn is_well(&self) -> bool {
        let status = self.board.status();
        if matches!(status.state, JobState::Replaying { .. }) {
            return false;
        }
        let mut outputs = status.outputs.iter();
        status.checkpoint.trouble.is_none() && outputs.all(|output| output.trouble.is_none())
    }

    /// A hub may have grown.
    fn look_for_partitions(&mut self) {
        let (mut grown, mut alarms) = (false, Vec::new());
        for (hub, input, read, there) in self.growth.look() {
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
        self.board.set_alarm("partitions", alarm);
    }

    fn begin_checkpoint(&mut self, answer: Option<oneshot::Sender<Result<u64, String>>>) {
        if let Some(under_way) = &mut self.under_way {
            // Not about the same moment, but durable all the same when it is answered.
            under_way.answers.extend(answer);
            return;
        }
        self.number += 1;
        self.under_way = Some(PendingCheckpoint {
            number: self.number,
            cut: None,
            marks: vec![None; self.keeper.names.len()],
            writing: None,
            answers: answer.into_iter().collect(),
            pause: Duration::ZERO,
        });
        // If the combiner is gone, that shows as the end of its events.
        let _ = self
            .combiner
            .0
            .send(CombinerMessage::Checkpoint(self.number));
    }

    fn take_cut(&mut self, cut: Box<JobSnapshot>) {
        if let Some(under_way) = &mut self.under_way {
            under_way.pause = cut.pause;
            under_way.cut = Some(cut);
        }
        self.write_if_complete();
    }

    fn take_mark(&mut self, output: usize, number: u64, mark: EndpointStates) {
        if let Some(under_way) = &mut self.under_way
            && under_way.number == number
        {
            under_way.marks[output] = Some(mark);
        }
        self.write_if_complete();
    }

    /// Written elsewhere, so that the job goes on meanwhile.
    fn write_if_complete(&mut self) {
        let Some(under_way) = &mut self.under_way else {
            return;
        };
        if under_way.marks.contains(&None) {
            return;
        }
        let Some(cut) = under_way.cut.take() else {
            return;
        };
        let marks = std::mem::take(&mut under_way.marks);
        let (keeper, store) = (self.keeper.clone(), self.context.checkpoints.clone());
        let number = under_way.number;
        under_way.writing = Some(tokio::task::spawn_blocking(move || {
            let bytes = keeper.saved(&cut, marks).encode();
            store.write(number, &bytes).map(|()| bytes.len())
        }));
    }

    fn take_written(&mut self, written: std::io::Result<usize>) {
        let Some(under_way) = self.under_way.take() else {
            return;
        };
        self.saved_at = self.context.clock.elapsed();
        let at = self.board.now();
        let trouble = written.as_ref().err().map(|error| error.to_string());
        if trouble.is_none() {
            self.saved = under_way.number;
        }
        self.board.update(|status| {
            let checkpoint = &mut status.checkpoint;
            checkpoint.trouble = trouble.clone();
            if let Ok(bytes) = written {
                checkpoint.number = under_way.number;
                checkpoint.at = Some(at);
                checkpoint.bytes = bytes as u64;
                checkpoint.pause = under_way.pause;
            }
        });
        if let Some(trouble) = &trouble {
            self.board
                .log(format!("a checkpoint could not be saved: {trouble}"));
        }
        for answer in under_way.answers {
            let result = trouble.clone().map_or(Ok(under_way.number), Err);
            // Whoever asked may have gone.
            let _ = answer.send(result);
        }
    }

    /// Ends everything as it stands.
    async fn kill(mut self) -> JobState {
        self.feeds.shutdown().await;
        self.outputs.shutdown().await;
        if let Some(writing) = self.under_way.and_then(|under_way| under_way.writing) {
            // It cannot be called back; whether it succeeds makes no difference to a job that is over.
            let _ = writing.await;
        }
        JobState::Stopped
    }

    /// Reads no further, lets what is under way come to its end, and saves the state.
    async fn finish(mut self, state: JobState) -> JobState {
        self.board.set_state(JobState::Stopping);
        let _ = self.stop.send(true);
        let patience = self.patience;
        match tokio::time::timeout(patience, self.settle()).await {
            Ok(None) => state,
            Ok(Some(over)) => over,
            Err(_) => {
                self.board
                    .log("an output did not take what was under way; it will be handed over again");
                state
            }
        }
    }

    /// Saves the state and ends, to go on at once with other reference data or more partitions.
    async fn pause(mut self) -> RunEnd {
        self.board.set_state(JobState::Starting);
        if self.is_outdated {
            self.board.log("there is other reference data");
        }
        if self.has_grown {
            self.board.log("there are more partitions");
        }
        let _ = self.stop.send(true);
        let patience = self.patience;
        let settled = tokio::time::timeout(patience, self.settle()).await;
        self.feeds.shutdown().await;
        self.outputs.shutdown().await;
        match settled {
            Ok(Some(over)) => RunEnd::State(over),
            Ok(None) => RunEnd::Again {
                take_up: self.saved == self.number,
            },
            Err(_) => RunEnd::Again { take_up: false },
        }
    }

    async fn settle(&mut self) -> Option<JobState> {
        // What has been fetched stands in front of the barrier, except for what a feed is about to send.
        if self.until_end.is_none() {
            while let Some(ended) = self.feeds.join_next().await {
                if let Ok(Err(reason)) = ended {
                    self.board.log(reason);
                }
            }
        }
        // One that is under way may be of an earlier moment.
        while self.under_way.is_some() {
            if let Some(over) = self.step_of_end().await {
                return Some(over);
            }
        }
        self.begin_checkpoint(None);
        while self.under_way.is_some() {
            if let Some(over) = self.step_of_end().await {
                return Some(over);
            }
        }
        None
    }

    /// Like a step, when the end of feeds is no news any more.
    async fn step_of_end(&mut self) -> Option<JobState> {
        match self.step().await {
            Some(JobState::Finished) => None,
            other => other,
        }
    }
}

/// Ready when the checkpoint under way has been written, if one is.
fn written(
    under_way: &mut Option<PendingCheckpoint>,
) -> impl Future<Output = std::io::Result<usize>> {
    let writing = under_way
        .as_mut()
        .and_then(|under_way| under_way.writing.as_mut());
    async move {
        match writing {
            None => std::future::pending().await,
            Some(writing) => writing.await.unwrap_or_else(|error| Err(error.into())),
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(|_| ()).map_err(StartError::Thread)
}
