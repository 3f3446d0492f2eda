//! The hubs of a workflow, created if they do not exist.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use highwater_log::{CleanupPolicy, HubName, HubSettings, HubSpec, Log, Partition};

use super::JournalError;

/// The partitions of a workflow. An instance has the same partition number in every hub except `versions`, which
/// has one partition.
pub(crate) struct JournalHubs {
    /// Running instances: `__workflow.NAME`.
    pub running: Vec<Arc<dyn Partition>>,
    /// Failed instances: `__workflow.NAME.failed`.
    pub failed: Vec<Arc<dyn Partition>>,
    /// Ended instances: `__workflow.NAME.history`.
    pub history: Vec<Arc<dyn Partition>>,
    /// Index of the history: `__workflow.NAME.index`.
    pub index: Vec<Arc<dyn Partition>>,
    /// Definitions: `__workflow.NAME.versions`.
    pub versions: Arc<dyn Partition>,
}

/// An instance with all its answers must fit into one record.
const BATCH_BYTES_MAX: u32 = 64 << 20;

impl JournalHubs {
    pub(crate) async fn open(
        log: &dyn Log,
        name: &str,
        partitions: u32,
        keep: Duration,
    ) -> Result<JournalHubs, JournalError> {
        let forever = settings(CleanupPolicy::Delete, None);
        let history = settings(CleanupPolicy::Delete, Some(keep));
        let versions = settings(CleanupPolicy::Compact, None);
        let name = |part: &str| format!("__workflow.{name}{part}");
        let no_versions = || JournalError::NoHub(name(".versions"));
        let names = ["", ".failed", ".history", ".index", ".versions"].map(name);
        let [running, failed, ended, index, stored] = &names;
        // Over a cluster a claim takes several requests, so they are made side by side.
        let (running, failed, history, index, versions) = tokio::try_join!(
            open(log, running, partitions, forever.clone()),
            open(log, failed, partitions, forever.clone()),
            open(log, ended, partitions, history),
            open(log, index, partitions, forever.clone()),
            open(log, stored, 1, versions),
        )?;
        Ok(JournalHubs {
            running,
            failed,
            history,
            index,
            versions: versions.into_iter().next().ok_or_else(no_versions)?,
        })
    }

    /// Records that could not start an instance: `__workflow.NAME.rejected`.
    pub(crate) async fn rejected(
        log: &dyn Log,
        name: &str,
    ) -> Result<Arc<dyn Partition>, JournalError> {
        let name = format!("__workflow.{name}.rejected");
        let hub = open(log, &name, 1, settings(CleanupPolicy::Delete, None)).await?;
        hub.into_iter().next().ok_or(JournalError::NoHub(name))
    }
}

fn settings(cleanup: CleanupPolicy, retention: Option<Duration>) -> HubSettings {
    HubSettings {
        cleanup,
        retention,
        retention_bytes: None,
        batch_bytes_max: BATCH_BYTES_MAX,
        ..HubSettings::default()
    }
}

/// Opens and claims a hub. An existing hub keeps its number of partitions: an id must stay in its partition.
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
    let claims = (0..info.partitions).map(|partition| async move {
        let claimed = log.claim(name, partition).await?;
        claimed.ok_or_else(|| JournalError::NoHub(name.to_owned()))
    });
    try_join_all(claims).await
}
