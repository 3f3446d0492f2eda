//! A hub feeds a queue: a spike is absorbed as a stream and worked off as a queue (Q3).
//!
//! The events go through a pipeline of `highwater_flow`, which reads ahead of nothing that is not
//! safe. The position is an event of the queue's own journal, in the same batch as the messages it
//! stands for, so neither can be there without the other: every event becomes a message exactly
//! once, whatever happens in between.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use highwater_env::Clock;
use highwater_flow::retry::{Delay, Policy};
use highwater_flow::{
    DeadLetter, DeadLetters, Delivery, Event, Failure, Options, Positions, RunError, Sink, Source,
    Stage, run,
};
use highwater_log::{GroupError, Log, Offset, Partition, Pending, Place};
use tokio::sync::watch;

use super::handle::Queue;
use crate::message::{Content, NewMessage};

/// Events that are taken over together.
const COUNT_MAX: usize = 256;

/// Takes over the events of every partition of `hub` until it is told to stop. Partitions that are
/// added later are taken over after the next start.
pub async fn feed(
    log: Arc<dyn Log>,
    hub: &str,
    queue: Queue,
    clock: Arc<dyn Clock>,
    stop: watch::Receiver<bool>,
) -> Result<(), RunError> {
    let count = log.hub(hub).map_or(0, |info| info.partitions);
    let partitions = (0..count).filter_map(|number| log.partition(hub, number));
    let runs = partitions.map(|partition| {
        let mut stop = stop.clone();
        let told = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        feed_partition(partition, queue.clone(), clock.clone(), told)
    });
    join_all(runs).await.into_iter().collect()
}

async fn feed_partition(
    partition: Arc<dyn Partition>,
    queue: Queue,
    clock: Arc<dyn Clock>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let into = Arc::new(Into(queue));
    let stored = into.last(partition.place()).await;
    let stored = stored.map_err(RunError::Position)?;
    let start = stored.unwrap_or(Offset(0)).max(partition.bounds().start);
    let handler = {
        let into = into.clone();
        move |events: Vec<Delivery<Event>>| take(into.clone(), events)
    };
    let pipeline = Source::new(partition, start).handle_batches(COUNT_MAX, for_ever(), handler);
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

async fn take(into: Arc<Into>, events: Vec<Delivery<Event>>) -> Result<(), Failure> {
    let Some(last) = events.last() else {
        return Ok(());
    };
    let (place, next) = (last.event.place().clone(), last.event.offset().0 + 1);
    let message = |delivery: &Delivery<Event>| {
        let content = content(&delivery.event);
        let message = NewMessage {
            content,
            ..NewMessage::default()
        };
        (delivery.event.offset().0, message)
    };
    let messages = events.iter().map(message).collect();
    let hub = place.hub.to_string();
    let fed = into.0.feed(hub, place.partition, messages, next).await;
    fed.map(drop).map_err(Failure::transient)
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

impl Positions for Into {
    fn last(&self, place: &Place) -> Pending<Result<Option<Offset>, GroupError>> {
        let (queue, hub, partition) = (self.0.clone(), place.hub.to_string(), place.partition);
        Box::pin(async move {
            let next = queue.fed(hub, partition).await;
            let next = next.map_err(|error| GroupError::Storage(error.to_string()))?;
            Ok(next.map(Offset))
        })
    }

    fn store(&self, place: &Place, next: Offset) -> Pending<Result<(), GroupError>> {
        let (queue, hub, partition) = (self.0.clone(), place.hub.to_string(), place.partition);
        Box::pin(async move {
            let stored = queue.feed(hub, partition, Vec::new(), next.0).await;
            stored
                .map(drop)
                .map_err(|error| GroupError::Storage(error.to_string()))
        })
    }
}

impl DeadLetters for Into {
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
