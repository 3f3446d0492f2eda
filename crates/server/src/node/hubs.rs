//! The hubs of a node: opened, and made as the settings say.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwater_env::{Clock, RealDisk};
use highwater_hub::{Hub, Progress};
use highwater_log::{HubSettings, HubSpec, Log};

use super::NodeError;
use crate::config::{Config, Durability};
use crate::http::{self, App};
use crate::sharded::Sharded;

/// Opens the log and makes the hubs that are missing.
pub(super) async fn prepare(
    config: &Config,
    clock: Arc<dyn Clock>,
    app: Arc<App>,
) -> Result<Hub, NodeError> {
    let hub = open(config, clock, app).await?;
    for wanted in &config.hubs {
        make(&hub, wanted).await?;
    }
    for sharded in &config.sharded {
        make_members(&hub, sharded, config.auto_create).await?;
    }
    Ok(hub)
}

/// Reads the log, which may take a while; `/readyz` says how far it is.
async fn open(config: &Config, clock: Arc<dyn Clock>, app: Arc<App>) -> Result<Hub, NodeError> {
    let options = highwater_hub::Options {
        durability: match config.durability {
            Durability::Fsync => highwater_hub::Durability::Fsync,
            Durability::Os => highwater_hub::Durability::Os,
        },
        ..highwater_hub::Options::default()
    };
    let path = config.data.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let progress = |progress: Progress| {
            let told = app.progress();
            told.total.store(progress.total as u64, Ordering::Relaxed);
            told.done.fetch_max(progress.done as u64, Ordering::Relaxed);
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

fn report(progress: &Progress) {
    let (place, recovery) = (&progress.topic_partition, &progress.recovery);
    if let Some(cut) = &recovery.cut {
        tracing::warn!(%place, ?cut, "a torn end was cut off; nothing that was answered was in it");
    }
    if let Some(damage) = &recovery.damage {
        tracing::error!(%place, ?damage, "a file is damaged");
    }
    let tenths = |done: usize| done * 10 / progress.total;
    if tenths(progress.done) > tenths(progress.done - 1) && progress.total >= 10 {
        tracing::info!("read {} of {} partitions", progress.done, progress.total);
    }
}

/// A hub of the settings: made if it is not there, grown if it is smaller, and set as they say. It may
/// have been grown since they were written, and stays so.
async fn make(log: &dyn Log, wanted: &HubSpec) -> Result<(), NodeError> {
    let failed = |error| NodeError::Hub {
        hub: wanted.name.to_string(),
        error,
    };
    let Some(hub) = log.hub(wanted.name.as_str()) else {
        log.create(wanted.clone()).await.map_err(failed)?;
        return Ok(());
    };
    if hub.partitions < wanted.partitions {
        log.grow(&wanted.name, wanted.partitions)
            .await
            .map_err(failed)?;
    }
    if hub.settings != wanted.settings {
        log.change(&wanted.name, wanted.settings.clone())
            .await
            .map_err(failed)?;
    }
    Ok(())
}

/// The hubs that a name leads to, made if they are not there.
async fn make_members(
    log: &dyn Log,
    sharded: &Sharded,
    partitions: Option<u32>,
) -> Result<(), NodeError> {
    if log.hub(sharded.name.as_str()).is_some() {
        return Err(NodeError::Taken(sharded.name.clone()));
    }
    for name in &sharded.hubs {
        if log.hub(name.as_str()).is_none() {
            let wanted = HubSpec {
                name: name.clone(),
                partitions: partitions.unwrap_or(http::PARTITIONS_DEFAULT),
                settings: HubSettings::default(),
            };
            make(log, &wanted).await?;
        }
    }
    Ok(())
}
