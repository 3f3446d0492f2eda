//! A hub feeds a queue: the hub absorbs a spike, and workers process it from the queue (Q3).
//!
//! Events go through a pipeline of `highwater_flow`. The read position is an event of the queue's own journal,
//! in the same batch as the messages before it, so neither is ever stored without the other: every event
//! becomes a message exactly once, even after a crash.
//!
//! Failed reads and writes are retried forever, because nothing else would restart a feed.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Clock, shutdown_signal};
use highwater_flow::{
    DeadLetter, DeadLetterSink, Delivery, Event, Failure, Options, PartitionSource, PositionStore,
    RunError, Sink, SourceError, Stage, run,
};
use highwater_log::{BoxFuture, GroupError, Log, Offset, Partition, TopicPartition};
use highwater_retry::{Backoff, RetryPolicy};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::error::Error;
use super::handle::Queue;
use crate::message::{Content, NewMessage};

/// Events enqueued together.
const COUNT_MAX: usize = 256;

/// Interval of the check for new partitions, and delay after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Feeds the events of every partition of `hub`, including partitions added later, until `stop` is set or the
/// queue is deleted.
pub async fn feed(
    log: Arc<dyn Log>,
    hub: &str,
    queue: Queue,
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
) {
    let (mut partitions, mut known) = (JoinSet::new(), 0);
    let mut stopped = std::pin::pin!(shutdown_signal(stop.clone()));
    loop {
        let count = log.hub(hub).map_or(0, |info| info.partitions);
        for number in known..count {
            let source = SourcePartition {
                log: Arc::clone(&log),
                hub: hub.to_owned(),
                number,
            };
            partitions.spawn(feed_until_stopped(
                source,
                queue.clone(),
                Arc::clone(&clock),
                stop.clone(),
            ));
        }
        known = known.max(count);
        tokio::select! {
            () = &mut stopped => break,
            // Pipelines in progress have no target and end with the set.
            () = queue.closed() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    partitions.join_all().await;
}

/// A partition to read, which may not exist yet.
struct SourcePartition {
    log: Arc<dyn Log>,
    hub: String,
    number: u32,
}

/// Feeds one partition until `stop`, restarting after every error.
async fn feed_until_stopped(
    source: SourcePartition,
    queue: Queue,
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
) {
    let stopped = || shutdown_signal(stop.clone());
    while !*stop.borrow() {
        if let Some(partition) = source.log.partition(&source.hub, source.number) {
            match feed_partition(partition, queue.clone(), Arc::clone(&clock), stopped()).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(%error, "hub `{}` cannot feed queue `{}` for now", source.hub, queue.name());
                }
            }
        }
        tokio::select! {
            () = stopped() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

async fn feed_partition(
    partition: Arc<dyn Partition>,
    queue: Queue,
    clock: Arc<dyn Clock>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let target = Arc::new(FeedQueue(queue));
    let topic_partition = partition.topic_partition();
    let bounds = partition.fetch_bounds().await;
    let bounds = bounds.map_err(SourceError::Read)?;
    let mut stored = target
        .last(topic_partition)
        .await
        .map_err(RunError::Position)?;
    // An end never goes back, so this is a new hub with the same name.
    if stored.is_some_and(|stored| stored > bounds.end) {
        let anew = target
            .0
            .restart_feed(topic_partition.hub.to_string(), topic_partition.partition);
        anew.await
            .map_err(|error| RunError::Position(storage_error(&error)))?;
        stored = None;
    }
    let start = stored.unwrap_or(Offset(0)).max(bounds.start);
    let handler = {
        let target = target.clone();
        move |events: Vec<Delivery<Event>>| enqueue(target.clone(), events)
    };
    let pipeline =
        PartitionSource::new(partition, start).handle_batches(COUNT_MAX, retry_forever(), handler);
    let sink = Sink::new(target.clone(), target, clock);
    run(pipeline, sink, stop).await.map(drop)
}

/// Waits as long as the queue or the log is full: absorbing that is the purpose of the hub.
fn retry_forever() -> Options {
    let backoff = Backoff::Exponential {
        first: Duration::from_millis(50),
        cap: Duration::from_secs(5),
    };
    let policy = RetryPolicy {
        backoff,
        tries_max: None,
        ..RetryPolicy::default()
    };
    Options {
        retry: policy,
        ..Options::default()
    }
}

/// Enqueues a batch, in smaller requests if the queue does not accept it at once.
async fn enqueue(target: Arc<FeedQueue>, events: Vec<Delivery<Event>>) -> Result<(), Failure> {
    let (mut rest, mut count) = (&events[..], events.len());
    loop {
        let (piece, behind) = rest.split_at(count.min(rest.len()));
        let Some(last) = piece.last() else {
            return Ok(());
        };
        let (topic_partition, next) = (
            last.event.topic_partition().clone(),
            last.event.offset().0 + 1,
        );
        let messages = piece.iter().map(message).collect();
        let hub = topic_partition.hub.to_string();
        match target
            .0
            .feed(hub, topic_partition.partition, messages, next)
            .await
        {
            Ok(_) => rest = behind,
            Err(error) if error.is_over_limit() && piece.len() > 1 => count = piece.len() / 2,
            Err(error) => return Err(Failure::transient(error)),
        }
    }
}

fn message(delivery: &Delivery<Event>) -> (i64, NewMessage) {
    let message = NewMessage {
        content: content(&delivery.event),
        ..NewMessage::default()
    };
    (delivery.event.offset().0, message)
}

/// The key becomes the session, so that a queue with sessions preserves the order per key.
fn content(event: &Event) -> Content {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = event.headers();
    let properties =
        headers.map(|(name, value)| (name.to_owned(), text(value.unwrap_or_default())));
    Content {
        body: event.value().unwrap_or_default().to_vec().into(),
        id: Some(event.id().to_string()),
        session: event.key().map(text),
        content_type: None,
        properties: properties.collect(),
    }
}

/// The queue as position store and dead-letter sink of its feed.
struct FeedQueue(Queue);

impl PositionStore for FeedQueue {
    fn last(
        &self,
        topic_partition: &TopicPartition,
    ) -> BoxFuture<Result<Option<Offset>, GroupError>> {
        let (queue, hub, partition) = (
            self.0.clone(),
            topic_partition.hub.to_string(),
            topic_partition.partition,
        );
        Box::pin(async move {
            let next = queue.feed_position(hub, partition).await;
            let next = next.map_err(|error| storage_error(&error))?;
            Ok(next.map(Offset))
        })
    }

    fn store(
        &self,
        topic_partition: &TopicPartition,
        next: Offset,
    ) -> BoxFuture<Result<(), GroupError>> {
        let (queue, hub, partition) = (
            self.0.clone(),
            topic_partition.hub.to_string(),
            topic_partition.partition,
        );
        Box::pin(async move {
            let stored = queue.feed(hub, partition, Vec::new(), next.0).await;
            stored.map(drop).map_err(|error| storage_error(&error))
        })
    }
}

fn storage_error(error: &Error) -> GroupError {
    GroupError::Storage(error.to_string())
}

impl DeadLetterSink for FeedQueue {
    fn put(&self, letter: &DeadLetter) -> BoxFuture<Result<(), String>> {
        let event = &letter.event;
        let topic_partition = event.topic_partition().clone();
        let (offset, content) = (event.offset().0, content(event));
        let reason = letter.attempts.last().map(|attempt| attempt.reason.clone());
        let queue = self.0.clone();
        Box::pin(async move {
            let (hub, reason) = (topic_partition.hub.to_string(), reason.unwrap_or_default());
            let put = queue
                .feed_unreadable(hub, topic_partition.partition, offset, content, reason)
                .await;
            put.map_err(|error| error.to_string())
        })
    }
}
