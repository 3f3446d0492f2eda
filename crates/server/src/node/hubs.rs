//! Recovers the hubs of a node and creates those of the settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use highwater_env::{Clock, RealDisk};
use highwater_hub::{Hub, OpenError, OpenProgress, lock_folder};
use highwater_log::{HubSettings, HubSpec, Log};
use tokio::time::{Instant, sleep};

use super::NodeError;
use crate::config::{Config, Durability};
use crate::http::{self, App};
use crate::sharded::ShardedHub;

/// Time for which another process may hold the folder.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(3);
const PREDECESSOR_POLL: Duration = Duration::from_millis(20);

/// Creates the missing hubs of the settings.
pub(super) async fn ensure_all(config: &Config, log: &dyn Log) -> Result<(), NodeError> {
    for spec in &config.hubs {
        ensure(log, spec).await?;
    }
    for sharded in &config.sharded {
        ensure_members(log, sharded, config.auto_create).await?;
    }
    Ok(())
}

/// Waits until no other process has the folder: a node that was just killed holds its lock a little longer than `kill`
/// takes. A folder that does not exist is left so, because nothing is written before the listeners have their
/// addresses.
pub(super) async fn wait_for_predecessor(folder: &Path) {
    if !folder.exists() {
        return;
    }
    let deadline = Instant::now() + PREDECESSOR_WAIT;
    while let Err(OpenError::Locked(_)) = lock_folder(&RealDisk, folder)
        && Instant::now() < deadline
    {
        sleep(PREDECESSOR_POLL).await;
    }
}

/// Recovers the embedded log, which may take a while; `/readyz` has the progress.
pub(super) async fn recover(
    config: &Config,
    path: PathBuf,
    files_open: usize,
    clock: Arc<dyn Clock>,
    app: Arc<App>,
) -> Result<Hub, NodeError> {
    let options = highwater_hub::Options {
        files_open,
        auto_create_hubs_max: config.auto_create_hubs_max,
        auto_create_partitions_max: config.auto_create_partitions_max,
        durability: match config.durability {
            Durability::Fsync => highwater_hub::Durability::Fsync,
            Durability::Os => highwater_hub::Durability::Os,
        },
        ..highwater_hub::Options::default()
    };
    let folder = path.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let progress = |progress: OpenProgress| {
            let shown = app.progress();
            shown.total.store(progress.total as u64, Ordering::Relaxed);
            shown
                .done
                .fetch_max(progress.done as u64, Ordering::Relaxed);
            report(&progress);
        };
        Hub::open(Arc::new(RealDisk), &path, options, clock, &progress)
    });
    match opening.await {
        Ok(opened) => opened.map_err(|error| NodeError::Open {
            path: folder,
            error,
        }),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

fn report(progress: &OpenProgress) {
    let (partition, recovery) = (&progress.topic_partition, &progress.recovery);
    if let Some(cut) = &recovery.torn_tail {
        tracing::warn!(%partition, ?cut, "a torn tail was truncated; it held nothing acknowledged");
    }
    if let Some(damage) = &recovery.damage {
        tracing::error!(%partition, ?damage, "a file is damaged");
    }
    let tenths = |done: usize| done * 10 / progress.total;
    if tenths(progress.done) > tenths(progress.done - 1) && progress.total >= 10 {
        tracing::info!(
            "recovered {} of {} partitions",
            progress.done,
            progress.total
        );
    }
}

/// What the settings file says of a hub, with its defaults: no default of the node takes its place.
const OF_SETTINGS: [&str; 4] = [
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
];

/// Creates a hub of the settings, or applies them to it. A hub with more partitions than they have keeps them.
async fn ensure(log: &dyn Log, spec: &HubSpec) -> Result<(), NodeError> {
    let mut spec = spec.clone();
    spec.settings.set_for_hub(OF_SETTINGS);
    let failed = |error| NodeError::Hub {
        hub: spec.name.to_string(),
        error,
    };
    let Some(hub) = log.hub(spec.name.as_str()) else {
        log.create(spec.clone()).await.map_err(failed)?;
        return Ok(());
    };
    if hub.partitions < spec.partitions {
        log.grow(&spec.name, spec.partitions)
            .await
            .map_err(failed)?;
    }
    // Settings that the file does not have stay as a client set them.
    let mut settings = HubSettings {
        cleanup: spec.settings.cleanup,
        retention: spec.settings.retention,
        retention_bytes: spec.settings.retention_bytes,
        batch_bytes_max: spec.settings.batch_bytes_max,
        ..hub.settings.clone()
    };
    if hub.settings != settings {
        settings.set_for_hub(OF_SETTINGS);
        log.change(&spec.name, settings).await.map_err(failed)?;
    }
    Ok(())
}

/// Creates missing members of a sharded hub.
async fn ensure_members(
    log: &dyn Log,
    sharded: &ShardedHub,
    partitions: Option<u32>,
) -> Result<(), NodeError> {
    if log.hub(sharded.name.as_str()).is_some() {
        return Err(NodeError::NameTaken(sharded.name.clone()));
    }
    for name in &sharded.hubs {
        if log.hub(name.as_str()).is_none() {
            let spec = HubSpec {
                name: name.clone(),
                partitions: partitions.unwrap_or(http::PARTITIONS_DEFAULT),
                settings: HubSettings::default(),
            };
            ensure(log, &spec).await?;
        }
    }
    Ok(())
}
