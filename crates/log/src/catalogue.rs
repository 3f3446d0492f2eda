//! The catalogue of hubs: their settings and their partitions.

use std::sync::Arc;
use std::time::Duration;

use crate::{BoxFuture, HubId, HubName, Partition, TopicPartition};

/// A catalogue of hubs.
pub trait Log: Send + Sync {
    /// All hubs, sorted by name, internal ones included.
    fn hubs(&self) -> Vec<Arc<HubInfo>>;

    fn hub(&self, name: &str) -> Option<Arc<HubInfo>>;

    fn hub_by_id(&self, id: HubId) -> Option<Arc<HubInfo>>;

    /// A handle to one partition, cheap enough to get for every request. It stays valid until its hub is deleted; then
    /// its calls fail with `Deleted`.
    fn partition(&self, hub: &str, partition: u32) -> Option<Arc<dyn Partition>>;

    /// Completes when the hub is durable.
    fn create(&self, spec: HubSpec) -> BoxFuture<Result<Arc<HubInfo>, AdminError>>;

    /// Checks whether a client may create a hub with so many partitions without asking an administrator.
    fn check_automatic_creation(&self, _partitions: u32) -> Result<(), AdminError> {
        Ok(())
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

/// Retention and limits of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSettings {
    pub cleanup: CleanupPolicy,
    /// Minimum time a record is kept; `None` keeps it for ever. Only for [`CleanupPolicy::Delete`].
    pub retention: Option<Duration>,
    /// Minimum size a partition keeps; older segments may be deleted. `None` has no limit.
    pub retention_bytes: Option<u64>,
    /// The largest batch accepted, in bytes.
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
    /// Deletes whole segments by age or size.
    Delete,
    /// Keeps the last record of every key; a record without a value deletes its key.
    Compact,
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
