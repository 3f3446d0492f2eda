//! The services on top of a node's log: coordinators of groups and transactions, workflows, queues, jobs and
//! processors.
//!
//! They start in the order of their dependencies, and stop in reverse.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use highwater_access::{AuditLog, Keys};
use highwater_env::{Clock, shutdown_signal};
use highwater_hub::groups::OwnTimeouts;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::NodeError;
use super::log::{Coordinators, NodeLog};
use super::owned::{OwnedParts, OwnedServices};
use crate::config::Config;
use crate::idle_entities;
use crate::jobs::{JobResources, Jobs, SharedDefinitions};
use crate::processors::notify::Notifier;
use crate::processors::{NodeParts, Processors};

pub(super) struct Services {
    pub(super) coordinators: Coordinators,
    pub(super) owned: OwnedServices,
    pub(super) jobs: Jobs,
    /// `None` if the settings have none.
    pub(super) processors: Option<Arc<Processors>>,
    tasks: Tasks,
}

fn group_options(config: &Config, own_timeouts: OwnTimeouts) -> highwater_hub::groups::Options {
    let defaults = highwater_hub::groups::Options::default();
    highwater_hub::groups::Options {
        session_min: config.session_min.min(defaults.session_max),
        own_timeouts,
        ..defaults
    }
}

impl Services {
    /// `url` is the base of links in notifications, unless the settings have one. `own_timeouts` are those of single consumer
    /// groups.
    pub(super) async fn start(
        config: &Config,
        keys: &Arc<Keys>,
        node_log: &NodeLog,
        clock: &Arc<dyn Clock>,
        url: Option<String>,
        own_timeouts: OwnTimeouts,
    ) -> Result<Services, NodeError> {
        let mut tasks = Tasks::default();
        let log = &node_log.log();
        let coordinators =
            node_log.coordinators(group_options(config, own_timeouts), clock, &mut tasks);
        let mut notify = config.notify.clone();
        notify.public_url = notify.public_url.or_else(|| url.clone());
        let notifier = Notifier::new(notify, config.egress.clone(), clock.clone());
        let notifier = notifier.map_err(NodeError::Notify)?;
        let parts = OwnedParts {
            config,
            coordinators: &coordinators,
            clock,
            notifier: notifier.clone(),
            url,
        };
        let owned = OwnedServices::start(node_log, parts, &mut tasks).await?;
        let resources = JobResources {
            log: log.clone(),
            transactions: coordinators.transactions.clone(),
            cluster: config.cluster.clone(),
            state: config.job_state.clone(),
            queues: owned.queues.queues.clone(),
            clock: clock.clone(),
            sharded: config.sharded.clone().into(),
            egress: config.egress.clone(),
            deployed_access: config.deployed_access.clone(),
            keys: keys.clone(),
            state_bytes_max: config.job_state_bytes_max,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let shares_jobs = config.job_state.as_ref().is_some_and(|state| state.shared);
        let shared = match shares_jobs {
            true => Some(
                SharedDefinitions::open(&**log)
                    .await
                    .map_err(NodeError::Jobs)?,
            ),
            false => None,
        };
        let folder = config.data.join("jobs");
        let jobs = Jobs::open(resources, shared, folder, config.jobs.clone());
        let jobs = jobs.map_err(NodeError::Jobs)?;
        jobs.start_desired().await.map_err(NodeError::Jobs)?;
        let processors = match config.processors.is_empty() {
            true => None,
            false => {
                let parts = NodeParts {
                    log: log.clone(),
                    state: node_log.state_log(),
                    groups: coordinators.groups.clone(),
                    clock: clock.clone(),
                    egress: config.egress.clone(),
                };
                let specs = config.processors.clone();
                Some(Processors::start(specs, notifier, &config.data, parts).await?)
            }
        };
        Ok(Services {
            coordinators,
            owned,
            jobs,
            processors,
            tasks,
        })
    }

    /// Stops the jobs of keys that are revoked, expire or lose a right.
    pub(super) fn watch_keys(&mut self, changes: watch::Receiver<()>, audit: Arc<dyn AuditLog>) {
        let jobs = self.jobs.clone();
        self.tasks.spawn("checks of the keys of jobs", |shutdown| {
            jobs.watch_keys(changes, audit, shutdown)
        });
    }

    /// Deletes idle queues, topics and subscriptions.
    pub(super) fn watch_idle_entities(&mut self, audit: Arc<dyn AuditLog>) {
        if let Some(local) = &self.owned.local {
            let (queues, topics) = (self.owned.queues.queues.clone(), local.topics.clone());
            self.tasks.spawn("deletions of idle entities", |shutdown| {
                idle_entities::run(queues, topics, audit, shutdown)
            });
        }
    }

    pub(super) async fn stop(self) {
        if let Some(processors) = self.processors {
            processors.stop().await;
        }
        self.jobs.stop_all().await;
        self.owned.stop().await;
        self.tasks.stop().await;
    }
}

/// The tasks of services, which stop together.
#[derive(Default)]
pub(super) struct Tasks {
    running: Vec<JoinHandle<()>>,
    shutdown: watch::Sender<bool>,
}

impl Tasks {
    /// Runs a service in a task that reports its error.
    pub(super) fn spawn<E: Display, S: Future<Output = Result<(), E>> + Send + 'static>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(ShutdownSignal) -> S,
    ) {
        let service = run(Box::pin(shutdown_signal(self.shutdown.subscribe())));
        self.running.push(tokio::spawn(async move {
            if let Err(error) = service.await {
                tracing::error!(%error, "{name} have stopped");
            }
        }));
    }

    async fn stop(self) {
        self.shutdown.send_replace(true);
        for task in self.running {
            // A panic has been reported, and leaves nothing to stop.
            let _ = task.await;
        }
    }
}

pub(super) type ShutdownSignal = Pin<Box<dyn Future<Output = ()> + Send>>;
