//! The hubs of a workflow, made when they are not there.

use std::sync::Arc;
use std::time::Duration;

use highwater_log::{Cleanup, HubName, HubSettings, HubSpec, Log, Partition};

use super::JournalError;

/// The partitions of a workflow. An instance is in the partition of the same number in all of them but
/// the versions, which have one.
pub struct Hubs {
    /// Instances that run: `__workflow.NAME`.
    pub running: Vec<Arc<dyn Partition>>,
    /// What failed and is to be undone: `__workflow.NAME.failed`.
    pub failed: Vec<Arc<dyn Partition>>,
    /// What has ended: `__workflow.NAME.history`.
    pub history: Vec<Arc<dyn Partition>>,
    /// Where in the history an id stands: `__workflow.NAME.index`.
    pub index: Vec<Arc<dyn Partition>>,
    /// Definitions: `__workflow.NAME.versions`.
    pub versions: Arc<dyn Partition>,
}

/// An instance with all its answers is one record.
const BATCH_BYTES_MAX: u32 = 64 << 20;

impl Hubs {
    pub async fn open(
        log: &dyn Log,
        name: &str,
        partitions: u32,
        keep: Duration,
    ) -> Result<Hubs, JournalError> {
        let forever = settings(Cleanup::Delete, None);
        let history = settings(Cleanup::Delete, Some(keep));
        let versions = settings(Cleanup::Compact, None);
        let name = |part: &str| format!("__workflow.{name}{part}");
        let versions = open(log, &name(".versions"), 1, versions).await?;
        let no_versions = || JournalError::NoHub(name(".versions"));
        Ok(Hubs {
            running: open(log, &name(""), partitions, forever.clone()).await?,
            failed: open(log, &name(".failed"), partitions, forever.clone()).await?,
            history: open(log, &name(".history"), partitions, history).await?,
            index: open(log, &name(".index"), partitions, forever).await?,
            versions: versions.into_iter().next().ok_or_else(no_versions)?,
        })
    }

    /// What came in and could not start an instance.
    pub async fn rejected(log: &dyn Log, name: &str) -> Result<Arc<dyn Partition>, JournalError> {
        let name = format!("__workflow.{name}.rejected");
        let hub = open(log, &name, 1, settings(Cleanup::Delete, None)).await?;
        hub.into_iter().next().ok_or(JournalError::NoHub(name))
    }
}

fn settings(cleanup: Cleanup, retention: Option<Duration>) -> HubSettings {
    HubSettings {
        cleanup,
        retention,
        retention_bytes: None,
        batch_bytes_max: BATCH_BYTES_MAX,
    }
}

/// A hub that is there keeps its number of partitions: an id must stay where it is.
async fn open(
    log: &dyn Log,
    name: &str,
    partitions: u32,
    settings: HubSettings,
) -> Result<Vec<Arc<dyn Partition>>, JournalError> {
    let hub_name = HubName::new(name).map_err(|error| JournalError::NoHub(error.to_string()))?;
    let info = match log.hub(name) {
        Some(info) if info.settings == settings => info,
        Some(_) => log.change(&hub_name, settings).await?,
        None => {
            let spec = HubSpec {
                name: hub_name,
                partitions,
                settings,
            };
            log.create(spec).await?
        }
    };
    (0..info.partitions)
        .map(|partition| {
            log.partition(name, partition)
                .ok_or_else(|| JournalError::NoHub(name.to_owned()))
        })
        .collect()
}
