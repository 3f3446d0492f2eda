//! Runs a handler over a hub: every assigned partition has a pipeline, which is restarted when it fails.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_env::Clock;
use highwater_log::{BoxFuture, Offset, TopicPartition};
use highwater_retry::RetryPolicy;

use crate::CheckpointInterval;
use crate::dead_letter::{DeadLetter, DeadLetterSink};
use crate::group::{AssignedPartition, GroupMember};
use crate::handle_stage::Options;
use crate::positions::PositionStore;
use crate::retry_context::RetryDelays;
use crate::run::{RunError, Sink, run};
use crate::source::{PartitionSource, SourceError};
use crate::stage::Stage;
use crate::{Delivery, Event, Failure};

/// Handles events. Implemented by any function from deliveries to a result.
pub trait Handler: Send + Sync + 'static {
    /// Receives at least one delivery and at most the processor's `batch`, all from one partition, in order, and of the
    /// same attempt.
    fn handle(&self, deliveries: Vec<Delivery<Event>>) -> BoxFuture<Result<(), Failure>>;
}

impl<F, W> Handler for F
where
    F: Fn(Vec<Delivery<Event>>) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), Failure>> + Send + 'static,
{
    fn handle(&self, deliveries: Vec<Delivery<Event>>) -> BoxFuture<Result<(), Failure>> {
        Box::pin(self(deliveries))
    }
}

/// Where a group without a stored position begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPosition {
    #[default]
    Earliest,
    Latest,
}

/// Checks whether an event can be decoded, or returns the reason.
pub type EventCheck = fn(&Event) -> Result<(), String>;

/// Handles the events of a hub.
#[derive(Clone)]
pub struct Processor {
    pub member: GroupMember,
    pub start: StartPosition,
    /// One share of every partition instead of the whole: index and number of shares.
    pub share: Option<(u32, u32)>,
    /// Events that fail the check become dead letters.
    pub check: Option<EventCheck>,
    /// Maximum events per call, one call at a time. `None` handles single events concurrently.
    pub batch: Option<usize>,
    pub options: Options,
    pub checkpoint_interval: CheckpointInterval,
    pub dead_letters: Arc<dyn DeadLetterSink>,
    pub clock: Arc<dyn Clock>,
    /// Delays between restarts of a failed pipeline.
    pub restart: RetryPolicy,
    pub stats: Arc<ProcessorStats>,
}

/// Counters of a processor since its start.
#[derive(Debug, Default)]
pub struct ProcessorStats {
    /// Handler calls.
    pub deliveries: AtomicU64,
    /// Failed handler calls.
    pub failures: AtomicU64,
    /// Events handled successfully.
    pub handled: AtomicU64,
    pub dead: AtomicU64,
    /// Pipeline restarts.
    pub restarts: AtomicU64,
    partitions: Mutex<BTreeMap<TopicPartition, Option<String>>>,
}

impl ProcessorStats {
    /// The assigned partitions, each with the error that stopped its pipeline, if any.
    pub fn partitions(&self) -> BTreeMap<TopicPartition, Option<String>> {
        self.lock().clone()
    }

    fn note(&self, partition: &TopicPartition, error: Option<String>) {
        self.lock().insert(partition.clone(), error);
    }

    fn forget(&self, partition: &TopicPartition) {
        self.lock().remove(partition);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Option<String>>> {
        let partitions = self.partitions.lock();
        partitions.unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Processor {
    /// Runs until `shutdown` and the end of the attempts then in progress.
    pub async fn run(self, handler: Arc<dyn Handler>, shutdown: impl Future<Output = ()>) {
        let processor = Arc::new(self);
        let member = processor.member.clone();
        let work = |owned: AssignedPartition| {
            let (processor, handler) = (Arc::clone(&processor), Arc::clone(&handler));
            async move { processor.work(&owned, &handler).await }
        };
        member.run(work, shutdown).await;
    }

    /// Runs the pipeline of one partition until it is revoked.
    async fn work(&self, owned: &AssignedPartition, handler: &Arc<dyn Handler>) {
        let topic_partition = &owned.topic_partition;
        let seed = self.options.seed ^ u64::from(topic_partition.partition);
        let mut delays = RetryDelays::new(&self.restart, &*self.clock, seed);
        loop {
            self.stats.note(topic_partition, None);
            let before = self.stats.handled.load(Ordering::Relaxed);
            let error = match self.pipeline(owned, handler).await {
                Ok(()) => break,
                // The partition has another owner now; the group will report it too.
                Err(RunError::Position(error)) if crate::run::is_final(&error) => {
                    tracing::debug!(partition = %topic_partition, %error, "lost to another member");
                    break;
                }
                Err(error) => error,
            };
            if self.stats.handled.load(Ordering::Relaxed) > before {
                delays.restart();
            }
            tracing::warn!(partition = %topic_partition, %error, "a pipeline failed and is restarted");
            self.stats.note(topic_partition, Some(error.to_string()));
            add(&self.stats.restarts, 1);
            let Some(delay) = delays.next(None) else {
                break;
            };
            tokio::select! {
                () = owned.stopped() => break,
                () = tokio::time::sleep(delay) => {}
            }
        }
        self.stats.forget(topic_partition);
    }

    async fn pipeline(
        &self,
        owned: &AssignedPartition,
        handler: &Arc<dyn Handler>,
    ) -> Result<(), RunError> {
        let topic_partition = &owned.topic_partition;
        let Some(partition) = self
            .member
            .log
            .partition(topic_partition.hub.as_str(), topic_partition.partition)
        else {
            owned.stopped().await;
            return Ok(());
        };
        let bounds = partition.fetch_bounds().await.map_err(SourceError::from)?;
        let last = owned
            .positions
            .last(topic_partition)
            .await
            .map_err(RunError::Position)?;
        let start = match (last, self.start) {
            // Retention has removed the events before.
            (Some(last), _) => last.max(bounds.start),
            (None, StartPosition::Earliest) => bounds.start,
            (None, StartPosition::Latest) => bounds.end,
        };
        if let Some(last) = last.filter(|last| *last < bounds.start) {
            tracing::warn!(partition = %topic_partition, from = %last, to = %bounds.start, "events were removed by retention before they were handled");
        }
        self.keep(owned, last, start).await?;
        let sink = Sink {
            checkpoint_interval: self.checkpoint_interval,
            seed: self.options.seed,
            ..Sink::new(
                Arc::new(owned.positions.clone()),
                Arc::new(CountedDeadLetters(
                    Arc::clone(&self.dead_letters),
                    Arc::clone(&self.stats),
                )),
                Arc::clone(&self.clock),
            )
        };
        let source = PartitionSource::new(partition, start);
        let (share, check) = (self.share.unwrap_or((0, 1)), self.check);
        let checked = source
            .share(share.0, share.1)
            .try_map(move |event| match check {
                Some(check) => check(&event).map(|()| event),
                None => Ok(event),
            });
        let call = self.call(handler);
        match self.batch {
            Some(count) => {
                let handled = checked.handle_batches(count, self.options.clone(), call);
                run(handled, sink, owned.stopped()).await?;
            }
            None => {
                let one = move |delivery| call(vec![delivery]);
                let handled = checked.handle(self.options.clone(), one);
                run(handled, sink, owned.stopped()).await?;
            }
        }
        Ok(())
    }

    /// Stores the start position of a group that begins at the end: after a crash before the first checkpoint the end
    /// would be later.
    async fn keep(
        &self,
        owned: &AssignedPartition,
        last: Option<Offset>,
        start: Offset,
    ) -> Result<(), RunError> {
        if last.is_some() || self.start == StartPosition::Earliest {
            return Ok(());
        }
        let stored = owned.positions.store(&owned.topic_partition, start);
        stored.await.map_err(RunError::Position)
    }

    fn call(
        &self,
        handler: &Arc<dyn Handler>,
    ) -> impl Fn(Vec<Delivery<Event>>) -> BoxFuture<Result<(), Failure>> + Send + Sync + 'static
    {
        let (handler, stats) = (Arc::clone(handler), Arc::clone(&self.stats));
        move |deliveries| {
            let count = deliveries.len() as u64;
            let outcome = handler.handle(deliveries);
            let delivery = HandlerCall::new(Arc::clone(&stats), count);
            Box::pin(async move {
                let outcome = outcome.await;
                delivery.ended(outcome.is_ok());
                outcome
            })
        }
    }
}

/// Counts a handler call however it ends: an aborted call counts as failed.
struct HandlerCall {
    stats: Arc<ProcessorStats>,
    count: u64,
    ok: bool,
}

impl HandlerCall {
    fn new(stats: Arc<ProcessorStats>, count: u64) -> HandlerCall {
        add(&stats.deliveries, 1);
        HandlerCall {
            stats,
            count,
            ok: false,
        }
    }

    fn ended(mut self, ok: bool) {
        self.ok = ok;
    }
}

impl Drop for HandlerCall {
    fn drop(&mut self) {
        match self.ok {
            true => add(&self.stats.handled, self.count),
            false => add(&self.stats.failures, 1),
        }
    }
}

struct CountedDeadLetters(Arc<dyn DeadLetterSink>, Arc<ProcessorStats>);

impl DeadLetterSink for CountedDeadLetters {
    fn put(&self, letter: &DeadLetter) -> BoxFuture<Result<(), String>> {
        let (put, stats) = (self.0.put(letter), Arc::clone(&self.1));
        Box::pin(async move {
            put.await?;
            add(&stats.dead, 1);
            Ok(())
        })
    }
}
