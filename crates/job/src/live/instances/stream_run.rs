//! A stream of a shared job that is running: its outputs to the exchange, and its checkpoints.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use highwater_time::Instant;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::super::checkpoint_store::Checkpoints;
use super::super::combiner_thread::CombinerMessage;
use super::super::feed::StreamPosition;
use super::super::hub_stream::StreamSnapshot;
use super::super::run::{Command, checkpoint_interval};
use super::super::shard_state::{ShardState, is_fenced};
use super::super::status::PartitionStatus;
use super::super::worker::WorkItem;
use super::assignment::ShardNumber;
use super::exchange::ExchangeError;
use super::exchange_producer::{ExchangeProducer, PendingOutput};
use super::references::ShardVote;
use super::stream_checkpoint::StreamCheckpoint;
use super::stream_shard::store_failed;
use super::{InstanceContext, ShardExit, ShardTables};
use crate::plan::InputPlan;

/// The most fetches in flight to the exchange. Those that arrive during an append share the next one.
pub(super) const PERMITS: usize = 8;

/// A task that ends when it is dropped.
pub(super) struct FeedTask(pub JoinHandle<Result<(), String>>);

impl Drop for FeedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type CheckpointAnswer = oneshot::Sender<Result<u64, String>>;

/// A stream that is running.
pub(super) struct StreamRun {
    pub instance: Arc<InstanceContext>,
    pub number: ShardNumber,
    pub feed: FeedTask,
    pub stop: watch::Sender<bool>,
    pub to_worker: mpsc::UnboundedSender<WorkItem>,
    pub outputs: mpsc::UnboundedReceiver<CombinerMessage>,
    pub permits: Arc<Semaphore>,
    pub exchange: ExchangeProducer,
    pub state: Arc<ShardState>,
    pub checkpoint: u64,
    pub checkpointed_at: Duration,
    /// Callers waiting for the requested snapshot.
    pub copying: Option<Vec<CheckpointAnswer>>,
    pub storing: Option<StoringCheckpoint>,
    pub tables: ShardTables,
    /// The progress of the outputs in the exchange.
    pub progress: ShardVote,
}

pub(super) struct StoringCheckpoint {
    write: JoinHandle<io::Result<()>>,
    answers: Vec<CheckpointAnswer>,
}

/// The next action of the run.
enum NextStep {
    GoOn,
    End(ShardExit),
}

impl StreamRun {
    pub(super) async fn watch(mut self, mut commands: mpsc::Receiver<Command>) -> ShardExit {
        let every = checkpoint_interval(&self.instance.job, &self.instance.options);
        let tick = (every / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut feeds = true;
        let instance = self.instance.clone();
        let tables = self.tables.clone();
        let mut proposed = std::pin::pin!(tables.proposed(&instance));
        loop {
            let has_caught_up = self.exchange.has_caught_up();
            let step = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Checkpoint(answer)) => {
                        self.begin_checkpoint(Some(answer));
                        NextStep::GoOn
                    }
                    Some(Command::Stop) => return self.finish(feeds).await,
                    Some(Command::Kill) | None => return ShardExit::Stopped,
                },
                version = &mut proposed, if has_caught_up => {
                    return self.await_tables(version, feeds).await;
                }
                ended = &mut self.feed.0, if feeds => {
                    feeds = false;
                    match (feed_ended(ended), self.tables.pending) {
                        // It has reached its predecessor's position.
                        (NextStep::GoOn, Some(version)) => {
                            return self.await_tables(version, feeds).await;
                        }
                        (step, _) => step,
                    }
                }
                event = next_event(&mut self.storing, &mut self.exchange, &mut self.outputs) => {
                    self.take(event).await
                }
                () = tokio::time::sleep(tick) => {
                    if self.instance.context.clock.elapsed() >= self.checkpointed_at + every {
                        self.begin_checkpoint(None);
                    }
                    NextStep::GoOn
                }
            };
            if let NextStep::End(end) = step {
                return end;
            }
        }
    }

    /// Stops reading and stores a checkpoint.
    async fn finish(mut self, feeds: bool) -> ShardExit {
        match self.store_last(feeds).await {
            Ok(_) => ShardExit::Stopped,
            Err(end) => end,
        }
    }

    /// Stops for new reference data, and votes with its position.
    async fn await_tables(mut self, version: u64, feeds: bool) -> ShardExit {
        match self.store_last(feeds).await {
            Ok(Ok(_)) => {}
            // Without a checkpoint it may have a new owner that does not know of the version.
            Ok(Err(reason)) => return ShardExit::WithoutStore(reason),
            Err(end) => return end,
        }
        let Some(references) = &self.instance.references else {
            return ShardExit::Stopped;
        };
        let vote = ShardVote {
            reached: self.latest_row(),
            ..self.progress
        };
        match references.vote(version, self.number, vote).await {
            Ok(()) => ShardExit::AwaitsTables(version),
            Err(end) => end,
        }
    }

    /// No row up to now has a later time.
    fn latest_row(&self) -> Instant {
        let input = self.instance.partitions.all[self.number].input;
        let (input, _) = InputPlan::of(&self.instance.job, input);
        match input.plan.substream.is_empty() {
            true => self.progress.watermark,
            // A substream may be ahead of the others.
            false => self.progress.reached + input.policy.early_arrival.unwrap_or_default(),
        }
    }

    /// Stops reading and stores a checkpoint. The error says why the shard ends before.
    async fn store_last(&mut self, feeds: bool) -> Result<Result<u64, String>, ShardExit> {
        let _ = self.stop.send(true);
        if feeds {
            // It ends by the signal.
            let _ = (&mut self.feed.0).await;
        }
        // A checkpoint that is being stored is of an earlier moment.
        let (answer, mut answered) = oneshot::channel();
        let mut answer = Some(answer);
        loop {
            if self.copying.is_none()
                && self.storing.is_none()
                && let Some(answer) = answer.take()
            {
                self.begin_checkpoint(Some(answer));
            }
            let step = tokio::select! {
                event = next_event(&mut self.storing, &mut self.exchange, &mut self.outputs) => {
                    self.take(event).await
                }
                stored = &mut answered, if answer.is_none() => {
                    return Ok(stored.unwrap_or_else(|_| Err("no checkpoint was stored".into())));
                }
            };
            if let NextStep::End(end) = step {
                return Err(end);
            }
        }
    }

    fn begin_checkpoint(&mut self, answer: Option<CheckpointAnswer>) {
        match &mut self.copying {
            Some(answers) => answers.extend(answer),
            None => {
                self.copying = Some(answer.into_iter().collect());
                // If the worker is gone, `outputs` is closed.
                let _ = self.to_worker.send(WorkItem::Copy);
            }
        }
        self.checkpointed_at = self.instance.context.clock.elapsed();
    }

    async fn take(&mut self, event: RunEvent) -> NextStep {
        match event {
            RunEvent::Stored(stored) => self.take_stored(stored),
            RunEvent::Appended(appended) => self.take_appended(appended),
            RunEvent::Message(Some(CombinerMessage::Output {
                output,
                status,
                in_flight,
                ..
            })) => {
                self.exchange.push(PendingOutput {
                    to: StreamPosition {
                        next: status.next,
                        arrived: output.arrived,
                    },
                    output,
                    status,
                    _in_flight: in_flight,
                });
                NextStep::GoOn
            }
            RunEvent::Message(Some(CombinerMessage::Copied { copies, .. })) => {
                // The outputs that the copy covers.
                while self.exchange.has_work() {
                    let appended = self.exchange.appended().await;
                    if let NextStep::End(end) = self.take_appended(appended) {
                        return NextStep::End(end);
                    }
                }
                for (_, copy) in copies {
                    self.store(copy);
                }
                NextStep::GoOn
            }
            RunEvent::Message(Some(CombinerMessage::Failed(reason))) => {
                NextStep::End(ShardExit::Failed(reason))
            }
            RunEvent::Message(Some(_)) => NextStep::GoOn,
            RunEvent::Message(None) => {
                NextStep::End(ShardExit::Failed("its threads ended unexpectedly".into()))
            }
        }
    }

    /// Outputs are durable, or cannot be written.
    fn take_appended(&mut self, appended: Result<Vec<PendingOutput>, ExchangeError>) -> NextStep {
        let outputs = match appended {
            Ok(outputs) => outputs,
            Err(error) => return NextStep::End(error.into()),
        };
        self.permits.add_permits(outputs.len());
        if let Some(PendingOutput { output, status, .. }) = outputs.into_iter().next_back() {
            self.progress = ShardVote {
                reached: output.arrived.max(output.watermark),
                watermark: output.watermark,
            };
            self.instance.status.update_partition(self.number, |shown| {
                let backlog = shown.backlog;
                *shown = PartitionStatus { backlog, ..*status };
            });
        }
        NextStep::GoOn
    }

    /// Stores the state. All outputs before it are in the exchange.
    fn store(&mut self, snapshot: StreamSnapshot) {
        let answers = self.copying.take().unwrap_or_default();
        if let Some(storing) = &mut self.storing {
            // The one in progress is a little older.
            return storing.answers.extend(answers);
        }
        self.checkpoint += 1;
        let (state, number) = (self.state.clone(), self.checkpoint);
        let exchanged = self.exchange.covered();
        let write = tokio::task::spawn_blocking(move || {
            let (_, bytes) = snapshot.encoded();
            let checkpoint = StreamCheckpoint {
                exchanged,
                state: bytes,
            };
            state.write(number, &checkpoint.encode())
        });
        self.storing = Some(StoringCheckpoint { write, answers });
    }

    fn take_stored(&mut self, stored: io::Result<()>) -> NextStep {
        let answers = self.storing.take().map(|storing| storing.answers);
        let problem = stored.as_ref().err().map(|error| error.to_string());
        for answer in answers.into_iter().flatten() {
            let result = problem.clone().map_or(Ok(self.checkpoint), Err);
            // The caller may be gone.
            let _ = answer.send(result);
        }
        match stored {
            Err(error) if is_fenced(&error) => NextStep::End(store_failed(&error)),
            stored => {
                let problem = stored.err();
                let problem =
                    problem.map(|error| format!("a checkpoint could not be saved: {error}"));
                self.instance
                    .set_store_alarm(self.number, problem.as_deref());
                NextStep::GoOn
            }
        }
    }
}

fn feed_ended(ended: Result<Result<(), String>, tokio::task::JoinError>) -> NextStep {
    match ended {
        Ok(Ok(())) => NextStep::GoOn,
        Ok(Err(reason)) => NextStep::End(ShardExit::Delayed(reason)),
        Err(error) => NextStep::End(ShardExit::Failed(error.to_string())),
    }
}

/// An event that a run waits for. Nothing is lost when the wait is dropped.
enum RunEvent {
    Stored(io::Result<()>),
    Appended(Result<Vec<PendingOutput>, ExchangeError>),
    Message(Option<CombinerMessage>),
}

async fn next_event(
    storing: &mut Option<StoringCheckpoint>,
    exchange: &mut ExchangeProducer,
    outputs: &mut mpsc::UnboundedReceiver<CombinerMessage>,
) -> RunEvent {
    tokio::select! {
        biased;
        stored = stored(storing) => RunEvent::Stored(stored),
        // Outputs that are there already share the next append.
        message = outputs.recv() => RunEvent::Message(message),
        appended = exchange.appended(), if exchange.has_work() => RunEvent::Appended(appended),
    }
}

/// Completes when the checkpoint is stored, if there is one.
async fn stored(storing: &mut Option<StoringCheckpoint>) -> io::Result<()> {
    match storing {
        None => std::future::pending().await,
        Some(storing) => {
            let write = &mut storing.write;
            write.await.unwrap_or_else(|error| Err(error.into()))
        }
    }
}
