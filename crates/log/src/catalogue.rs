//! The catalogue of hubs: which there are, how they are kept, and the way to their partitions.

use std::sync::Arc;
use std::time::Duration;

use crate::{BoxFuture, HubId, HubName, Partition, TopicPartition};

/// A catalogue of hubs.
pub trait Log: Send + Sync {
    /// Every hub, by name, internal ones included.
    fn hubs(&self) -> Vec<Arc<HubInfo>>;

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>>;

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>>;

    /// The way to one partition. Cheap enough to ask for every request; a handle stays valid until
    /// its hub is deleted, after which its calls fail with `Deleted`.
    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>>;

    /// Ready once the hub would be there after a crash.
    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>>;

    fn delete(&self, name: &HubName) -> BoxFuture<Result<(), AdminError>>;

    /// Raises the number of partitions to `partitions`. Keys written from then on may go elsewhere
    /// than before.
    fn grow(&self, name: &HubName, partitions: u32) -> BoxFuture<Result<Arc<HubInfo>, AdminError>>;

    fn change(
        &self,
        name: &HubName,
        settings: HubSettings,
    ) -> BoxFuture<Result<Arc<HubInfo>, AdminError>>;
}

/// What a hub is to be.
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

/// What a hub is.
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

/// What of a hub's past is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSettings {
    pub cleanup: CleanupPolicy,
    /// How long a record is kept at least; `None` is for ever. Only for [`CleanupPolicy::Delete`].
    pub retention: Option<Duration>,
    /// How much of a partition is kept at least; older segments may go. `None` is without limit.
    pub retention_bytes: Option<u64>,
    /// The largest batch taken.
    pub batch_bytes_max: u32,
}

impl Default for HubSettings {
    fn default() -> Self {
        HubSettings {
            cleanup: CleanupPolicy::Delete,
            retention: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: None,
            batch_bytes_max: 1024 * 1024 + 12,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupPolicy {
    /// Whole segments go when they are old or many enough.
    Delete,
    /// The last record of every key stays; a record without a value removes its key.
    Compact,
}

/// Why the catalogue was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    #[error("there is no hub `{0}`")]
    Unknown(HubName),
    #[error("hub `{0}` exists already")]
    Exists(HubName),
    #[error("{requested} partitions cannot be: a hub has 1 to {max}")]
    Partitions { requested: u32, max: u32 },
    #[error("hub `{hub}` has {have} partitions, and partitions are never taken away")]
    Shrink { hub: HubName, have: u32 },
    #[error("{0}")]
    Settings(String),
    #[error("the catalogue could not be written: {0}")]
    Storage(String),
}
