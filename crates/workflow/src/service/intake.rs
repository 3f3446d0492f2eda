//! Starts an instance for every record of a hub.
//!
//! A pipeline of `flow` reads the hub: its position moves only past accepted records, and records that can never
//! be accepted become dead letters.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::Clock;
use highwater_flow::{
    DeadLetterPartition, DeadLetterSink, Delivery, Event, Failure, Options, Order, PartitionSource,
    PositionStore, Sink, Stage, run,
};
use highwater_log::{Log, Offset, Partition};
use highwater_retry::RetryPolicy;

use super::{Handle, StartError};
use crate::expr::{Answers, Scope, Template};
use crate::journal::{JournalError, JournalHubs};

/// A hub whose records start instances.
pub struct HubIntake {
    pub log: Arc<dyn Log>,
    pub hub: String,
    /// Template of the instance id. `None` uses the record's key, or its position if it has no key.
    pub id: Option<Template>,
    pub positions: Arc<dyn PositionStore>,
    pub dead: Arc<dyn DeadLetterSink>,
    pub clock: Arc<dyn Clock>,
    /// Concurrent starts per partition.
    pub concurrency: usize,
}

/// Interval of the check for new partitions, and delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl HubIntake {
    /// The dead letters, on the hub `__workflow.NAME.rejected`, which is created if necessary.
    pub async fn dead_letters(
        log: &dyn Log,
        name: &str,
    ) -> Result<Arc<dyn DeadLetterSink>, JournalError> {
        Ok(Arc::new(DeadLetterPartition(
            JournalHubs::rejected(log, name).await?,
        )))
    }

    /// Runs until `stop`.
    pub async fn run(self, handle: Handle, stop: impl Future<Output = ()> + Send) {
        let intake = Arc::new(self);
        let mut tasks = tokio::task::JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        let mut known = 0;
        loop {
            // A hub may be created or get partitions while we run.
            let partitions = intake.log.hub(&intake.hub).map_or(0, |hub| hub.partitions);
            for partition in known..partitions {
                tasks.spawn(Arc::clone(&intake).follow(partition, handle.clone()));
            }
            known = known.max(partitions);
            tokio::select! {
                () = &mut stop => break,
                () = tokio::time::sleep(RETRY_DELAY) => {}
            }
        }
        // Starts in progress are accepted or read again: positions move afterwards.
        tasks.shutdown().await;
    }

    async fn follow(self: Arc<HubIntake>, partition: u32, handle: Handle) {
        loop {
            if let Some(partition) = self.log.partition(&self.hub, partition)
                && let Err(error) = self.pipeline(partition, handle.clone()).await
            {
                tracing::error!(
                    hub = self.hub,
                    error,
                    "a hub cannot start instances for now"
                );
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    async fn pipeline(
        self: &Arc<HubIntake>,
        partition: Arc<dyn Partition>,
        handle: Handle,
    ) -> Result<(), String> {
        let stored = self.positions.last(partition.topic_partition()).await;
        let from = stored.map_err(|error| error.to_string())?;
        let bounds = partition.fetch_bounds().await;
        let start = bounds.map_err(|error| error.to_string())?.start;
        let from = from.unwrap_or(Offset(0)).max(start);
        let options = Options {
            concurrency: self.concurrency,
            order: Order::None,
            retry: RetryPolicy {
                tries_max: None,
                ..RetryPolicy::default()
            },
            timeout: None,
            ..Options::default()
        };
        let intake = Arc::clone(self);
        let pipeline = PartitionSource::new(partition, from).handle(
            options,
            move |delivery: Delivery<Event>| {
                let (intake, handle) = (Arc::clone(&intake), handle.clone());
                async move { intake.accept(&handle, &delivery.event).await }
            },
        );
        let (positions, dead) = (Arc::clone(&self.positions), Arc::clone(&self.dead));
        let sink = Sink::new(positions, dead, Arc::clone(&self.clock));
        let ended = run(pipeline, sink, std::future::pending()).await;
        ended.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn accept(&self, handle: &Handle, event: &Event) -> Result<(), Failure> {
        let input = event.value().unwrap_or(b"null");
        let id = self.id_of(event, input).map_err(Failure::permanent)?;
        match handle.start(&id, input).await {
            Ok(_) => Ok(()),
            Err(
                error @ (StartError::Full(_) | StartError::FullOfInputs(_) | StartError::Stopped),
            ) => Err(Failure::transient(error)),
            Err(error) => Err(Failure::permanent(error)),
        }
    }

    fn id_of(&self, event: &Event, input: &[u8]) -> Result<String, String> {
        let position = || {
            format!(
                "{}-{}-{}",
                self.hub,
                event.topic_partition().partition,
                event.offset()
            )
        };
        match (&self.id, event.key()) {
            (Some(id), _) => {
                let none = NoAnswers;
                let position = position();
                let scope = Scope::new("", &position, input, &none);
                id.text(&scope).map_err(|missing| missing.to_string())
            }
            (None, Some(key)) => Ok(String::from_utf8_lossy(key).into_owned()),
            (None, None) => Ok(position()),
        }
    }
}

/// Before the first step there are no answers.
struct NoAnswers;

impl Answers for NoAnswers {
    fn answer(&self, _: &str) -> Option<(u16, &[u8])> {
        None
    }
}
