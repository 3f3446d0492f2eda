//! A hub that feeds a handler: every partition that is this instance's has a pipeline of its own, which
//! is started again when it fails.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use highwater_env::Clock;
use highwater_log::{Offset, Pending, Place};

use crate::CheckpointInterval;
use crate::dead_letter::{DeadLetter, DeadLetterSink};
use crate::group::{AssignedPartition, GroupMember};
use crate::handle_stage::Options;
use crate::positions::PositionStore;
use crate::retry_context::Pacing;
use crate::run::{RunError, Sink, run};
use crate::source::{PartitionSource, SourceError};
use crate::stage::Stage;
use crate::{Delivery, Event, Failure, retry};

/// Whoever is given events. Any function from deliveries to a result is one.
pub trait Handler: Send + Sync + 'static {
    /// There is at least one delivery, and no more than the processor's `batch`. All of them are of one
    /// partition, in order, and one attempt.
    fn handle(&self, deliveries: Vec<Delivery<Event>>) -> Pending<Result<(), Failure>>;
}

impl<F, W> Handler for F
where
    F: Fn(Vec<Delivery<Event>>) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), Failure>> + Send + 'static,
{
    fn handle(&self, deliveries: Vec<Delivery<Event>>) -> Pending<Result<(), Failure>> {
        Box::pin(self(deliveries))
    }
}

/// Where a group begins that has no position yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartPosition {
    #[default]
    Earliest,
    Latest,
}

/// Says why an event cannot be decoded.
pub type EventCheck = fn(&Event) -> Result<(), String>;

/// What is done with the events of a hub.
#[derive(Clone)]
pub struct Processor {
    pub member: GroupMember,
    pub start: StartPosition,
    /// One share of every partition instead of all of it: which, and of how many.
    pub share: Option<(u32, u32)>,
    /// An event that does not pass is a dead letter.
    pub check: Option<EventCheck>,
    /// Up to so many events in one call, one call after another; `None`: single ones.
    pub batch: Option<usize>,
    pub options: Options,
    pub checkpoint_interval: CheckpointInterval,
    pub dead_letters: Arc<dyn DeadLetterSink>,
    pub clock: Arc<dyn Clock>,
    /// How soon a pipeline that failed is started again.
    pub restart: retry::Policy,
    pub stats: Arc<ProcessorStats>,
}

/// What a processor is doing and has done since it was started.
#[derive(Debug, Default)]
pub struct ProcessorStats {
    /// Calls of the handler.
    pub deliveries: AtomicU64,
    /// Those of them that failed.
    pub failures: AtomicU64,
    /// Events that the handler took.
    pub handled: AtomicU64,
    pub dead: AtomicU64,
    /// Pipelines that were started again.
    pub restarts: AtomicU64,
    places: Mutex<BTreeMap<Place, Option<String>>>,
}

impl ProcessorStats {
    /// The partitions that are worked on, each with the reason why it is at rest, if it is.
    pub fn places(&self) -> BTreeMap<Place, Option<String>> {
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note(&self, place: &Place, trouble: Option<String>) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.insert(place.clone(), trouble);
    }

    fn forget(&self, place: &Place) {
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(place);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Processor {
    /// Runs until `shutdown` is ready and the attempts under way have ended.
    pub async fn run(self, handler: Arc<dyn Handler>, shutdown: impl Future<Output = ()>) {
        let processor = Arc::new(self);
        let member = processor.member.clone();
        let work = |owned: AssignedPartition| {
            let (processor, handler) = (Arc::clone(&processor), Arc::clone(&handler));
            async move { processor.work(&owned, &handler).await }
        };
        member.run(work, shutdown).await;
    }

    /// Works on one partition until it is told to stop.
    async fn work(&self, owned: &AssignedPartition, handler: &Arc<dyn Handler>) {
        let place = &owned.place;
        let seed = self.options.seed ^ u64::from(place.partition);
        let mut pacing = Pacing::new(&self.restart, &*self.clock, seed);
        loop {
            self.stats.note(place, None);
            let before = self.stats.handled.load(Ordering::Relaxed);
            let error = match self.pipeline(owned, handler).await {
                Ok(()) => break,
                // It is somebody else's now, or was never ours; the group says so too.
                Err(RunError::Position(error)) if crate::run::is_final(&error) => {
                    tracing::debug!(%place, %error, "lost to another member");
                    break;
                }
                Err(error) => error,
            };
            if self.stats.handled.load(Ordering::Relaxed) > before {
                pacing.restart();
            }
            tracing::warn!(%place, %error, "the work on a partition failed and is begun again");
            self.stats.note(place, Some(error.to_string()));
            add(&self.stats.restarts, 1);
            let Some(delay) = pacing.next(None) else {
                break;
            };
            tokio::select! {
                () = owned.stopped() => break,
                () = tokio::time::sleep(delay) => {}
            }
        }
        self.stats.forget(place);
    }

    async fn pipeline(
        &self,
        owned: &AssignedPartition,
        handler: &Arc<dyn Handler>,
    ) -> Result<(), RunError> {
        let place = &owned.place;
        let Some(partition) = self
            .member
            .log
            .partition(place.hub.as_str(), place.partition)
        else {
            owned.stopped().await;
            return Ok(());
        };
        let bounds = partition.bounds_now().await.map_err(SourceError::from)?;
        let last = owned
            .positions
            .last(place)
            .await
            .map_err(RunError::Position)?;
        let start = match (last, self.start) {
            // What retention has removed cannot be had any more.
            (Some(last), _) => last.max(bounds.start),
            (None, StartPosition::Earliest) => bounds.start,
            (None, StartPosition::Latest) => bounds.end,
        };
        if let Some(last) = last.filter(|last| *last < bounds.start) {
            tracing::warn!(%place, from = %last, to = %bounds.start, "events were removed by retention before they were handled");
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

    /// Stores where a group begins that begins at the end: after a crash before the first checkpoint
    /// the end would be further on.
    async fn keep(
        &self,
        owned: &AssignedPartition,
        last: Option<Offset>,
        start: Offset,
    ) -> Result<(), RunError> {
        if last.is_some() || self.start == StartPosition::Earliest {
            return Ok(());
        }
        let stored = owned.positions.store(&owned.place, start);
        stored.await.map_err(RunError::Position)
    }

    fn call(
        &self,
        handler: &Arc<dyn Handler>,
    ) -> impl Fn(Vec<Delivery<Event>>) -> Pending<Result<(), Failure>> + Send + Sync + 'static {
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

/// One call of a handler, to be counted however it ends: one that is cut off has failed too.
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
    fn put(&self, letter: &DeadLetter) -> Pending<Result<(), String>> {
        let (put, stats) = (self.0.put(letter), Arc::clone(&self.1));
        Box::pin(async move {
            put.await?;
            add(&stats.dead, 1);
            Ok(())
        })
    }
}
