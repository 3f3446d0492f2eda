//! Opens the hubs of a node and creates those of the settings.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwater_env::{Clock, RealDisk};
use highwater_hub::{Hub, OpenProgress};
use highwater_log::{HubSettings, HubSpec, Log};

use super::NodeError;
use crate::config::{Config, Durability};
use crate::http::{self, App};
use crate::sharded::ShardedHub;

/// Opens the log and creates missing hubs.
pub(super) async fn open(
    config: &Config,
    files_open: usize,
    clock: Arc<dyn Clock>,
    app: Arc<App>,
) -> Result<Hub, NodeError> {
    let hub = recover(config, files_open, clock, app).await?;
    for spec in &config.hubs {
        ensure(&hub, spec).await?;
    }
    for sharded in &config.sharded {
        ensure_members(&hub, sharded, config.auto_create).await?;
    }
    Ok(hub)
}

/// Recovers the log, which may take a while; `/readyz` has the progress.
async fn recover(
    config: &Config,
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
    let path = config.data.clone();
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
            path: config.data.clone(),
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

/// Creates a hub of the settings, or applies them to it. A hub with more partitions than they have keeps them.
async fn ensure(log: &dyn Log, spec: &HubSpec) -> Result<(), NodeError> {
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
    if hub.settings != spec.settings {
        log.change(&spec.name, spec.settings.clone())
            .await
            .map_err(failed)?;
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
