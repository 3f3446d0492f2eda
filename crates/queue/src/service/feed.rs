//! A hub feeds a queue: a spike is absorbed as a stream and worked off as a queue (Q3).
//!
//! The events go through a pipeline of `highwater_flow`, which reads ahead of nothing that is not
//! safe. The position is an event of the queue's own journal, in the same batch as the messages it
//! stands for, so neither can be there without the other: every event becomes a message exactly
//! once, whatever happens in between.
//!
//! What cannot be read or written for now is tried again for ever, because a feed has nobody who would
//! start it anew.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_flow::retry::{Delay, Policy};
use highwater_flow::{
    DeadLetter, DeadLetterSink, Delivery, Event, Failure, Options, PartitionSource, PositionStore,
    RunError, Sink, Stage, run,
};
use highwater_log::{GroupError, Log, Offset, Partition, Pending, Place};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::error::Error;
use super::handle::Queue;
use crate::message::{Content, NewMessage};

/// Events that are taken over together.
const COUNT_MAX: usize = 256;

/// How often partitions are looked for that were added, and how long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Takes over the events of every partition of `hub`, also of those that are added later, until it is
/// told to stop or the queue is deleted.
pub async fn feed(
    log: Arc<dyn Log>,
    hub: &str,
    queue: Queue,
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
) {
    let (mut partitions, mut known) = (JoinSet::new(), 0);
    let mut stopping = stop.clone();
    let mut over = std::pin::pin!(stopping.wait_for(|stop| *stop));
    loop {
        let count = log.hub(hub).map_or(0, |info| info.partitions);
        for number in known..count {
            let place = (hub.to_owned(), number);
            let parts = (Arc::clone(&log), queue.clone(), Arc::clone(&clock));
            partitions.spawn(feed_for_ever(place, parts, stop.clone()));
        }
        known = known.max(count);
        tokio::select! {
            _ = &mut over => break,
            // What is under way has nowhere to go, and is ended with the set.
            () = queue.gone() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    partitions.join_all().await;
}

/// Until it is told to stop, through everything that goes wrong.
async fn feed_for_ever(
    (hub, number): (String, u32),
    (log, queue, clock): (Arc<dyn Log>, Queue, Arc<dyn Clock>),
    stop: watch::Receiver<bool>,
) {
    let told = || {
        let mut stop = stop.clone();
        async move { drop(stop.wait_for(|stop| *stop).await) }
    };
    while !*stop.borrow() {
        if let Some(partition) = log.partition(&hub, number) {
            match feed_partition(partition, queue.clone(), Arc::clone(&clock), told()).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(%error, "hub `{hub}` cannot feed queue `{}` for now", queue.name());
                }
            }
        }
        tokio::select! {
            () = told() => return,
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
    let into = Arc::new(Into(queue));
    let (place, bounds) = (partition.place(), partition.bounds());
    let mut stored = into.last(place).await.map_err(RunError::Position)?;
    // No end ever goes back, so this is another hub of the same name.
    if stored.is_some_and(|stored| stored > bounds.end) {
        let anew = into.0.feed_anew(place.hub.to_string(), place.partition);
        anew.await
            .map_err(|error| RunError::Position(unstored(&error)))?;
        stored = None;
    }
    let start = stored.unwrap_or(Offset(0)).max(bounds.start);
    let handler = {
        let into = into.clone();
        move |events: Vec<Delivery<Event>>| take(into.clone(), events)
    };
    let pipeline =
        PartitionSource::new(partition, start).handle_batches(COUNT_MAX, for_ever(), handler);
    let sink = Sink::new(into.clone(), into, clock);
    run(pipeline, sink, stop).await.map(drop)
}

/// A queue that is full, or a log that has no room, is waited for: that is what the hub is for.
fn for_ever() -> Options {
    let delay = Delay::Exponential {
        first: Duration::from_millis(50),
        cap: Duration::from_secs(5),
    };
    let policy = Policy {
        delay,
        tries_max: None,
        ..Policy::default()
    };
    Options {
        retry: policy,
        ..Options::default()
    }
}

/// As many at a time as the queue takes: what is one request for a hub may be too much for a small queue.
async fn take(into: Arc<Into>, events: Vec<Delivery<Event>>) -> Result<(), Failure> {
    let (mut rest, mut count) = (&events[..], events.len());
    loop {
        let (piece, behind) = rest.split_at(count.min(rest.len()));
        let Some(last) = piece.last() else {
            return Ok(());
        };
        let (place, next) = (last.event.place().clone(), last.event.offset().0 + 1);
        let messages = piece.iter().map(message).collect();
        let hub = place.hub.to_string();
        match into.0.feed(hub, place.partition, messages, next).await {
            Ok(_) => rest = behind,
            Err(error) if error.is_too_much() && piece.len() > 1 => count = piece.len() / 2,
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

/// The key becomes the session, so that a queue with sessions keeps the order of every key.
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

/// A queue as the keeper of positions and as the place for what cannot be read.
struct Into(Queue);

impl PositionStore for Into {
    fn last(&self, place: &Place) -> Pending<Result<Option<Offset>, GroupError>> {
        let (queue, hub, partition) = (self.0.clone(), place.hub.to_string(), place.partition);
        Box::pin(async move {
            let next = queue.fed(hub, partition).await;
            let next = next.map_err(|error| unstored(&error))?;
            Ok(next.map(Offset))
        })
    }

    fn store(&self, place: &Place, next: Offset) -> Pending<Result<(), GroupError>> {
        let (queue, hub, partition) = (self.0.clone(), place.hub.to_string(), place.partition);
        Box::pin(async move {
            let stored = queue.feed(hub, partition, Vec::new(), next.0).await;
            stored.map(drop).map_err(|error| unstored(&error))
        })
    }
}

fn unstored(error: &Error) -> GroupError {
    GroupError::Storage(error.to_string())
}

impl DeadLetterSink for Into {
    fn put(&self, letter: &DeadLetter) -> Pending<Result<(), String>> {
        let event = &letter.event;
        let place = event.place().clone();
        let dead = (event.offset().0, content(event));
        let reason = letter.attempts.last().map(|attempt| attempt.reason.clone());
        let queue = self.0.clone();
        Box::pin(async move {
            let (hub, reason) = (place.hub.to_string(), reason.unwrap_or_default());
            let put = queue.feed_dead(hub, place.partition, dead, reason).await;
            put.map_err(|error| error.to_string())
        })
    }
}
