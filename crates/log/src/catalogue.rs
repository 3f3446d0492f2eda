//! The catalogue of hubs: their settings and their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Codec, TimestampType};
use crate::{AppendError, BoxFuture, HubId, HubName, Partition, TopicPartition};

/// The partition of [`Log::claim`].
pub type ClaimResult = Result<Option<Arc<dyn Partition>>, AppendError>;

/// A catalogue of hubs.
pub trait Log: Send + Sync {
    /// All hubs, sorted by name, internal ones included.
    fn hubs(&self) -> Vec<Arc<HubInfo>>;

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>>;

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>>;

    /// A handle to one partition, cheap enough to get for every request. It stays valid until its hub is deleted; then
    /// its calls fail with `Deleted`.
    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>>;

    /// The partition for its only writer, such as the owner of a journal; `None` if there is none. A log that several
    /// processes share fences the writers before: none of their appends follows, so the partition can be replayed and
    /// continued. The first append that fails ends the claim; later ones fail too.
    fn claim(&self, hub: &str, partition: u32) -> BoxFuture<ClaimResult> {
        // A log of this process has no other writers.
        Box::pin(std::future::ready(Ok(self.partition(hub, partition))))
    }

    /// Completes when the hub is durable.
    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>>;

    /// Creates the hubs that do not exist. Completes when all are durable, which costs less than one after the other.
    fn create_missing(&self, specs: Vec<HubSpec>) -> BoxFuture<Result<(), AdminError>> {
        let created: Vec<_> = specs.into_iter().map(|spec| self.create(spec)).collect();
        Box::pin(async move {
            for created in created {
                match created.await {
                    Ok(_) | Err(AdminError::Exists(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    /// Creates a hub for a client that did not ask for it, within the limits of such hubs.
    fn create_automatically(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>> {
        self.create(spec)
    }

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>>;

    /// Raises the number of partitions to `partitions`. Keys written afterwards may go to another partition than
    /// before.
    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>>;

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>>;
}

/// The hub to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSpec {
    pub name: HubName,
    /// 1 to [`HubSpec::PARTITIONS_MAX`].
    pub partitions: u32,
    pub settings: HubSettings,
}

impl HubSpec {
    pub const PARTITIONS_MAX: u32 = 1024;
}

/// A hub of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubInfo {
    pub name: HubName,
    pub id: HubId,
    pub partitions: u32,
    pub settings: HubSettings,
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

impl HubInfo {
    pub fn topic_partition(&self, partition: u32) -> TopicPartition {
        TopicPartition {
            hub: self.name.clone(),
            partition,
        }
    }
}

/// Retention, limits and timestamps of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSettings {
    pub cleanup: CleanupPolicy,
    /// Minimum time a record is kept; `None` keeps it for ever. Not for [`CleanupPolicy::Compact`].
    pub retention: Option<Duration>,
    /// Minimum size a partition keeps; older segments may be deleted. `None` has no limit.
    pub retention_bytes: Option<u64>,
    /// The largest batch accepted, in bytes.
    pub batch_bytes_max: u32,
    pub timestamps: TimestampSettings,
    pub segments: SegmentSettings,
    pub compaction: CompactionSettings,
    /// The codec of batches of Kafka producers; `None` keeps that of the producer.
    pub compression: Option<Codec>,
    /// Topic settings of Kafka that have no effect on a hub, by name, as a client set them.
    pub ineffective: BTreeMap<String, String>,
    /// Where values come from, by Kafka's name of the setting, as far as somebody said it. Other values are the hub's
    /// own if they differ from the default.
    pub origins: BTreeMap<String, SettingOrigin>,
}

/// Where the value of a setting of a hub comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// It was set for the hub, also if it is the default.
    Hub,
    /// It is a default that was set for the node while it ran. `before` is the value that it replaced, and that returns
    /// when that default is removed; `None` stands for the value of the node.
    Node { before: Option<String> },
}

/// The header of a batch has 61 bytes; a smaller limit would be of no use.
const BATCH_BYTES_MIN: u32 = 1024;
const BATCH_BYTES_MAX: u32 = 1 << 30;

/// Smaller segments would use up file descriptors and folders.
const SEGMENT_BYTES_MIN: u64 = 1024;

impl HubSettings {
    /// Notes that these settings, by Kafka's names, were set for the hub.
    pub fn set_for_hub(&mut self, names: impl IntoIterator<Item = &'static str>) {
        let names = names
            .into_iter()
            .map(|name| (name.to_owned(), SettingOrigin::Hub));
        self.origins.extend(names);
    }

    /// Whether the values are the same, wherever they come from.
    pub fn has_values_of(&self, other: &HubSettings) -> bool {
        let origins = other.origins.clone();
        *other
            == HubSettings {
                origins,
                ..self.clone()
            }
    }

    /// Checks the limits that hold for every hub.
    pub fn check(&self) -> Result<(), AdminError> {
        let bytes = self.batch_bytes_max;
        if !(BATCH_BYTES_MIN..=BATCH_BYTES_MAX).contains(&bytes) {
            return Err(AdminError::Settings(format!(
                "the largest batch cannot have {bytes} bytes: use {BATCH_BYTES_MIN} to {BATCH_BYTES_MAX}"
            )));
        }
        match self.segments.bytes {
            Some(bytes) if bytes < SEGMENT_BYTES_MIN => Err(AdminError::Settings(format!(
                "a segment cannot be limited to {bytes} bytes: use {SEGMENT_BYTES_MIN} or more"
            ))),
            _ => Ok(()),
        }
    }
}

/// The timestamps that consumers see. The enqueue time is stored in either case, and jobs, readers over HTTP and
/// retention use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampSettings {
    pub kind: TimestampType,
    /// How far a producer's timestamp may be before the enqueue time; `None` has no limit.
    pub before_max: Option<Duration>,
    /// How far it may be after it.
    pub after_max: Option<Duration>,
}

impl Default for TimestampSettings {
    fn default() -> Self {
        TimestampSettings {
            kind: TimestampType::LogAppend,
            before_max: None,
            after_max: Some(Duration::from_secs(3600)),
        }
    }
}

/// When a segment is closed. `None` stands for the value of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSettings {
    /// Maximum size.
    pub bytes: Option<u64>,
    /// Maximum age of the first batch.
    pub age: Option<Duration>,
}

/// When a hub is compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionSettings {
    /// The share of bytes not compacted yet, in millionths of all bytes that can be compacted, from which on compaction
    /// runs. 0 compacts whenever a segment was closed.
    pub dirty_ratio_min: u32,
    /// How long a tombstone is kept; `None` stands for the value of the node.
    pub tombstone_age: Option<Duration>,
    /// Records are not compacted before this age.
    pub lag_min: Duration,
    /// Records older than this are compacted whatever the share is; `None` has no limit.
    pub lag_max: Option<Duration>,
}

impl Default for HubSettings {
    fn default() -> Self {
        HubSettings {
            cleanup: CleanupPolicy::Delete,
            retention: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: None,
            batch_bytes_max: 1024 * 1024 + 12,
            timestamps: TimestampSettings::default(),
            segments: SegmentSettings::default(),
            compaction: CompactionSettings::default(),
            compression: None,
            ineffective: BTreeMap::new(),
            origins: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupPolicy {
    /// Deletes whole segments by age or size.
    Delete,
    /// Keeps the last record of every key; a record without a value deletes its key.
    Compact,
    /// Both.
    CompactDelete,
}

impl CleanupPolicy {
    pub fn compacts(self) -> bool {
        matches!(self, CleanupPolicy::Compact | CleanupPolicy::CompactDelete)
    }

    pub fn deletes(self) -> bool {
        matches!(self, CleanupPolicy::Delete | CleanupPolicy::CompactDelete)
    }
}

/// Why the catalogue was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    #[error("there is no hub `{0}`")]
    Unknown(HubName),
    #[error("hub `{0}` exists already")]
    Exists(HubName),
    #[error("{requested} partitions are not possible: a hub has 1 to {max}")]
    Partitions { requested: u32, max: u32 },
    #[error("hub `{hub}` has {have} partitions, and partitions cannot be removed")]
    Shrink { hub: HubName, have: u32 },
    /// An administrator can still create hubs.
    #[error("no hub is created automatically: the node has its maximum of {max} {what}")]
    TooMany { what: &'static str, max: usize },
    #[error("{0}")]
    Settings(String),
    #[error("the catalogue could not be written: {0}")]
    Storage(String),
}
