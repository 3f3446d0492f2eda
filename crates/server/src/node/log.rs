//! The log of a node: its own, on the disk, or a Kafka cluster.
//!
//! Both have hubs, groups and transactions behind the traits of `highwater-log`, so the rest of the node does not know
//! which one it has. An embedded log needs the node to coordinate groups and transactions; a cluster does it itself.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::disk::Lock;
use highwater_env::random::Random;
use highwater_env::{Clock, RealDisk};
use highwater_hub::{Hub, groups, lock_folder, transactions};
use highwater_kafka::client::{Profile, Remote};
use highwater_log::{GroupCoordinator, Log, TransactionCoordinator};

use super::services::{ShutdownSignal, Tasks};
use super::{NodeError, hubs};
use crate::cluster::ClusterSettings;
use crate::config::Config;
use crate::http::App;

/// How often the ends of partitions are read for metrics and the console.
const BOUNDS_INTERVAL: Duration = Duration::from_secs(5);

/// In the data folder: the log of resources that Event Hubs cannot hold.
const STATE_FOLDER: &str = "state";

pub(super) enum NodeLog {
    Embedded(Hub),
    Cluster {
        remote: Remote,
        /// Circuits and dead letters, if the cluster cannot have them.
        state: Option<Hub>,
        /// The data folder has the keys and jobs of the node, so no other node may use it.
        _folder: Lock,
    },
}

#[derive(Clone)]
pub(super) struct Coordinators {
    pub groups: Arc<dyn GroupCoordinator>,
    pub transactions: Arc<dyn TransactionCoordinator>,
}

impl NodeLog {
    /// Opens the log and creates missing hubs.
    pub(super) async fn open(
        config: &Config,
        files_open: usize,
        clock: Arc<dyn Clock>,
        app: Arc<App>,
    ) -> Result<NodeLog, NodeError> {
        let opened = match &config.cluster {
            Some(cluster) => NodeLog::connect(config, cluster, files_open, clock, app).await?,
            None => {
                let path = config.data.clone();
                NodeLog::Embedded(hubs::recover(config, path, files_open, clock, app).await?)
            }
        };
        hubs::ensure_all(config, &*opened.log()).await?;
        Ok(opened)
    }

    async fn connect(
        config: &Config,
        cluster: &ClusterSettings,
        files_open: usize,
        clock: Arc<dyn Clock>,
        app: Arc<App>,
    ) -> Result<NodeLog, NodeError> {
        let lock = lock_folder(&RealDisk, &config.data);
        let _folder = lock.map_err(|error| NodeError::Open {
            path: config.data.clone(),
            error,
        })?;
        let options = cluster.client_options().map_err(NodeError::Cluster)?;
        let remote = Remote::connect(options, clock.clone()).await;
        let remote = remote.map_err(|error| NodeError::Cluster(error.to_string()))?;
        tracing::info!(cluster = cluster.servers.join(","), "the log is a cluster");
        let state = match cluster.profile {
            Profile::Kafka => None,
            Profile::EventHubs => {
                let path = config.data.join(STATE_FOLDER);
                Some(hubs::recover(config, path, files_open, clock, app).await?)
            }
        };
        Ok(NodeLog::Cluster {
            remote,
            state,
            _folder,
        })
    }

    pub(super) fn log(&self) -> Arc<dyn Log> {
        match self {
            NodeLog::Embedded(hub) => Arc::new(hub.clone()),
            NodeLog::Cluster { remote, .. } => Arc::new(remote.clone()),
        }
    }

    /// Where circuits and dead letters are: the log itself, or a log on the disk of this node.
    pub(super) fn state_log(&self) -> Arc<dyn Log> {
        match self {
            NodeLog::Cluster {
                state: Some(state), ..
            } => Arc::new(state.clone()),
            _ => self.log(),
        }
    }

    /// The embedded log; `None` over a cluster.
    pub(super) fn hub(&self) -> Option<&Hub> {
        match self {
            NodeLog::Embedded(hub) => Some(hub),
            NodeLog::Cluster { .. } => None,
        }
    }

    /// The cluster; `None` for an embedded log.
    pub(super) fn remote(&self) -> Option<&Remote> {
        match self {
            NodeLog::Embedded(_) => None,
            NodeLog::Cluster { remote, .. } => Some(remote),
        }
    }

    /// The coordinators, whose tasks run from now on.
    pub(super) fn coordinators(
        &self,
        groups: groups::Options,
        clock: &Arc<dyn Clock>,
        tasks: &mut Tasks,
    ) -> Coordinators {
        match self {
            NodeLog::Embedded(_) => start_coordinators(&self.log(), groups, clock, tasks),
            NodeLog::Cluster { remote, .. } => {
                let (watched, remote) = (remote.clone(), Arc::new(remote.clone()));
                tasks.spawn("readings of the ends of partitions", |shutdown| {
                    read_bounds(watched, shutdown)
                });
                Coordinators {
                    groups: remote.clone(),
                    transactions: remote,
                }
            }
        }
    }

    /// Closes the files.
    pub(super) async fn stop(self) {
        let (NodeLog::Embedded(hub)
        | NodeLog::Cluster {
            state: Some(hub), ..
        }) = self
        else {
            return;
        };
        let problems = tokio::task::spawn_blocking(move || hub.stop()).await;
        for problem in problems.unwrap_or_default() {
            tracing::warn!("{problem}; the next start repairs it");
        }
    }
}

fn start_coordinators(
    log: &Arc<dyn Log>,
    options: groups::Options,
    clock: &Arc<dyn Clock>,
    tasks: &mut Tasks,
) -> Coordinators {
    let groups = groups::Service::new(log.clone(), clock.clone(), Random::from_os(), options);
    let group_handle = groups.handle();
    let options = transactions::Options::default();
    let transactions =
        transactions::Service::new(log.clone(), clock.clone(), group_handle.clone(), options);
    let transaction_handle = transactions.handle();
    tasks.spawn("groups", |shutdown| groups.run(shutdown));
    tasks.spawn("transactions", |shutdown| transactions.run(shutdown));
    Coordinators {
        groups: Arc::new(group_handle),
        transactions: Arc::new(transaction_handle),
    }
}

/// Reads the ends of all partitions in use every few seconds, because metrics and the console show the last known ones.
async fn read_bounds(
    remote: Remote,
    mut shutdown: ShutdownSignal,
) -> Result<(), std::convert::Infallible> {
    loop {
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            () = tokio::time::sleep(BOUNDS_INTERVAL) => remote.refresh_bounds().await,
        }
    }
}
