//! Runs a pipeline: finishes events, stores dead letters and checkpoints.
//!
//! One loop pulls, and all slow operations run beside it: a checkpoint is written while events continue, and several
//! dead letters are stored at once. The loop stops pulling only when too many of those are in progress. An event is
//! finished after its dead letter is durable.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use highwater_env::Clock;
use highwater_log::{BoxFuture, GroupError, Offset, TopicPartition};
use highwater_retry::RetryPolicy;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::dead_letter::{DeadLetter, DeadLetterSink};
use crate::offset_tracker::{
    CheckpointInterval, CheckpointPosition, CheckpointSchedule, OffsetTracker, Ticket,
};
use crate::positions::PositionStore;
use crate::retry_context::RetryDelays;
use crate::source::SourceError;
use crate::stage::{PipelineContext, Stage, StageOutput};

/// Items pulled before the loop checks anything else.
const STEPS_MAX: usize = 128;

/// Where a pipeline stores its results, and how.
#[derive(Clone)]
pub struct Sink {
    pub positions: Arc<dyn PositionStore>,
    pub checkpoint_interval: CheckpointInterval,
    /// Maximum number of events begun since the checkpoint, finished ones included.
    pub window_max: usize,
    pub dead_letters: Arc<dyn DeadLetterSink>,
    /// Dead letters stored concurrently.
    pub dead_letters_max: usize,
    /// Retries of dead letters and of the last checkpoint; then the run fails.
    pub retry: RetryPolicy,
    pub clock: Arc<dyn Clock>,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Sink {
    pub fn new(
        positions: Arc<dyn PositionStore>,
        dead_letters: Arc<dyn DeadLetterSink>,
        clock: Arc<dyn Clock>,
    ) -> Sink {
        Sink {
            positions,
            checkpoint_interval: CheckpointInterval::default(),
            window_max: 10_000,
            dead_letters,
            dead_letters_max: 16,
            retry: RetryPolicy::default(),
            clock,
            seed: 0,
        }
    }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Events that went through every stage.
    pub handled: u64,
    /// Events removed by a filter.
    pub filtered: u64,
    pub dead: u64,
    /// The last stored checkpoint.
    pub next: Offset,
}

/// Why a run failed. Nothing is lost: the next run begins at the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the position could not be stored: {0}")]
    Position(GroupError),
    #[error("event {event} failed, and its dead letter could not be stored: {reason}")]
    DeadLetter { event: String, reason: String },
}

/// Runs a pipeline until its source ends, or until `shutdown` and the end of the attempts then in progress. Events
/// that wait for a retry, for their turn or for a circuit are abandoned, ahead of the last checkpoint. The future may
/// be dropped at any time.
pub async fn run<S: Stage>(
    stage: S,
    sink: Sink,
    shutdown: impl Future<Output = ()>,
) -> Result<RunSummary, RunError> {
    let (topic_partition, start) = stage.origin();
    let context = PipelineContext {
        tracker: OffsetTracker::new(start, sink.window_max),
        clock: Arc::clone(&sink.clock),
        stopping: watch::Sender::new(false),
        failed: None,
    };
    let end = PipelineRun {
        topic_partition: topic_partition.clone(),
        schedule: CheckpointSchedule::new(sink.checkpoint_interval, context.tracker.point()),
        context,
        sink: Arc::new(sink),
        letters: JoinSet::new(),
        storing: None,
        summary: RunSummary::default(),
    };
    end.run(stage, shutdown).await
}

struct PipelineRun {
    topic_partition: TopicPartition,
    context: PipelineContext,
    sink: Arc<Sink>,
    schedule: CheckpointSchedule,
    letters: JoinSet<Result<Ticket, RunError>>,
    storing: Option<CheckpointWrite>,
    summary: RunSummary,
}

/// A checkpoint write in progress.
struct CheckpointWrite {
    point: CheckpointPosition,
    begun: Duration,
    done: BoxFuture<Result<(), GroupError>>,
}

impl PipelineRun {
    async fn run<S: Stage>(
        mut self,
        mut stage: S,
        shutdown: impl Future<Output = ()>,
    ) -> Result<RunSummary, RunError> {
        let mut shutdown = pin!(shutdown);
        let mut steps = Vec::with_capacity(STEPS_MAX);
        let mut ended = false;
        while !ended || !self.letters.is_empty() {
            let pause = self.begin_checkpoint();
            let pulls = !ended && self.letters.len() < self.sink.dead_letters_max.max(1);
            tokio::select! {
                biased;
                () = &mut shutdown, if !self.context.is_stopping() => {
                    self.context.stopping.send_replace(true);
                }
                (write, stored) = stored(&mut self.storing) => self.checkpoint_ended(&write, stored)?,
                Some(put) = self.letters.join_next() => {
                    self.context.tracker.finish(join_result(put)?);
                }
                more = poll_fn(|cx| pull(&mut stage, &mut self.context, &mut steps, cx)), if pulls => {
                    ended = !more;
                    steps.drain(..).for_each(|step| self.take(step));
                }
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
        self.finish().await
    }

    fn take<T>(&mut self, step: StageOutput<T>) {
        match step {
            StageOutput::Item(item) => {
                self.summary.handled += 1;
                self.context.tracker.finish(item.ticket);
            }
            StageOutput::Done(ticket) => {
                self.summary.filtered += 1;
                self.context.tracker.finish(ticket);
            }
            StageOutput::Dead(item) => {
                self.summary.dead += 1;
                let (event, attempts) = (item.event, item.value);
                let letter = DeadLetter {
                    event,
                    attempts,
                    replays: 0,
                };
                // Called here and not in the task, so that dead letters are stored in the order of their events.
                let put = self.sink.dead_letters.put(&letter);
                let stored = store_dead_letter(Arc::clone(&self.sink), letter, put, item.ticket);
                self.letters.spawn(stored);
            }
        }
    }

    /// Begins a checkpoint write if one is due and none is in progress; otherwise returns the time until the next.
    fn begin_checkpoint(&mut self) -> Option<Duration> {
        if self.storing.is_some() {
            return None;
        }
        let (now, point) = (self.sink.clock.elapsed(), self.context.tracker.point());
        let due = self.schedule.due(now, point)?;
        if due > now {
            return Some(due - now);
        }
        self.storing = Some(CheckpointWrite {
            point,
            begun: now,
            done: self
                .sink
                .positions
                .store(&self.topic_partition, point.offset),
        });
        None
    }

    fn checkpoint_ended(
        &mut self,
        write: &CheckpointWrite,
        stored: Result<(), GroupError>,
    ) -> Result<(), RunError> {
        match stored {
            Ok(()) => self.schedule.stored(write.point, write.begun),
            Err(error) if is_final(&error) => return Err(RunError::Position(error)),
            Err(_) => self.schedule.failed(self.sink.clock.elapsed()),
        }
        Ok(())
    }

    /// Stores the last checkpoint and returns the result.
    async fn finish(mut self) -> Result<RunSummary, RunError> {
        if self.storing.is_some() {
            let (write, stored) = stored(&mut self.storing).await;
            self.checkpoint_ended(&write, stored)?;
        }
        let next = self.context.tracker.done();
        let (sink, topic_partition) = (&self.sink, &self.topic_partition);
        if self.schedule.is_behind(self.context.tracker.point()) {
            let store = || sink.positions.store(topic_partition, next);
            let stored = with_retries(sink, next.0 as u64, store, is_final).await;
            stored.map_err(RunError::Position)?;
        }
        match self.context.failed {
            Some(error) => Err(error.into()),
            None => Ok(RunSummary {
                next,
                ..self.summary
            }),
        }
    }
}

/// Completes with the checkpoint write; pending if there is none.
async fn stored(
    storing: &mut Option<CheckpointWrite>,
) -> (CheckpointWrite, Result<(), GroupError>) {
    let stored = poll_fn(|cx| match storing {
        Some(write) => write.done.as_mut().poll(cx),
        None => Poll::Pending,
    });
    let stored = stored.await;
    let write = storing.take().expect("its end was just awaited");
    (write, stored)
}

/// Pulls ready items, up to a limit. Returns false at the end.
fn pull<S: Stage>(
    stage: &mut S,
    context: &mut PipelineContext,
    steps: &mut Vec<StageOutput<S::Out>>,
    cx: &mut Context<'_>,
) -> Poll<bool> {
    while steps.len() < STEPS_MAX {
        match stage.poll_next(context, cx) {
            Poll::Ready(Some(step)) => {
                let is_letter = matches!(step, StageOutput::Dead(_));
                steps.push(step);
                if is_letter {
                    break;
                }
            }
            Poll::Ready(None) => return Poll::Ready(false),
            Poll::Pending if steps.is_empty() => return Poll::Pending,
            Poll::Pending => break,
        }
    }
    Poll::Ready(true)
}

/// Awaits the first `put` of a dead letter, and repeats it if it fails.
async fn store_dead_letter(
    sink: Arc<Sink>,
    letter: DeadLetter,
    put: BoxFuture<Result<(), String>>,
    ticket: Ticket,
) -> Result<Ticket, RunError> {
    let salt = letter.event.offset().0 as u64;
    let mut first = Some(put);
    let attempt = || match first.take() {
        Some(first) => first,
        None => sink.dead_letters.put(&letter),
    };
    let put = with_retries(&sink, salt, attempt, |_| false).await;
    let event = || letter.event.id().to_string();
    put.map(|()| ticket).map_err(|reason| RunError::DeadLetter {
        event: event(),
        reason,
    })
}

/// Retries a storage operation.
async fn with_retries<E>(
    sink: &Sink,
    salt: u64,
    mut attempt: impl FnMut() -> BoxFuture<Result<(), E>>,
    is_final: impl Fn(&E) -> bool,
) -> Result<(), E> {
    let mut delays = RetryDelays::new(&sink.retry, &*sink.clock, sink.seed ^ salt);
    loop {
        match attempt().await {
            Ok(()) => return Ok(()),
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => match delays.next(None) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(error),
            },
        }
    }
}

/// Whether a retry is pointless: the partition has another owner, or the request is invalid.
pub(crate) fn is_final(error: &GroupError) -> bool {
    use GroupError::*;
    matches!(
        error,
        InvalidGroup
            | UnknownMember(_)
            | IllegalGeneration { .. }
            | FencedInstance(_)
            | UnknownPartition(_)
            | MetadataTooLarge { .. }
    )
}

fn join_result<T>(result: Result<T, tokio::task::JoinError>) -> T {
    result.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => unreachable!("tasks are not aborted"),
    })
}
