//! The journal of a queue: a hub with one partition whose records are events.
//!
//! Batches carry the sequence numbers of an idempotent producer. When the log rejects a batch (the disk is
//! full), it also rejects every later one, so no event is ever written whose predecessors are missing.

use std::sync::Arc;

use bytes::Bytes;
use highwater_codec::DecodeError;
use highwater_log::batch::{BatchBuilder, BatchOptions, NewRecord, Record};
use highwater_log::{
    AdminError, AppendError, AppendInfo, BoxFuture, CleanupPolicy, HubName, HubSettings, HubSpec,
    Isolation, Log, Offset, Partition, Producer, ReadError, ReplayError, TopicPartition, replay,
};

use crate::codec;
use crate::machine::{ContentMap, Event, Machine};

/// The owner of a journal, which decides the name of its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntityKind {
    Queue,
    Topic,
    /// Its name is `TOPIC/Subscriptions/NAME`.
    Subscription,
}

/// Between the names of a topic and of its subscription.
const SUBSCRIPTIONS: &str = "/Subscriptions/";

const QUEUE_NAME_BYTES_MAX: usize = 200;
const TOPIC_NAME_BYTES_MAX: usize = 150;
const SUBSCRIPTION_NAME_BYTES_MAX: usize = 50;

/// The name of a subscription among all entities.
pub(crate) fn subscription_path(topic: &str, name: &str) -> String {
    format!("{topic}{SUBSCRIPTIONS}{name}")
}

/// The topic and the name in the path of a subscription.
pub(crate) fn split_subscription_path(path: &str) -> Option<(&str, &str)> {
    path.split_once(SUBSCRIPTIONS)
}

impl EntityKind {
    /// The hub of an entity; `None` if this cannot be its name.
    pub(crate) fn hub_of(self, name: &str) -> Option<HubName> {
        let checked = |name: &str, bytes_max| {
            let fits = (1..=bytes_max).contains(&name.len());
            (fits && HubName::new(name).is_ok()).then_some(())
        };
        let hub = match self {
            EntityKind::Queue => {
                checked(name, QUEUE_NAME_BYTES_MAX)?;
                format!("__queue.{name}")
            }
            EntityKind::Topic => {
                checked(name, TOPIC_NAME_BYTES_MAX)?;
                format!("__topic.{name}")
            }
            EntityKind::Subscription => {
                let (topic, name) = split_subscription_path(name)?;
                checked(topic, TOPIC_NAME_BYTES_MAX)?;
                checked(name, SUBSCRIPTION_NAME_BYTES_MAX)?;
                // Both names may have dots: the length tells them apart.
                format!("__subscription.{}.{topic}.{name}", topic.len())
            }
        };
        HubName::new(&hub).ok()
    }

    /// The name of the entity that a hub belongs to; `None` if it is none of this kind.
    pub(crate) fn name_of(self, hub: &str) -> Option<String> {
        match self {
            EntityKind::Queue => hub.strip_prefix("__queue.").map(str::to_owned),
            EntityKind::Topic => hub.strip_prefix("__topic.").map(str::to_owned),
            EntityKind::Subscription => {
                let (length, names) = hub.strip_prefix("__subscription.")?.split_once('.')?;
                let (topic, name) = names.split_at_checked(length.parse().ok()?)?;
                Some(subscription_path(topic, name.strip_prefix('.')?))
            }
        }
    }
}

/// The largest batch. All events of one request share a batch, so that a request applies completely or not at all.
pub(crate) const BATCH_BYTES_MAX: u32 = 32 << 20;

/// Why a queue's journal could not be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("`{0}` does not exist")]
    Missing(TopicPartition),
    #[error(transparent)]
    Claim(#[from] AppendError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("its topic cannot be read: {0}")]
    Topic(String),
    #[error("message {seq} refers to message {topic_seq} of the topic, which is not there")]
    Reference { seq: u64, topic_seq: u64 },
}

impl JournalError {
    /// Whether the same may succeed later: a cluster does not answer.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            JournalError::Claim(error) => is_temporary(error),
            JournalError::Replay(ReplayError::Read(error)) => {
                matches!(error, ReadError::Storage { .. })
            }
            JournalError::Topic(_) => true,
            JournalError::Replay(_) | JournalError::Missing(_) | JournalError::Reference { .. } => {
                false
            }
        }
    }
}

/// Whether an append may succeed later.
pub(crate) fn is_temporary(error: &AppendError) -> bool {
    matches!(
        error,
        AppendError::QueueFull { .. }
            | AppendError::Busy { .. }
            | AppendError::DiskFull { .. }
            | AppendError::OutcomeUnknown { .. }
    )
}

async fn claim(log: &dyn Log, hub: &HubName) -> Result<Arc<dyn Partition>, JournalError> {
    let claimed = log.claim(hub.as_str(), 0).await?;
    claimed.ok_or_else(|| {
        JournalError::Missing(TopicPartition {
            hub: hub.clone(),
            partition: 0,
        })
    })
}

pub(crate) struct Journal {
    kind: EntityKind,
    log: Arc<dyn Log>,
    hub: HubName,
    partition: Arc<dyn Partition>,
    builder: BatchBuilder,
    record: Vec<u8>,
    producer: Producer,
    sequence: i32,
    /// Bytes appended since the start of the last snapshot.
    pub bytes: u64,
}

/// Creates the hub of a queue.
pub(crate) async fn create(log: &dyn Log, hub: HubName) -> Result<(), AdminError> {
    log.create(spec(hub)).await.map(drop)
}

/// Creates the hubs of queues that have none yet.
pub(crate) async fn create_missing(log: &dyn Log, hubs: Vec<HubName>) -> Result<(), AdminError> {
    let specs = hubs.into_iter().map(spec).collect();
    log.create_missing(specs).await
}

fn spec(hub: HubName) -> HubSpec {
    let settings = HubSettings {
        cleanup: CleanupPolicy::Delete,
        retention: None,
        retention_bytes: None,
        batch_bytes_max: BATCH_BYTES_MAX,
        ..HubSettings::default()
    };
    HubSpec {
        name: hub,
        partitions: 1,
        settings,
    }
}

impl Journal {
    /// Claims the hub. `producer` must be an id that was never used before.
    pub(crate) async fn open(
        log: Arc<dyn Log>,
        kind: EntityKind,
        hub: HubName,
        producer: i64,
    ) -> Result<Journal, JournalError> {
        Ok(Journal {
            kind,
            partition: claim(&*log, &hub).await?,
            log,
            hub,
            builder: BatchBuilder::new(),
            record: Vec::new(),
            producer: Producer {
                id: producer,
                epoch: 0,
            },
            sequence: 0,
            bytes: 0,
        })
    }

    /// Adds an event to the next batch.
    pub(crate) fn push(&mut self, event: &Event) {
        self.record.clear();
        codec::write(event, &mut self.record);
        self.builder.push(&NewRecord {
            key: None,
            value: Some(&self.record),
            headers: &[],
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// Appends the pushed events, which happened at `now_ms`.
    pub(crate) fn append(&mut self, now_ms: i64) -> BoxFuture<Result<AppendInfo, AppendError>> {
        let count = self.builder.count();
        self.bytes += self.builder.size() as u64;
        let batch = self.builder.build(&BatchOptions {
            timestamp: Some(now_ms),
            producer: Some((self.producer, self.sequence)),
            ..BatchOptions::default()
        });
        self.sequence = self.sequence.wrapping_add(count) & i32::MAX;
        match batch {
            Ok(batch) => self.partition.append(batch),
            Err(error) => Box::pin(std::future::ready(Err(error.into()))),
        }
    }

    /// Claims the hub again and restores the queue, after a failed append. Continues as a new producer.
    pub(crate) async fn restart(
        &mut self,
        producer: i64,
        contents: &ContentMap,
    ) -> Result<Machine, JournalError> {
        self.partition = claim(&*self.log, &self.hub).await?;
        (self.producer.id, self.sequence) = (producer, 0);
        self.replay(contents).await
    }

    pub(crate) fn trim(&self, before: Offset) -> BoxFuture<Result<Offset, ReadError>> {
        self.partition.trim(before)
    }

    /// Restores the queue by applying all events of the journal. A subscription needs the contents of its topic's
    /// messages.
    pub(crate) async fn replay(&mut self, contents: &ContentMap) -> Result<Machine, JournalError> {
        let mut machine = match self.kind {
            EntityKind::Topic => Machine::new_topic(),
            EntityKind::Queue | EntityKind::Subscription => Machine::new(),
        };
        let add = |record: &Record<'_>| {
            let bytes = Bytes::copy_from_slice(record.value.unwrap_or_default());
            let mut event = codec::read(&bytes)?;
            event.resolve(contents);
            machine.apply(record.created, &event);
            Ok::<_, DecodeError>(())
        };
        let bounds = self.partition.fetch_bounds().await;
        let end = bounds.map_err(ReplayError::Read)?.end;
        self.bytes = replay(&*self.partition, BATCH_BYTES_MAX as usize, add).await?;
        // Damaged records are beyond the readable end, and reading there reports them. A queue that lost messages must
        // not look like an empty one.
        let behind = self.partition.read(end, 1, Isolation::Uncommitted).await;
        behind.map_err(ReplayError::Read)?;
        if let Some((seq, topic_seq)) = machine.unresolved(contents) {
            return Err(JournalError::Reference { seq, topic_seq });
        }
        machine.reset_totals();
        Ok(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves A3
    #[test]
    fn the_hub_of_an_entity_tells_its_name() {
        for (kind, name, hub) in [
            (EntityKind::Queue, "a.b", "__queue.a.b"),
            (EntityKind::Topic, "a.b", "__topic.a.b"),
            (
                EntityKind::Subscription,
                "a.b/Subscriptions/c.d",
                "__subscription.3.a.b.c.d",
            ),
        ] {
            let found = kind.hub_of(name).unwrap();
            assert_eq!(found.as_str(), hub);
            assert_eq!(kind.name_of(hub).as_deref(), Some(name));
        }
        for wrong in [
            "a",
            "/Subscriptions/c",
            "a/Subscriptions/",
            "a/b/Subscriptions/c",
        ] {
            assert_eq!(EntityKind::Subscription.hub_of(wrong), None, "{wrong}");
        }
        for wrong in ["__subscription.9.a.b", "__subscription.x.a.b", "__queue.a"] {
            assert_eq!(EntityKind::Subscription.name_of(wrong), None, "{wrong}");
        }
    }
}
